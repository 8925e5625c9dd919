"""`python -m ottla.client.local_cluster.prepare_security FOLDER ...`: files for a secure cluster in containers.

Existing files stay, so it can run before every start. The folder then has these files, which only its owner can read:

    broker.properties   the options of brokers, with their secrets, for each listener
    client.properties   the administrator's, for the command line in a container; librdkafka.conf says the same
    host/               both for clients elsewhere, and the authority's certificate: to be copied, and used inside it
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ottla.client.local_cluster.errors import ClusterError
from ottla.client.local_cluster.properties import write_properties
from ottla.client.local_cluster.security import ClusterSecurity


def main(arguments: list[str] | None = None) -> int:
    """Create the files; return 0 on success, 1 on failure."""
    parser = argparse.ArgumentParser(
        prog="python -m ottla.client.local_cluster.prepare_security",
        description="Create certificates, passwords and option files for brokers and clients.",
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--inside", metavar="HOST:PORT,...", required=True, help="broker addresses for containers")
    parser.add_argument("--outside", metavar="HOST:PORT,...", required=True, help="broker addresses for the host")
    parser.add_argument("--listener", metavar="NAME", action="append", required=True, help="of brokers; repeatable")
    options = parser.parse_args(arguments)
    try:
        prepare(options.folder, options.inside, options.outside, options.listener)
    except ClusterError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def prepare(folder: Path, inside: str, outside: str, listeners: list[str]) -> None:
    """Create the files for brokers whose listeners all have the same logins; ClusterError if that fails."""
    security = ClusterSecurity(folder.absolute())
    security.prepare(inside, [address.rpartition(":")[0] for address in inside.split(",")])
    security.export(security.folder / "host", outside)
    options = security.broker_options()
    # With named listeners, `inter.broker.listener.name` selects the one between brokers.
    del options["security.inter.broker.protocol"]
    try:
        write_properties(security.folder / "broker.properties", {**options, **security.broker_secrets(listeners)})
    except OSError as error:
        raise ClusterError(f"Cannot use {security.folder}: {error.strerror}.") from error


if __name__ == "__main__":
    sys.exit(main())
