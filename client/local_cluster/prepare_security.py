"""`python -m ottla.client.local_cluster.prepare_security FOLDER ...`: the files of a secure cluster in containers.

What is there already stays, so that it can run before every start. In the folder are then, for its owner alone:

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
    """Make the files; 0 when they are there, 1 when that is not possible."""
    parser = argparse.ArgumentParser(
        prog="python -m ottla.client.local_cluster.prepare_security",
        description="Make certificates, passwords and files of options for brokers and clients.",
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--inside", metavar="HOST:PORT,...", required=True, help="where containers reach the brokers")
    parser.add_argument("--outside", metavar="HOST:PORT,...", required=True, help="where the host does")
    parser.add_argument("--listener", metavar="NAME", action="append", required=True, help="of brokers; repeatable")
    options = parser.parse_args(arguments)
    try:
        prepare(options.folder, options.inside, options.outside, options.listener)
    except ClusterError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def prepare(folder: Path, inside: str, outside: str, listeners: list[str]) -> None:
    """Make the files for brokers whose listeners all have the same logins; ClusterError if that is not possible."""
    security = ClusterSecurity(folder.absolute())
    security.prepare(inside, [address.rpartition(":")[0] for address in inside.split(",")])
    security.export(security.folder / "host", outside)
    options = security.broker_options()
    # Brokers that name their listeners say by `inter.broker.listener.name` which one is theirs.
    del options["security.inter.broker.protocol"]
    try:
        write_properties(security.folder / "broker.properties", {**options, **security.broker_secrets(listeners)})
    except OSError as error:
        raise ClusterError(f"{security.folder} cannot be used: {error.strerror}.") from error


if __name__ == "__main__":
    sys.exit(main())
