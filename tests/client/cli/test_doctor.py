"""`ottla doctor` on brokers that are well, on those that are not, and on what is none."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.client.cli.conftest import Ottla
from tests.client.scripted_broker import HANGUP, Reply, scripted_broker
from tests.kit.broker_process import BrokerProcess, MakeBroker
from tests.kit.coroutines import BOTH_LOOPS
from tests.kit.hosts import LOOPBACK
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

from ottla.client.admin.results import LogDirDescription, LogDirReplica
from ottla.client.cli.health.dialing import DialVerdict, dial
from ottla.client.cli.health.disks import disk_finding, stuck_finding
from ottla.client.cli.health.findings import Status
from ottla.client.cli.health.surroundings import KeptFree
from ottla.client.errors import KafkaStorageError
from ottla.client.net.settings import ClientSettings
from ottla.protocol.api import Api


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that nobody can listen on, and that nobody does."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_a_healthy_broker_has_nothing_to_change(ottla: Ottla, broker: BrokerProcess) -> None:
    """Exit code 0, and a line for all that was looked at; the disk is that of the machine, which may be full."""
    *items, disk = ottla("doctor", "--format", "json").items
    checks = [f"bootstrap server {broker.bootstrap}", f"broker 1 at {broker.bootstrap}", "controller", "ZooKeeper"]
    assert [item["check"] for item in items] == [*checks, "leaders", "replicas", "transactions", "clocks"]
    assert {(item["status"], item["advice"], item["change"]) for item in items} == {("ok", "", "")}
    assert disk["check"] == "disk of broker 1"
    assert disk["found"].startswith(f"{broker.log_dir}: ")

    shown = ottla("doctor")
    assert (shown.code, shown.err) == (0 if disk["status"] == "ok" else 1, "")
    assert shown.rows[1] == ["ok", "broker", "1", "at", broker.bootstrap, "speaks", "Kafka"]


def test_an_advertised_port_where_nothing_listens_is_found(ottla: Ottla, make_broker: MakeBroker) -> None:
    """With the line that mends it."""
    with closed_port() as port:
        broken = make_broker(f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}")
        shown = ottla("doctor", bootstrap=broken.bootstrap)
        items = ottla("doctor", "--format", "json", bootstrap=broken.bootstrap).items
    assert shown.code == 2
    assert ["BROKEN", "broker", "1", "at", f"127.0.0.1:{port}", "nothing", "listens", "there"] in shown.rows
    assert f"   advertised.listeners=PLAINTEXT://{broken.bootstrap}\n" in shown.out
    assert [item["change"] for item in items if item["check"] == f"broker 1 at 127.0.0.1:{port}"] == [
        f"advertised.listeners=PLAINTEXT://{broken.bootstrap}"
    ]


def test_only_the_listener_that_is_wrong_is_changed(ottla: Ottla, make_broker: MakeBroker) -> None:
    """A broker that brokers can reach, and clients cannot: the other listener stays as it is."""
    internal = LOOPBACK.free_port()
    external = LOOPBACK.free_port({internal})
    wrong = LOOPBACK.free_port({internal, external})
    names = f"INTERNAL://127.0.0.1:{internal},EXTERNAL://127.0.0.1:"
    broken = make_broker(
        f"listeners={names}{external}",
        f"advertised.listeners={names}{wrong}",
        "listener.security.protocol.map=INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
        "inter.broker.listener.name=INTERNAL",
    )
    assert broken.is_running
    shown = ottla("doctor", bootstrap=f"127.0.0.1:{external}")
    assert shown.code == 2
    assert f"   advertised.listeners={names}{external}\n" in shown.out
    assert ["ok", "controller", "broker", "1"] in shown.rows


def test_an_advertised_name_that_does_not_resolve_is_found(ottla: Ottla, make_broker: MakeBroker) -> None:
    """What a broker in a container says when nobody tells it better."""
    broken = make_broker("advertised.listeners=PLAINTEXT://broker.invalid:9092")
    shown = ottla("doctor", bootstrap=broken.bootstrap)
    assert shown.code == 2
    assert "the name does not resolve here" in shown.out
    assert f"   advertised.listeners=PLAINTEXT://{broken.bootstrap}\n" in shown.out
    # What the broker itself can be asked is looked at all the same.
    found = {
        item["check"]: item["status"] for item in ottla("doctor", "--format", "json", bootstrap=broken.bootstrap).items
    }
    assert {found[check] for check in ("ZooKeeper", "leaders", "replicas", "clocks")} == {"ok"}
    assert "cluster" not in found


def test_replicas_that_are_missing_are_a_warning_until_writers_are_refused(
    ottla: Ottla, make_broker: MakeBroker, zookeeper_server: ZooKeeperServer, topic: str
) -> None:
    """Exit code 1, then 2; both name the broker to start."""
    connect = ZooKeeper(zookeeper_server).connect
    first = make_broker(zookeeper=connect, broker_id=1)
    second = make_broker(zookeeper=connect, broker_id=2)
    at = first.bootstrap
    ottla("topic", "create", topic, "-r", "2", "-c", "min.insync.replicas=1", bootstrap=at)
    assert second.stop() == 0

    warned = ottla("doctor", bootstrap=at)
    assert warned.code == 1
    assert f"1 partitions are under-replicated: {topic}-0\n" in warned.out
    assert warned.out.endswith("replicas: Start broker 2.\n")
    ottla("topic", "alter", topic, "-c", "min.insync.replicas=2", bootstrap=at)
    assert "too few in sync for acks=all" in ottla("doctor", bootstrap=at).out
    assert ottla("doctor", bootstrap=at).code == 2


def test_ports_of_something_else_are_recognised(
    ottla: Ottla, broker: BrokerProcess, zookeeper_server: ZooKeeperServer
) -> None:
    """Metrics, ZooKeeper, and none at all; each with what to give instead."""
    http = ottla("doctor", bootstrap=f"127.0.0.1:{broker.http_port}")
    assert (http.code, "speaks HTTP, not Kafka" in http.out) == (2, True)
    zookeeper = ottla("doctor", bootstrap=zookeeper_server.connect)
    assert (zookeeper.code, "is ZooKeeper, not a broker" in zookeeper.out) == (2, True)
    assert zookeeper.out.endswith("   bootstrap.servers=127.0.0.1:9092\n")
    with closed_port() as port:
        nothing = ottla("doctor", bootstrap=f"127.0.0.1:{port}")
    assert (nothing.code, "nothing listens there" in nothing.out) == (2, True)
    unknown = ottla("doctor", bootstrap="broker.invalid:9092")
    assert (unknown.code, "the name does not resolve here" in unknown.out) == (2, True)
    assert ottla("doctor", bootstrap="a:b:c").code == 2


def test_tls_to_a_plaintext_port_is_recognised(ottla: Ottla) -> None:
    """With the protocol that the client should have."""
    shown = ottla("doctor", "-X", "security.protocol=SSL")
    assert (shown.code, "speaks plaintext, and we speak TLS" in shown.out) == (2, True)
    assert shown.out.endswith("   security.protocol=PLAINTEXT\n")


def test_plaintext_to_a_tls_port_is_recognised(ottla: Ottla) -> None:
    """Also where the handshake fails: a server without a certificate refuses it as TLS does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def serve() -> None:
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            with accepted:
                accepted.settimeout(10)
                try:
                    context.wrap_socket(accepted, server_side=True)
                except OSError:
                    continue

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        shown = ottla("doctor", bootstrap=f"127.0.0.1:{listener.getsockname()[1]}")
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)
    assert (shown.code, "speaks TLS, and we speak plaintext" in shown.out) == (2, True)
    assert shown.out.endswith("   security.protocol=SSL\n")


@BOTH_LOOPS
async def test_a_broker_that_hangs_up_behind_its_versions_wants_sasl() -> None:
    """As Kafka does with who should have authenticated."""

    async def answer(api: Api, version: int, request: Any) -> Reply:
        return HANGUP

    async with scripted_broker(answer) as broker:
        assert (await dial(broker.address, ClientSettings())).verdict is DialVerdict.SASL


@pytest.mark.parametrize(
    ("log_dir", "status"),
    [
        (LogDirDescription(1, "/data", 1000, 100, ()), Status.OK),
        (LogDirDescription(1, "/data", 1000, 99, ()), Status.WARNING),
        (LogDirDescription(1, "/data", None, None, ()), Status.OK),
        (LogDirDescription(1, "/data", None, None, (), KafkaStorageError("/data")), Status.BROKEN),
    ],
)
def test_disks_are_judged_by_what_is_free(log_dir: LogDirDescription, status: Status) -> None:
    """A tenth of it is the least."""
    assert disk_finding(log_dir).status is status


def test_a_disk_with_less_than_is_kept_free_is_full() -> None:
    """The broker refuses records then, whatever share of a small disk is free; sizes have units that say something."""
    found = disk_finding(LogDirDescription(1, "/data", 48 << 20, 12 << 20, ()), KeptFree(64 << 20, 1.0))
    assert found.status is Status.BROKEN
    assert "12.0 MiB of 48.0 MiB free" in found.found
    assert "ottla.log.min.free.bytes keeps 64.0 MiB" in found.found
    assert disk_finding(LogDirDescription(1, "/data", 0, 0, ())).status is Status.BROKEN


def test_a_disk_is_judged_by_the_larger_of_bytes_and_percent_and_its_largest_topics_are_named() -> None:
    """What to trim is what helps most."""
    replicas = tuple(
        LogDirReplica(topic, partition, size << 20, 0, is_future=False)
        for topic, partition, size in (("small", 0, 1), ("orders", 0, 20), ("orders", 1, 20), ("views", 0, 30))
    )
    found = disk_finding(LogDirDescription(1, "/data", 100 << 20, 4 << 20, replicas), KeptFree(1 << 20, 5.0))

    assert "ottla.log.min.free.percent keeps 5.0 MiB" in found.found
    assert "Largest topics: orders (40.0 MiB), views (30.0 MiB), small (1.0 MiB)." in found.advice
    assert found.change == "ottla topic alter orders -c retention.bytes=BYTES"


@pytest.mark.parametrize(
    ("holder", "value", "said", "change"),
    [
        ("future timestamp", "4102444800000", "from 2", "ottla topic trim orders --offset 7 --partition 0"),
        ("lagging follower", "-1", "broker 3 lacks its records", "ottla topic describe orders"),
        ("open transaction", "5", "a transaction is open from offset 5", "ottla transaction find-hanging"),
    ],
)
def test_a_segment_that_cannot_be_deleted_is_named_with_the_reason(
    holder: str, value: str, said: str, change: str
) -> None:
    """With its file, its bytes, and what to do."""
    segment = {
        "topic": "orders",
        "partition": 0,
        "path": "/data/orders-0/00000000000000000000.log",
        "next_offset": "7",
        "held_bytes": str(3 << 20),
        "holder": holder,
        "value": value,
        "lagging_brokers": [3] if holder == "lagging follower" else [],
    }
    found = stuck_finding(1, segment)

    assert found.found.startswith("/data/orders-0/00000000000000000000.log holds back 3.0 MiB: ")
    assert said in found.found
    assert found.change == change
