"""`python -m ottla.client.local_cluster.prepare_security FOLDER ...`: files for a secure cluster in containers.

Existing files stay, so it can run before every start. The folder then has these files, which only its owner can read:

    broker.properties     the options of brokers, with their secrets, for each listener
    client.properties     the administrator's, for the command line in a container; librdkafka.conf says the same
    zookeeper.properties  for `ottla zookeeper`
    host/                 both for clients elsewhere, and the authority's certificate: to be copied, and used inside it

Another folder gets the configuration of ZooKeeper. Its server runs as another user, so everybody may read these files:
mount the folder nowhere else.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ottla.client.local_cluster.errors import ClusterError
from ottla.client.local_cluster.plan import ZOOKEEPER_PORT
from ottla.client.local_cluster.properties import write_properties
from ottla.client.local_cluster.record import HOST
from ottla.client.local_cluster.security import ClusterSecurity
from ottla.client.local_cluster.zookeeper import ServerSecurity

# Where ZooKeeper's image looks for its configuration.
_CONF = Path("/conf")
_LOGBACK = """<configuration>
  <appender name="CONSOLE" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{ISO8601} %-5p %c{1} %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="CONSOLE"/></root>
</configuration>
"""


def main(arguments: list[str] | None = None) -> int:
    """Create the files; return 0 on success, 1 on failure."""
    parser = argparse.ArgumentParser(
        prog="python -m ottla.client.local_cluster.prepare_security",
        description="Create certificates, passwords and option files for brokers and clients.",
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--inside", metavar="HOST:PORT,...", required=True, help="broker addresses for containers")
    parser.add_argument("--outside", metavar="HOST:PORT,...", required=True, help="broker addresses for the host")
    parser.add_argument(
        "--zookeeper",
        metavar="HOST:PORT/PATH",
        required=True,
        help="address of ZooKeeper, and the cluster's path in it",
    )
    parser.add_argument("--zookeeper-folder", metavar="FOLDER", type=Path, required=True, help="for its configuration")
    parser.add_argument("--listener", metavar="NAME", action="append", required=True, help="of brokers; repeatable")
    options = parser.parse_args(arguments)
    try:
        prepare(options.folder, options.inside, options.outside, options.listener, options.zookeeper)
        prepare_zookeeper(options.folder, options.zookeeper_folder, options.zookeeper)
    except ClusterError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def prepare(folder: Path, inside: str, outside: str, listeners: list[str], zookeeper: str) -> None:
    """Create the files for brokers whose listeners all have the same logins; ClusterError if that fails."""
    security = ClusterSecurity(folder.absolute())
    hosts = [address.rpartition(":")[0] for address in (*inside.split(","), zookeeper)]
    security.prepare(inside, hosts)
    security.export(security.folder / "host", outside)
    options = {**security.broker_options(), **security.zookeeper_options()}
    # With named listeners, `inter.broker.listener.name` selects the one between brokers.
    del options["security.inter.broker.protocol"]
    try:
        secrets = {**security.broker_secrets(listeners), **security.zookeeper_secrets()}
        write_properties(security.folder / "broker.properties", {**options, **secrets})
        security.write_zookeeper_properties(zookeeper)
    except OSError as error:
        raise ClusterError(f"Cannot use {security.folder}: {error.strerror}.") from error


def prepare_zookeeper(security_folder: Path, folder: Path, zookeeper: str) -> None:
    """Write the configuration of a server for `/conf` of ZooKeeper's image."""
    made = ClusterSecurity(security_folder.absolute()).zookeeper_server()
    port = int(zookeeper.partition("/")[0].rpartition(":")[2])
    keystore, login = _CONF / "keystore.pem", _CONF / "zookeeper.jaas"
    options = {
        "dataDir": "/data",
        "dataLogDir": "/datalog",
        "tickTime": "2000",
        "admin.enableServer": "false",
        "autopurge.snapRetainCount": "3",
        "autopurge.purgeInterval": "1",
        # For the health check.
        "clientPort": str(ZOOKEEPER_PORT),
        "clientPortAddress": HOST,
        **ServerSecurity(keystore, login).options("0.0.0.0", port),  # noqa: S104 - in a container of its own
    }
    try:
        # Nobody else mounts this folder, and its reader has another number than we have.
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
        write_properties(folder / "zoo.cfg", options)
        (folder / keystore.name).write_bytes(made.keystore.read_bytes())
        (folder / login.name).write_bytes(made.login.read_bytes())
        (folder / "logback.xml").write_text(_LOGBACK)
        for file in folder.iterdir():
            file.chmod(0o644)
    except OSError as error:
        raise ClusterError(f"Cannot use {folder}: {error.strerror}.") from error


if __name__ == "__main__":
    sys.exit(main())
