"""Try docker-compose.yml for real: build, start, use, harm and restart a cluster in containers. `make compose-test`.

It has a project, ports, volumes and images of its own, and removes them in the end, also when something fails; with
--keep they stay to be looked at. A few minutes, most of them for building.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TOPIC = "compose-test"
PARTITIONS = 6
HEALTHY_SECONDS_MAX = 300
RECORDS = 20_000
NEEDS = """This needs Docker: an engine that answers (`docker info`), and `docker compose` or docker-compose 1.29.
The images python:3.11-slim and zookeeper:3.9 must be there or can be pulled, and the build downloads Python packages.
"""


class FailedError(Exception):
    """A step did not come out as it must."""


def say(text: str) -> None:
    """Tell how far it is."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@contextmanager
def step(name: str) -> Iterator[None]:
    """Announce a step, and how long it took."""
    begun = time.monotonic()
    yield
    say(f"ok  {time.monotonic() - begun:6.1f} s  {name}")


def check(holds: bool, otherwise: str) -> None:
    """Raise FailedError unless something holds."""
    if not holds:
        raise FailedError(otherwise)


def wait_until(holds: Callable[[], bool], what: str, seconds_max: float = HEALTHY_SECONDS_MAX) -> None:
    """Ask again and again, for a limited time."""
    deadline = time.monotonic() + seconds_max
    while not holds():
        check(time.monotonic() < deadline, f"{what}: not within {seconds_max:.0f} s")
        time.sleep(0.5)


def run(command: Sequence[str], environment: dict[str, str] | None = None, *, timeout: float = 1800) -> str:
    """Run a command; return what it printed, or raise FailedError with what it said."""
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )
    check(
        done.returncode == 0, f"{' '.join(command)}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}"
    )
    return done.stdout


def compose_command() -> list[str] | None:
    """Find compose, version 2 first; COMPOSE says otherwise. None without an engine."""
    candidates = (
        [os.environ["COMPOSE"].split()] if "COMPOSE" in os.environ else [["docker", "compose"], ["docker-compose"]]
    )
    if (
        shutil.which("docker") is None
        or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode
    ):
        return None
    for candidate in candidates:
        if shutil.which(candidate[0]) is not None:
            answer = subprocess.run([*candidate, "version", "--short"], capture_output=True, text=True, check=False)
            if not answer.returncode:
                say(f"{' '.join(candidate)} {answer.stdout.strip()}")
                return candidate
    return None


def free_ports(count: int) -> list[str]:
    """Return ports that nobody has at the moment."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [str(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Cluster:
    """The containers of this test."""

    project = "ottla-compose-test"
    profiles: tuple[str, ...] = ()
    services: tuple[str, ...] = ("zookeeper", "broker-1", "broker-2", "broker-3", "console")
    # What the ports on this host are set by: of brokers for clients, of brokers for metrics, of the console.
    port_variables: tuple[str, ...] = (
        *(f"OTTLA_PORT_{i}" for i in (1, 2, 3)),
        *(f"OTTLA_HTTP_PORT_{i}" for i in (1, 2, 3)),
        "OTTLA_CONSOLE_PORT",
    )

    def __init__(self, compose: Sequence[str]) -> None:
        names = self.port_variables
        ports = free_ports(len(names))
        self.image = f"{self.project}:{os.getpid()}"
        self.client_options = {"bootstrap.servers": ",".join(f"localhost:{port}" for port in ports[:3])}
        self.metrics = [f"http://localhost:{port}/metrics" for port in ports[3:6]]
        self.console = f"http://localhost:{ports[-1]}"
        self._environment = os.environ | dict(zip(names, ports, strict=True)) | {"OTTLA_IMAGE": self.image}
        profiles = [f"--profile={profile}" for profile in self.profiles]
        self._compose = [*compose, "--project-name", self.project, "--file", "docker-compose.yml", *profiles]

    def up(self) -> None:
        """Start what is not running, and wait until it is healthy."""
        self.compose("up", "--detach", *self.services)
        self.wait_healthy()

    def compose(self, *arguments: str) -> str:
        """Run compose."""
        return run([*self._compose, *arguments], self._environment)

    def ottla(self, *arguments: str) -> str:
        """Run our command line in the container of broker 1."""
        return self.compose("exec", "-T", self.services[1], "ottla", *arguments)

    def container(self, service: str) -> str:
        """Return the id of a service's container, also when it has stopped."""
        label = f"label=com.docker.compose.project={self.project}"
        service_label = f"label=com.docker.compose.service={service}"
        return run(["docker", "ps", "--all", "--quiet", "--filter", label, "--filter", service_label]).strip()

    def inspected(self, service: str, what: str) -> str:
        """Return something that Docker knows of a service's container."""
        return run(["docker", "inspect", "--format", "{{" + what + "}}", self.container(service)]).strip()

    def wait_healthy(self, *services: str) -> None:
        """Wait until the health checks of services pass."""
        wanted = services or self.services

        def is_well() -> bool:
            return all(self.inspected(service, ".State.Health.Status") == "healthy" for service in wanted)

        wait_until(is_well, f"{', '.join(wanted)} healthy")

    def wait_in_sync(self) -> None:
        """Wait until all replicas of all partitions are in sync."""

        def is_well() -> bool:
            try:
                return self.ottla("check", "health").startswith("OK")
            except FailedError:
                return False

        wait_until(is_well, "all replicas in sync")

    def say_why(self) -> None:
        """Show what the health checks and the services said last."""
        for service in self.services:
            if self.container(service):
                say(f"{service}: {self.inspected(service, 'json .State.Health')[-1000:]}")
        for line in self.compose("logs", "--no-color", "--tail", "40").splitlines():
            say(line[:400])

    def remove(self) -> None:
        """Remove containers, network, volumes and image."""
        self.compose("down", "--volumes", "--remove-orphans")
        run(["docker", "image", "rm", "--force", self.image])


class Load:
    """Produces numbered records from this host, with acks=all and idempotence, until it is told to stop."""

    def __init__(self, client_options: Mapping[str, str]) -> None:
        from confluent_kafka import Producer

        self._producer: Any = Producer(
            {
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 120_000,
                "log_level": 2,
                **client_options,
            }
        )
        self.acknowledged: set[int] = set()
        self.errors: list[str] = []
        self._numbers = itertools.count()
        self._stopping = threading.Event()

    def _send(self) -> None:
        number = next(self._numbers)

        def delivered(error: object, _message: object) -> None:
            if error is None:
                self.acknowledged.add(number)
            else:
                self.errors.append(str(error))

        self._producer.produce(TOPIC, b"%d" % number, key=b"%d" % (number % 100), on_delivery=delivered)
        self._producer.poll(0)

    def _run(self) -> None:
        while not self._stopping.wait(0.02):
            for _ in range(20):
                self._send()

    def produce(self, count: int) -> None:
        """Produce a number of records and wait for their acknowledgements."""
        for _ in range(count):
            self._send()
        self._producer.flush(120)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Go on producing while something happens; FailedError if a record is not acknowledged in the end."""
        before = len(self.acknowledged)
        self._stopping.clear()
        thread = threading.Thread(target=self._run, name="load", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()
            left = self._producer.flush(120)
        check(not self.errors and not left, f"{len(self.errors)} errors, {left} not delivered: {self.errors[:3]}")
        check(len(self.acknowledged) > before, "nothing was acknowledged meanwhile")

    def wait_for_more(self, count: int = 100) -> None:
        """Wait until that many further records are acknowledged."""
        goal = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= goal, f"{count} more records acknowledged", 90)


def consumed(client_options: Mapping[str, str], group: str) -> Counter[int]:
    """Read the topic from this host, from its beginning to its end, in a new group."""
    from confluent_kafka import Consumer, KafkaError

    consumer: Any = Consumer(
        {
            **client_options,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    found: Counter[int] = Counter()
    ended: set[int] = set()
    deadline = time.monotonic() + 120
    try:
        consumer.subscribe([TOPIC])
        while len(ended) < PARTITIONS:
            check(time.monotonic() < deadline, f"read {found.total()} records, and {len(ended)} partitions to the end")
            for message in consumer.consume(1000, timeout=1):
                error = message.error()
                if error is None:
                    found[int(message.value())] += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                else:
                    raise FailedError(str(error))
    finally:
        consumer.close()
    return found


def check_nothing_lost(cluster: Cluster, load: Load, group: str) -> None:
    """Every acknowledged record is there, once."""
    found = consumed(cluster.client_options, group)
    lost = load.acknowledged - found.keys()
    twice = [number for number, count in found.items() if count > 1]
    check(not lost, f"{len(lost)} acknowledged records are lost, such as {sorted(lost)[:5]}")
    check(not twice, f"{len(twice)} records are there twice, such as {twice[:5]}")


def page(url: str) -> bytes:
    """Return what a server in a container answers to the host."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        body: bytes = answer.read()
    return body


def use_from_host(cluster: Cluster, load: Load) -> None:
    """Produce and consume the first records."""
    with step(f"{RECORDS} records produced and consumed from the host with confluent-kafka"):
        cluster.ottla("topic", "create", TOPIC, "--partitions", str(PARTITIONS), "--replication-factor", "3")
        load.produce(RECORDS)
        check(len(load.acknowledged) == RECORDS, f"{len(load.acknowledged)} acknowledged: {load.errors[:3]}")
        check_nothing_lost(cluster, load, "first")


def use(cluster: Cluster, load: Load) -> None:
    """Produce and consume, from the host and in a container."""
    with step("metrics of all brokers from the host"):
        for url in cluster.metrics:
            check(b"kafka_server_replicamanager_leadercount" in page(url), f"{url} lacks the broker's metrics")
    use_from_host(cluster, load)
    with step("the console shows the cluster to the host"):
        check(b"<title>" in page(cluster.console), "the console has no page")
        overview = json.loads(page(f"{cluster.console}/api/v1/overview"))
        check(len(overview["brokers"]) == 3, f"the console knows the brokers {overview['brokers']}")
        listed = json.loads(page(f"{cluster.console}/api/v1/topics"))
        check(TOPIC in {topic["name"] for topic in listed["items"]}, f"the console lists the topics {listed['items']}")
    with step("produced and consumed with the command line inside a container"):
        cluster.ottla("topic", "produce", "inside", "one", "two", "three")
        read = cluster.ottla(
            "topic", "consume", "inside", "--offset", "start", "--exit", "-f", "%s\\n", "-b", "broker-3:19092"
        )
        check(sorted(read.split()) == ["one", "three", "two"], f"read {read!r}")


def kill_broker(cluster: Cluster, load: Load) -> None:
    """Kill a broker under load, and have it back; nothing may get lost."""
    broker = cluster.services[2]
    with step(f"{broker} killed under load: the others go on, it comes back, all replicas in sync"), load.running():
        load.wait_for_more()
        run(["docker", "kill", "--signal", "KILL", cluster.container(broker)])
        load.wait_for_more()
        cluster.compose("start", broker)
        cluster.wait_healthy(broker)
        cluster.wait_in_sync()
        load.wait_for_more()
    with step(f"nothing lost, nothing twice, of {len(load.acknowledged)} records"):
        check_nothing_lost(cluster, load, "after-kill")


def harm(cluster: Cluster, load: Load) -> None:
    """Kill a broker under load, restart ZooKeeper under load; nothing may get lost."""
    kill_broker(cluster, load)
    with step("ZooKeeper restarted under load"), load.running():
        load.wait_for_more()
        cluster.compose("restart", "zookeeper")
        cluster.wait_healthy()
        cluster.wait_in_sync()
        load.wait_for_more()
    check_nothing_lost(cluster, load, "after-restart")


def stop_and_start(cluster: Cluster, load: Load) -> None:
    """Stop in good order, remove the containers, and find the data again."""
    with step("stopped in good order"):
        cluster.compose("stop")
        codes = {service: cluster.inspected(service, ".State.ExitCode") for service in cluster.services[1:]}
        check(set(codes.values()) == {"0"}, f"exit codes {codes}")
    with step("down and up again: the data is there"):
        cluster.compose("down")
        cluster.up()
        cluster.wait_in_sync()
        check_nothing_lost(cluster, load, "after-down")
        check(cluster.ottla("group", "list").count("after-kill") == 1, "the groups are gone")


def try_all(cluster: Cluster) -> None:
    """All steps in turn."""
    build(cluster)
    with step("up and healthy"):
        cluster.up()
    load = Load(cluster.client_options)
    use(cluster, load)
    harm(cluster, load)
    stop_and_start(cluster, load)


def build(cluster: Cluster) -> None:
    """Build the image of brokers, which all of them share."""
    with step("built"):
        cluster.compose("build", cluster.services[1])
    size = int(run(["docker", "image", "inspect", "--format", "{{.Size}}", cluster.image]))
    say(f"              image of {size / 1e6:.0f} MB")


def main(kind: type[Cluster], steps: Callable[[Cluster], None]) -> int:
    """Run a test of a cluster; 0 when all is well, 1 when a step failed, 2 without Docker."""
    parser = argparse.ArgumentParser(description="Try docker-compose.yml for real.", epilog=NEEDS)
    parser.add_argument("--keep", action="store_true", help="leave the containers and volumes there in the end")
    options = parser.parse_args()
    compose = compose_command()
    if compose is None:
        sys.stderr.write(NEEDS)
        return 2
    cluster = kind(compose)
    try:
        steps(cluster)
    except (FailedError, subprocess.TimeoutExpired) as error:
        say(f"FAILED: {error}")
        cluster.say_why()
        return 1
    finally:
        if not options.keep:
            with step("removed"):
                cluster.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main(Cluster, try_all))
