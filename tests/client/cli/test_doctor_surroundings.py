"""What `ottla doctor` says of ZooKeeper and of clocks."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
from tests.client.cli.conftest import Ottla
from tests.kit.broker_process import BrokerProcess, MakeBroker
from tests.kit.zookeeper import ZooKeeperServer

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import BrokerDescription, ConfigDescription, ConfigResource
from ottla.client.cli.health.clocks import clock_finding, seconds_ahead
from ottla.client.cli.health.findings import Status
from ottla.client.cli.health.http_pages import page_url
from ottla.client.cli.health.surroundings import local_zookeeper, surroundings
from ottla.client.cli.health.zookeeper_check import Answer, Asked, ask, servers, zookeeper_finding
from ottla.client.errors import KafkaTimeoutError, error_for
from ottla.client.local_cluster.cluster_dir import ClusterDir
from ottla.client.local_cluster.record import ClusterRecord, ProcessRecord, Role
from ottla.client.net.settings import HostPort
from ottla.protocol.errors import ErrorCode

HOSTS = [HostPort(f"zookeeper{number}", 2181) for number in (1, 2, 3)]


@contextmanager
def server_that_says(answer: bytes) -> Iterator[HostPort]:
    """A port where the first visitor gets an answer to whatever it asks."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            accepted, _ = listener.accept()
            with accepted:
                accepted.recv(4096)
                accepted.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield HostPort(*listener.getsockname())
        thread.join(60)


def test_a_zookeeper_that_died_is_found_while_brokers_still_answer(
    ottla: Ottla, make_broker: MakeBroker, tmp_path: Path
) -> None:
    """With what to start, and where; before that, it is said to serve. The brokers' clocks are still known."""
    with ZooKeeperServer(tmp_path / "zookeeper") as server:
        broker = make_broker(zookeeper=f"{server.connect}/chroot")
        well = ottla("doctor", "--format", "json", bootstrap=broker.bootstrap)
    found = {item["check"]: item for item in well.items}
    assert found["ZooKeeper"]["found"] == f"{server.connect} serves as standalone"
    assert found["clocks"]["found"] == "broker 1 and this host agree"

    broken = ottla("doctor", bootstrap=broker.bootstrap)
    assert broken.code == 2
    assert ["BROKEN", "ZooKeeper", server.connect, "nothing", "listens", "there"] in broken.rows
    assert f"On the host of {server.connect}:\n   bin/zkServer.sh start\n" in broken.out
    assert ["ok", "clocks", "broker", "1", "and", "this", "host", "agree"] in broken.rows


def test_without_the_brokers_options_the_user_is_asked_for_zookeeper(
    ottla: Ottla, make_broker: MakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZooKeeper is paused, and the broker still takes it for alive, so it waits before it describes its options."""
    monkeypatch.setattr("ottla.client.cli.health.surroundings._TIMEOUT_S", 0.5)
    with ZooKeeperServer(tmp_path / "zookeeper") as server:
        broker = make_broker("zookeeper.session.timeout.ms=60000", zookeeper=f"{server.connect}/chroot")
        server.pause()
        unknown = ottla("doctor", "-X", "socket.connection.setup.timeout.ms=3000", bootstrap=broker.bootstrap)
        server.resume()
    assert "   ottla doctor --zookeeper HOST:2181\n" in unknown.out
    assert unknown.code == 1


async def test_a_broker_that_loses_zookeeper_while_it_is_asked_does_not_count_as_one_without() -> None:
    """Brokers of Apache Kafka 4 have no ZooKeeper, and nothing is said about it."""

    class Brokers:
        def __init__(self, code: ErrorCode) -> None:
            self.code = code

        async def describe_configs(self, resources: list[ConfigResource], **_: object) -> list[ConfigDescription]:
            error = error_for(self.code, "") if self.code else None
            return [ConfigDescription("BROKER", each.name, (), error) for each in resources]

    broker = BrokerDescription(1, "localhost", 9092, None)
    assert await surroundings(cast(Admin, Brokers(ErrorCode.NONE)), [broker]) == ({}, {})
    with pytest.raises(KafkaTimeoutError, match="broker 1 could not read its options"):
        await surroundings(cast(Admin, Brokers(ErrorCode.REQUEST_TIMED_OUT)), [broker])


def test_zookeeper_is_asked_where_the_user_says(ottla: Ottla, zookeeper_server: ZooKeeperServer) -> None:
    """Also when no broker answers; what is no address is said to be none."""
    alone = ottla("doctor", "--zookeeper", zookeeper_server.connect, bootstrap="127.0.0.1:1")
    assert (alone.code, f"{zookeeper_server.connect} serves" in alone.out) == (2, True)
    wrong = ottla("doctor", "--zookeeper", "a:b:c")
    assert (wrong.code, "   zookeeper.connect=HOST:2181\n" in wrong.out) == (2, True)


def test_a_broker_is_no_zookeeper(ottla: Ottla, broker: BrokerProcess) -> None:
    """Nor is another server; the line to change is shown."""
    shown = ottla("doctor", "--zookeeper", broker.http.removeprefix("http://"))
    assert (shown.code, "is not ZooKeeper" in shown.out) == (2, True)
    assert "   zookeeper.connect=HOST:2181\n" in shown.out


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"Zookeeper version: 3.9.3\nMode: follower\nNode count: 5\n", Answer.SERVES),
        (b"This ZooKeeper instance is not currently serving requests\n", Answer.NO_QUORUM),
        (b"srvr is not executed because it is not in the whitelist.\n", Answer.SERVES),
        (b"HTTP/1.0 400 Bad Request\r\n\r\n", Answer.NOT_ZOOKEEPER),
        (b"", Answer.NOT_ZOOKEEPER),
    ],
)
async def test_answers_of_zookeeper_are_understood(said: bytes, answer: Answer) -> None:
    """Of one that serves, of one without a quorum, of one that is shy, and of something else."""
    with server_that_says(said) as address:
        assert (await ask(address)).answer is answer


def test_an_ensemble_serves_while_most_of_it_does() -> None:
    """One of three may be missing, which is a warning; two are too many."""

    def judged(*answers: Answer) -> Status:
        asked = [Asked(host, answer) for host, answer in zip(HOSTS, answers, strict=False)]
        return zookeeper_finding("zookeeper1", asked).status

    serves, refused, unseen = Answer.SERVES, Answer.REFUSED, Answer.UNSEEN
    assert judged(serves, serves, serves) is Status.OK
    assert judged(serves, refused, serves) is Status.WARNING
    assert judged(refused, refused, serves) is Status.BROKEN
    assert judged(Answer.NO_QUORUM, refused, refused) is Status.BROKEN
    assert judged(unseen, unseen, unseen) is Status.WARNING
    assert judged(refused) is Status.BROKEN
    assert judged(Answer.SILENT) is Status.BROKEN
    assert judged(serves, Answer.NOT_ZOOKEEPER) is Status.BROKEN
    local = zookeeper_finding("127.0.0.1", [Asked(HOSTS[0], refused)], is_local=True)
    assert local.change == "ottla up --detach"


def test_connect_strings_are_read_as_brokers_read_them() -> None:
    """With a path, and without a port."""
    assert servers("zookeeper1, zookeeper2:2182/kafka") == [HostPort("zookeeper1", 2181), HostPort("zookeeper2", 2182)]


def test_the_zookeeper_of_a_cluster_of_this_machine_is_known(tmp_path: Path) -> None:
    """When none of its brokers answers; not where the address is that of another cluster."""
    bootstrap = [HostPort("localhost", 9092)]
    assert local_zookeeper(tmp_path, bootstrap) is None
    broker = ProcessRecord(role=Role.BROKER, id=1, host="127.0.0.1", port=9092, log="broker.log")
    record = ClusterRecord(zookeeper_connect="127.0.0.1:2181", base_port=9092, http_base_port=0, processes=(broker,))
    ClusterDir(tmp_path).write(record)
    assert local_zookeeper(tmp_path, bootstrap) == "127.0.0.1:2181"
    assert local_zookeeper(tmp_path, [HostPort("localhost", 9192)]) is None


def test_a_clock_is_read_from_a_page(broker: BrokerProcess) -> None:
    """A real broker's is ours; one that is said to be elsewhere in time is so much off."""
    url = page_url(broker.http.removeprefix("http://"), "unused", "/health/live")
    now = seconds_ahead(url)
    assert now is not None
    assert abs(now) < 3
    with server_that_says(b"HTTP/1.0 200 OK\r\nDate: Thu, 01 Jan 1970 00:16:40 GMT\r\n\r\n") as address:
        assert seconds_ahead(f"http://{address}/health/live", lambda: 900.0) == 100.5
    with server_that_says(b"HTTP/1.0 200 OK\r\n\r\n") as address:
        assert seconds_ahead(f"http://{address}/health/live") is None
    assert seconds_ahead("http://127.0.0.1:1/") is None


def test_clocks_that_differ_are_a_warning() -> None:
    """It says whose; and where no clock can be seen, that it could not be compared."""
    assert clock_finding({1: 0.4, 2: -1.2}).status is Status.OK
    unseen = clock_finding({1: None, 2: None})
    assert (unseen.status, unseen.found) == (
        Status.OK,
        "not compared: brokers 1, 2 (no HTTP response)",
    )
    one = clock_finding({1: 0.1, 2: 73.2, 3: None})
    assert one.status is Status.WARNING
    assert one.found.startswith("broker 2 is 73 s ahead of this host; not compared: broker 3")
    assert "the host of broker 2:" in one.advice
    assert one.change == "sudo timedatectl set-ntp true"
    ours = clock_finding({1: -60.0, 2: -61.0})
    assert "broker 1 is 60 s behind this host" in ours.found
    assert "the clock of this host:" in ours.advice


def test_pages_are_where_clients_find_the_broker() -> None:
    """If it listens everywhere."""
    assert page_url("0.0.0.0:9644", "broker1", "/metrics") == "http://broker1:9644/metrics"
    assert page_url("127.0.0.1:9644", "broker1", "/metrics") == "http://127.0.0.1:9644/metrics"
