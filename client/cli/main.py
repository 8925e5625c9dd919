"""The tree of commands. Commands for a cluster on this machine are here, those for any cluster are in `nouns.py`.

Data goes to standard output, messages go to standard error. Exit codes: 0 for success, 1 for failure, 2 for a wrong
command line. Modules that are slow to import are imported where a command first needs them.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ottla.client.cli.commands.down import down
from ottla.client.cli.commands.status import status
from ottla.client.cli.commands.up import up
from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.nouns import Nouns
from ottla.client.cli.terminal.output import error
from ottla.client.local_cluster.errors import ClusterError, OptionError

app = typer.Typer(
    name="ottla",
    cls=Nouns,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Plain help keeps the layout of the examples, and needs no slow imports.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
for _command in (up, down, status):
    app.command()(_command)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"ottla {version('ottla')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Ottla, a message broker that speaks the Kafka protocol."""


def main() -> None:
    """Run the command line, and print expected errors without a traceback."""
    try:
        app(prog_name="ottla")
    except OptionError as problem:
        error(str(problem))
        sys.exit(2)
    except CommandError as problem:
        error(str(problem))
        sys.exit(problem.exit_code)
    except ClusterError as problem:
        error(str(problem))
        sys.exit(1)
