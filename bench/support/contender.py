"""What is measured: one broker or several, and ZooKeeper.

Ottla, Apache Kafka with the flags of its own scripts, and a bare broker that shows what client and machine allow.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from bench.support.bare_broker import BROKER_ID
from bench.support.bare_replicas import FOLLOWERS
from confluent_kafka import KafkaException, Producer
from tests.kit.broker_process import clean_environment
from tests.kit.guarded_process import GuardedProcess
from tests.kit.kafka_process import kafka_command

from ottla.client.local_cluster import zookeeper as embedded_zookeeper
from ottla.client.local_cluster.ports import free_port
from ottla.client.local_cluster.properties import write_properties

HOST = "127.0.0.1"
START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 60.0

# What both get: deleted topics must not fill the disk while the run goes on.
_PROPERTIES = {
    "num.partitions": "1",
    "log.segment.delete.delay.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
}


def _broker_name(broker: int) -> str:
    return f"broker-{broker}"


class Contender(ABC):
    """Brokers and their ZooKeeper, in a folder of their own, on free ports of the loopback interface.

    A topic has a replica on every broker, and one of them may be missing.
    """

    name: str

    def __init__(
        self,
        folder: Path,
        broker_count: int = 1,
        properties: Mapping[str, str] | None = None,
        protocols: Sequence[str] = ("PLAINTEXT",),
    ) -> None:
        """A broker has a listener for each protocol; others talk to it through the first, in the clear."""
        self.folder = folder
        folder.mkdir(parents=True)
        self.broker_count = broker_count
        self._properties = properties or {}
        self._processes: dict[str, GuardedProcess] = {}
        self._zookeeper_port = 0
        self._protocols = protocols
        # By broker id: the address of the first listener.
        self.addresses: dict[int, str] = {}
        # By protocol, the addresses of all brokers.
        self.listeners: dict[str, list[str]] = {}
        self._configs: dict[int, Path] = {}
        # What clients need to be let in.
        self.client_settings: dict[str, str] = {}

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(self.addresses.values())

    @property
    def broker_pids(self) -> dict[int, int]:
        """The pids of the brokers that run, by broker id."""
        return {
            broker: self._processes[_broker_name(broker)].pid
            for broker in self.addresses
            if _broker_name(broker) in self._processes
        }

    @property
    def pids(self) -> list[int]:
        """The pids of the brokers that run."""
        return list(self.broker_pids.values())

    def start(self) -> None:
        """Start ZooKeeper and the brokers, and wait until a record is acknowledged."""
        self.start_zookeeper()
        self.start_brokers()

    def start_zookeeper(self) -> float:
        """Start ZooKeeper and wait until it serves; return how long that took."""
        self._zookeeper_port = free_port(HOST)
        folder = self.folder / f"zookeeper-{uuid.uuid4().hex}"
        embedded_zookeeper.prepare(folder, HOST, self._zookeeper_port)
        begun = time.perf_counter()
        self._spawn("zookeeper", self._zookeeper_command(folder))
        if not self._processes["zookeeper"].comes_up(self._is_zookeeper_serving, START_SECONDS_MAX):
            raise self._not_started("zookeeper")
        return time.perf_counter() - begun

    def start_brokers(self) -> float:
        """Start brokers without data; return the time from their start to the first record that all acknowledge."""
        identity = uuid.uuid4().hex
        ports: set[int] = set()
        self.listeners = {protocol: [] for protocol in self._protocols}
        for broker in range(1, self.broker_count + 1):
            for addresses in self.listeners.values():
                ports.add(port := free_port(HOST, ports))
                addresses.append(f"{HOST}:{port}")
            self.addresses[broker] = self.listeners[self._protocols[0]][-1]
        configs = self._configs = {broker: self._write_config(broker, identity, ports) for broker in self.addresses}
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "linger.ms": 0,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 20,
                "topic.metadata.refresh.fast.interval.ms": 20,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 20,
                "log_level": 0,
            }
        )
        acknowledged: list[float] = []

        def note(error: object, _: object) -> None:
            if error is None:
                acknowledged.append(time.perf_counter())

        begun = time.perf_counter()
        for broker, config in configs.items():
            self._spawn(_broker_name(broker), self._broker_command(config))
        while not acknowledged:
            # While there is no broker the client keeps the record; while there is no topic it may give up on it, or
            # refuse it at once.
            try:
                producer.produce("first", b"record", on_delivery=note)
            except KafkaException:
                producer.poll(0.1)
            producer.flush(1.0)
            for name in map(_broker_name, configs):
                if self._processes[name].poll() is not None or time.perf_counter() > begun + START_SECONDS_MAX:
                    raise self._not_started(name)
        return acknowledged[0] - begun

    def kill_broker(self, broker: int) -> None:
        """End a broker with SIGKILL."""
        self._processes.pop(_broker_name(broker)).end(signal.SIGKILL)

    def restart_broker(self, broker: int) -> None:
        """Start a broker again that was killed, with its data."""
        self._spawn(_broker_name(broker), self._broker_command(self._configs[broker]))

    def stop(self) -> None:
        """Stop what runs, and remove the data."""
        self.stop_brokers()
        self.stop_zookeeper()
        shutil.rmtree(self.folder, ignore_errors=True)

    def stop_brokers(self) -> None:
        """Stop the brokers."""
        names = [_broker_name(broker) for broker in self.addresses]
        for name in names:
            if name in self._processes and self._processes[name].poll() is None:
                os.kill(self._processes[name].pid, signal.SIGTERM)
        for name in names:
            self._end(name)

    def stop_zookeeper(self) -> None:
        """Stop ZooKeeper."""
        self._end("zookeeper")

    @abstractmethod
    def _zookeeper_command(self, folder: Path) -> list[str]: ...

    @abstractmethod
    def _broker_command(self, config: Path) -> list[str]: ...

    @abstractmethod
    def _own_properties(self, ports: set[int]) -> dict[str, str]:
        """Return options; a port that is chosen here is added to those that are taken."""

    def _write_config(self, broker: int, identity: str, ports: set[int]) -> Path:
        replicas = str(self.broker_count)
        in_sync_min = str(max(1, self.broker_count - 1))
        properties = {
            **_PROPERTIES,
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync_min,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync_min,
            **self._own_properties(ports),
            **self._properties,
            "broker.id": str(broker),
            "listeners": ",".join(f"{protocol}://{all_[broker - 1]}" for protocol, all_ in self.listeners.items()),
            "zookeeper.connect": f"{HOST}:{self._zookeeper_port}/{identity}",
            "log.dirs": str(self.folder / f"data-{broker}-{identity}"),
        }
        config = self.folder / f"{broker}-{identity}.properties"
        write_properties(config, properties)
        return config

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _spawn(self, name: str, command: list[str]) -> None:
        self._processes[name] = GuardedProcess(command, self._log(name), clean_environment())

    def _is_zookeeper_serving(self) -> bool:
        return embedded_zookeeper.is_serving(HOST, self._zookeeper_port, embedded_zookeeper.READY_TIMEOUT_S)

    def _not_started(self, name: str) -> RuntimeError:
        said = self._log(name).read_text(errors="replace")[-2000:]
        return RuntimeError(f"{name} of {self.name} does not start:\n{said}")

    def _end(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            # One that takes no notice is killed.
            with suppress(subprocess.TimeoutExpired):
                process.end(signal.SIGTERM, STOP_SECONDS_MAX)


class Ottla(Contender):
    """Our broker, with the ZooKeeper that `ottla up` runs."""

    name = "ottla"

    def _zookeeper_command(self, folder: Path) -> list[str]:
        return embedded_zookeeper.command(folder)

    def _broker_command(self, config: Path) -> list[str]:
        return [sys.executable, "-P", "-m", "ottla.broker", "--config", str(config)]

    def _own_properties(self, ports: set[int]) -> dict[str, str]:
        ports.add(port := free_port(HOST, ports))
        return {"ottla.http.listener": f"{HOST}:{port}"}


class Bare(Ottla):
    """What a broker cannot do without, and nothing else: `bare_broker.py`, and with replicas `bare_replicas.py`.

    The ZooKeeper beside it has nothing to do. The first broker leads every partition, and alone speaks to clients.
    """

    name = "bare"

    @property
    def bootstrap(self) -> str:
        return self.addresses[BROKER_ID]

    def _broker_command(self, config: Path) -> list[str]:
        return [sys.executable, "-m", "bench.support.bare_replicas", str(config)]

    def _own_properties(self, ports: set[int]) -> dict[str, str]:
        return {FOLLOWERS: ",".join(address for broker, address in self.addresses.items() if broker != BROKER_ID)}


class ApacheKafka(Contender):
    """Apache Kafka 3.9.1 in ZooKeeper mode, with the heap and the collector that its start scripts choose."""

    name = "kafka"
    _COLLECTOR = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Djava.awt.headless=true")

    def _zookeeper_command(self, folder: Path) -> list[str]:
        config = str(folder / embedded_zookeeper.CONFIG_NAME)
        return self._command("512M", "org.apache.zookeeper.server.quorum.QuorumPeerMain", config)

    def _broker_command(self, config: Path) -> list[str]:
        return self._command("1G", "kafka.Kafka", str(config))

    def _own_properties(self, ports: set[int]) -> dict[str, str]:
        return {}

    def _command(self, heap: str, main_class: str, config: str) -> list[str]:
        java_options = [f"-Xmx{heap}", f"-Xms{heap}", *self._COLLECTOR]
        return kafka_command(main_class, config, java_options=java_options, log4j=self.folder / "log4j.properties")
