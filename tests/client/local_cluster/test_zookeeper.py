"""The embedded ZooKeeper, with a real client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

from ottla.client.local_cluster.zookeeper import SESSION_MS_MAX, SESSION_MS_MIN, four_letter_word, is_serving


@contextmanager
def client(connect: str) -> Iterator[KazooClient]:
    """A client that is connected, and closed at the end of the block."""
    kazoo = KazooClient(connect, timeout=6)
    try:
        kazoo.start(timeout=30)
        yield kazoo
    finally:
        kazoo.stop()
        kazoo.close()


def test_the_shared_server_gives_each_test_its_own_path(
    zookeeper: ZooKeeper, zookeeper_server: ZooKeeperServer
) -> None:
    """What is written below one chroot is not seen below another."""
    other = ZooKeeper(zookeeper_server)
    assert zookeeper.connect == zookeeper_server.connect + zookeeper.chroot
    with client(zookeeper_server.connect) as kazoo:
        assert not kazoo.exists(zookeeper.chroot)
        kazoo.create(zookeeper.chroot)

        assert not kazoo.exists(other.chroot)
        with client(zookeeper.connect) as mine:
            assert mine.get_children("/") == []


def test_the_session_timeout_of_a_broker_is_granted(zookeeper_server: ZooKeeperServer) -> None:
    """From a second for tests to a minute."""
    config = four_letter_word(zookeeper_server.host, zookeeper_server.port, b"conf").decode()

    assert f"minSessionTimeout={SESSION_MS_MIN}\n" in config
    assert f"maxSessionTimeout={SESSION_MS_MAX}\n" in config
    assert SESSION_MS_MIN <= 6_000 <= SESSION_MS_MAX


def test_data_outlives_a_stop_and_a_kill(tmp_path: Path, zookeeper_server: ZooKeeperServer) -> None:
    """The server comes back with its nodes on its port, and answers `srvr` only while it runs."""
    server = ZooKeeperServer(tmp_path)
    assert server.port != zookeeper_server.port
    try:
        server.start()
        assert b"Mode: standalone" in four_letter_word(server.host, server.port, b"srvr")
        with client(server.connect) as kazoo:
            kazoo.create("/kept", b"value")
        server.stop()
        assert not is_serving(server.host, server.port)

        server.start()
        with client(server.connect) as kazoo:
            kazoo.set("/kept", b"changed")
        server.kill()

        server.start()
        with client(server.connect) as kazoo:
            assert kazoo.get("/kept")[0] == b"changed"
    finally:
        server.kill()
    stored = sum(file.stat().st_size for file in (tmp_path / "data").rglob("*") if file.is_file())
    assert stored < 1024 * 1024
