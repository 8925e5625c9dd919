"""Two brokers of Apache Kafka 3.9.1 and a ZooKeeper on loopback, each listener behind a proxy.

The jars are looked for in `libs` below $OTTLA_KAFKA_HOME, by default ~/.cache/ottla/kafka-3.9.1. To fill it,
put a `pom.xml` there with the dependencies org.apache.kafka:kafka_2.13:3.9.1, org.apache.kafka:kafka-tools:3.9.1
and org.slf4j:slf4j-reload4j:1.7.36, and run `mvn dependency:copy-dependencies -DoutputDirectory=libs`.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

KAFKA_HOME = Path(os.environ.get("OTTLA_KAFKA_HOME", Path.home() / ".cache/ottla/kafka-3.9.1"))
# Part of what brokers tell their clients, so the path must say nothing about the machine.
LOG_DIRS = Path("/tmp/kafka-logs")  # noqa: S108 - in a container of its own
BROKERS = (1, 2)
START_SECONDS_MAX = 90
# Below the ports that systems use for outgoing connections.
PORTS = iter(range(21_000, 32_000))

LOG4J = """\
log4j.rootLogger=INFO, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
ZOOKEEPER = """\
dataDir={folder}/zookeeper
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
maxClientCnxns=0
"""
BROKER = """\
broker.id={id}
zookeeper.connect=127.0.0.1:{zookeeper}
listeners=CLIENT://127.0.0.1:{client},SECURE://127.0.0.1:{secure},BROKER://127.0.0.1:{broker}
advertised.listeners=CLIENT://127.0.0.1:{client_proxy},SECURE://127.0.0.1:{secure_proxy},BROKER://127.0.0.1:{broker_proxy}
listener.security.protocol.map=CLIENT:PLAINTEXT,SECURE:SASL_PLAINTEXT,BROKER:PLAINTEXT
inter.broker.listener.name=BROKER
inter.broker.protocol.version={version}
log.message.format.version={version}
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
listener.name.secure.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
 user_admin="admin-secret";
listener.name.secure.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
delegation.token.secret.key=recorded
authorizer.class.name=kafka.security.authorizer.AclAuthorizer
super.users=User:ANONYMOUS;User:admin
allow.everyone.if.no.acl.found=true
log.dirs={log_dirs}/{id}a,{log_dirs}/{id}b
default.replication.factor=2
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
controlled.shutdown.retry.backoff.ms=200
"""


class OpenProxy(Protocol):
    """Opens a proxy in front of a port and gives the proxy's port."""

    def __call__(self, upstream_port: int, client: str = "") -> int:
        """Record for `client`, or for the client that is on."""


def free_port() -> int:
    """Find a port that nobody listens on, and that no outgoing connection will take meanwhile."""
    for port in PORTS:
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise RuntimeError("every port is taken")


def java_command(*arguments: str, heap_mb: int = 256) -> list[str]:
    """Give the command line of a Java program out of Kafka's jars."""
    classpath = str(KAFKA_HOME / "libs" / "*")
    return ["java", f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath, *arguments]


class Cluster:
    """Starts on entry, and leaves neither processes nor files behind."""

    def __init__(self, open_proxy: OpenProxy, inter_broker: str, inter_broker_version: str = "3.9") -> None:
        """Plan the ports; a proxy belongs to its broker also while that is down."""
        if not list(KAFKA_HOME.glob("libs/kafka_*.jar")):
            raise FileNotFoundError(f"no jars of Kafka in {KAFKA_HOME}/libs: {__doc__}")
        self._zookeeper_port = free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._properties: dict[int, str] = {}
        self._open_folder = tempfile.TemporaryDirectory(prefix="record-frames-")
        self.folder = Path(self._open_folder.name)
        client_proxies, secure_proxies = [], []
        for broker_id in BROKERS:
            client, secure, broker = free_port(), free_port(), free_port()
            client_proxies.append(open_proxy(client))
            secure_proxies.append(open_proxy(secure))
            properties = BROKER.format(
                id=broker_id,
                log_dirs=LOG_DIRS,
                version=inter_broker_version,
                zookeeper=self._zookeeper_port,
                client=client,
                secure=secure,
                broker=broker,
                client_proxy=client_proxies[-1],
                secure_proxy=secure_proxies[-1],
                broker_proxy=open_proxy(broker, inter_broker),
            )
            self._properties[broker_id] = properties
        self.bootstrap = f"127.0.0.1:{client_proxies[0]}"
        self.secure_bootstrap = f"127.0.0.1:{secure_proxies[0]}"

    def __enter__(self) -> Self:
        """Start everything and wait until it serves."""
        LOG_DIRS.mkdir()
        (self.folder / "log4j.properties").write_text(LOG4J)
        configuration = self.folder / "zookeeper.properties"
        configuration.write_text(ZOOKEEPER.format(folder=self.folder, port=self._zookeeper_port))
        try:
            main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
            self._start("zookeeper", main_class, configuration, "PrepRequestProcessor (sid:0) started")
            for broker_id in BROKERS:
                self.start_broker(broker_id)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the brokers, then ZooKeeper."""
        for name in reversed(list(self._processes)):
            self._stop(name)
        shutil.rmtree(LOG_DIRS)
        self._open_folder.cleanup()

    def start_broker(self, broker_id: int) -> None:
        """Start a broker and wait until it serves."""
        configuration = self.folder / f"broker-{broker_id}.properties"
        configuration.write_text(self._properties[broker_id])
        self._start(f"broker-{broker_id}", "kafka.Kafka", configuration, "started (kafka.server.KafkaServer)")

    def stop_broker(self, broker_id: int) -> None:
        """Shut a broker down in the controlled way."""
        self._stop(f"broker-{broker_id}")

    def _start(self, name: str, main_class: str, configuration: Path, ready: str) -> None:
        log_file = self.folder / f"{name}.log"
        log4j = f"-Dlog4j.configuration=file:{self.folder}/log4j.properties"
        with log_file.open("wb") as out:
            command = java_command(log4j, main_class, str(configuration), heap_mb=512)
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=self.folder)
        self._processes[name] = process
        until = time.monotonic() + START_SECONDS_MAX
        while ready not in log_file.read_text(errors="replace"):
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{name} does not start:\n{log_file.read_text(errors='replace')[-4000:]}")
            time.sleep(0.1)

    def _stop(self, name: str) -> None:
        process = self._processes.pop(name)
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
