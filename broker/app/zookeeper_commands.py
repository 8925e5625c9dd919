"""`python -m ottla.broker.app.zookeeper_commands COMMAND --config FILE`: commands that change ZooKeeper itself.

    secure, unsecure    give the nodes of a cluster to the brokers' login, or back to everybody
    store-user          write the credentials of a user, for brokers that log in to each other and cannot start without;
                        they come as JSON on standard input: {"user": "...", "config": {"SCRAM-SHA-512": "..."}}

`ottla` runs it as a process, because clients know nothing of ZooKeeper. The result is JSON on standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.broker.config import ConfigError, load_broker_config

if TYPE_CHECKING:
    from ottla.broker.cluster.zookeeper import ZooKeeper

_SHOWN_MAX = 5


class _RefusedError(Exception):
    """The command could not be done; the text says why."""


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return 0 on success, 1 on failure, 2 for wrong options."""
    parser = argparse.ArgumentParser(
        prog="python -m ottla.broker.app.zookeeper_commands", description="Change a cluster in ZooKeeper itself."
    )
    parser.add_argument("command", choices=_COMMANDS)
    parser.add_argument("--config", metavar="FILE", help="the server.properties file of a broker")
    parser.add_argument("--override", metavar="KEY=VALUE", action="append", default=[], help="one option; repeatable")
    options = parser.parse_args(arguments)

    from ottla.broker.app.zookeeper_session import zookeeper_session
    from ottla.broker.cluster.operations import ZooKeeperError
    from ottla.broker.observability.log_output import configure_logging
    from ottla.protocol.errors import KafkaError

    configure_logging("ERROR")
    overrides = list(options.override)
    if options.command != "store-user":
        # Both ways need a login: the one that gets the nodes, or the one that gives them back.
        overrides.append("zookeeper.set.acl=true")
    try:
        config = load_broker_config(options.config and Path(options.config), os.environ, overrides)
        zookeeper = zookeeper_session(config)
    except (ConfigError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    try:
        zookeeper.start()
        try:
            result = _COMMANDS[options.command](zookeeper)
        finally:
            zookeeper.close()
    except (ZooKeeperError, KafkaError, _RefusedError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps({"zookeeper": str(config.zookeeper), **result}) + "\n")
    return 0


def _migrate(zookeeper: ZooKeeper, access: str) -> dict[str, Any]:
    from ottla.broker.cluster.acl_migration import migrate

    migrated = migrate(zookeeper, is_secure=access == "secure")
    if migrated.refused:
        shown = ", ".join(migrated.refused[:_SHOWN_MAX])
        raise _RefusedError(
            f"{len(migrated.refused)} of {migrated.nodes} nodes belong to another login and stay as they are: {shown}. "
            "Run this again with that login."
        )
    return {"access": access, "nodes": migrated.nodes}


def _store_user(zookeeper: ZooKeeper) -> dict[str, Any]:
    from ottla.broker.cluster import znodes
    from ottla.broker.cluster.configs import Configs
    from ottla.protocol.entity_names import sanitized

    wanted = json.load(sys.stdin)
    for path in ("/config/users", znodes.CONFIG_CHANGES):
        zookeeper.ensure_path(path)
    Configs(zookeeper).change("users", sanitized(wanted["user"]), lambda config: {**config, **wanted["config"]})
    return {"user": wanted["user"]}


_COMMANDS: dict[str, Callable[[ZooKeeper], dict[str, Any]]] = {
    "secure": lambda zookeeper: _migrate(zookeeper, "secure"),
    "unsecure": lambda zookeeper: _migrate(zookeeper, "unsecure"),
    "store-user": _store_user,
}


if __name__ == "__main__":
    sys.exit(main())
