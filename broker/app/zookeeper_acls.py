"""`python -m ottla.broker.app.zookeeper_acls secure|unsecure --config FILE`: who may use the nodes of a cluster.

`ottla zookeeper` runs it, because only brokers know ZooKeeper. It prints its result as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from ottla.broker.config import ConfigError, load_broker_config

_SHOWN_MAX = 5


def main(arguments: list[str] | None = None) -> int:
    """Migrate the nodes; return 0 on success, 1 on failure, 2 for wrong options."""
    parser = argparse.ArgumentParser(
        prog="python -m ottla.broker.app.zookeeper_acls",
        description="Give the nodes of a cluster to the brokers' login, or back to everybody.",
    )
    parser.add_argument("access", choices=("secure", "unsecure"))
    parser.add_argument("--config", metavar="FILE", help="the server.properties file of a broker")
    parser.add_argument("--override", metavar="KEY=VALUE", action="append", default=[], help="one option; repeatable")
    options = parser.parse_args(arguments)

    from ottla.broker.app.zookeeper_session import zookeeper_session
    from ottla.broker.cluster.acl_migration import migrate
    from ottla.broker.cluster.operations import ZooKeeperError
    from ottla.broker.observability.log_output import configure_logging

    configure_logging("ERROR")
    try:
        # Both ways need a login: the one that gets the nodes, or the one that gives them back.
        overrides = [*options.override, "zookeeper.set.acl=true"]
        config = load_broker_config(options.config and Path(options.config), os.environ, overrides)
        zookeeper = zookeeper_session(config)
    except (ConfigError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    try:
        zookeeper.start()
        try:
            migrated = migrate(zookeeper, is_secure=options.access == "secure")
        finally:
            zookeeper.close()
    except ZooKeeperError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if migrated.refused:
        shown = ", ".join(migrated.refused[:_SHOWN_MAX])
        sys.stderr.write(
            f"{len(migrated.refused)} of {migrated.nodes} nodes belong to another login and stay as they are: {shown}. "
            "Run this again with that login.\n"
        )
        return 1
    result = {"zookeeper": str(config.zookeeper), "access": options.access, "nodes": migrated.nodes}
    sys.stdout.write(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
