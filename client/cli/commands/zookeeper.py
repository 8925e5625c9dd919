"""`ottla zookeeper`: who may use the nodes that a cluster has in ZooKeeper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.function_commands import Option
from ottla.client.cli.terminal.nouns import noun_app
from ottla.client.cli.terminal.options import FormatOption, YesOption
from ottla.client.cli.terminal.output import Format, confirm, print_items, print_table
from ottla.client.local_cluster.zookeeper_commands import ZooKeeperCommandError, run_in_zookeeper

app = noun_app("zookeeper")

_Config = Annotated[
    Path, Option("--config", metavar="FILE", help="server.properties of a broker, with its login to ZooKeeper.")
]
_Overrides = Annotated[list[str] | None, Option("-X", metavar="KEY=VALUE", help="A broker option; can be repeated.")]


@app.function()
def secure(config: _Config, overrides: _Overrides = None, output_format: FormatOption = Format.TABLE) -> None:
    """Give the nodes of a cluster to the brokers' login: others may read them, but not passwords, and change nothing.

    Brokers with zookeeper.set.acl=true protect the nodes that they create. This command protects those that were there
    before. First give all brokers their login, then run it. It can be run again at any time.

    JSON: zookeeper, access, nodes.

    \b
    Examples:
      ottla zookeeper secure --config server.properties
    """
    _migrate("secure", config, overrides, output_format)


@app.function()
def unsecure(
    config: _Config, overrides: _Overrides = None, yes: YesOption = False, output_format: FormatOption = Format.TABLE
) -> None:
    """Give the nodes of a cluster back to everybody who reaches ZooKeeper.

    Do this before brokers lose their login. It can be run again at any time.

    JSON: zookeeper, access, nodes.

    \b
    Examples:
      ottla zookeeper unsecure --config server.properties
    """
    confirm("Let everybody who reaches ZooKeeper change this cluster, its users and rights?", yes)
    _migrate("unsecure", config, overrides, output_format)


def _migrate(
    access: Literal["secure", "unsecure"], config: Path, overrides: list[str] | None, output_format: Format
) -> None:
    try:
        result = run_in_zookeeper(access, config, overrides or ())
    except ZooKeeperCommandError as error:
        raise CommandError(str(error), error.exit_code) from error
    if output_format.is_data:
        print_items([result], output_format)
    else:
        print_table(("ZOOKEEPER", "ACCESS", "NODES"), [[str(value) for value in result.values()]], {})
