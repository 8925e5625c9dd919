"""The adapter, against a real server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from tests.broker.sessions import TIMEOUT_S, Connect, expire, session
from tests.kit.zookeeper import ZooKeeper as Ensemble

from ottla.broker.cluster.operations import (
    BadVersionError,
    Check,
    Create,
    Delete,
    MultiError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    SetData,
    ZooKeeperError,
    ZooKeeperUnavailableError,
)
from ottla.broker.cluster.zookeeper import SessionState


def test_paths_are_below_the_chroot(zookeeper: Ensemble, connect: Connect) -> None:
    """The chroot is made at the start, and everything of the cluster is in it."""
    connect().create("/a", b"1")
    root = session(zookeeper.server.connect)
    root.start()
    try:
        assert root.read(f"{zookeeper.chroot}/a").data == b"1"
    finally:
        root.close()


def test_errors_of_single_calls_have_types(connect: Connect) -> None:
    """Each refusal of ZooKeeper is an exception of its own."""
    zookeeper = connect()
    zookeeper.create("/a", b"1")
    with pytest.raises(NodeExistsError):
        zookeeper.create("/a")
    with pytest.raises(NoNodeError):
        zookeeper.create("/b/c")
    with pytest.raises(NoNodeError):
        zookeeper.read("/b")
    with pytest.raises(NoNodeError):
        zookeeper.delete("/b")
    with pytest.raises(BadVersionError):
        zookeeper.write("/a", b"2", version=7)
    zookeeper.create("/a/b")
    with pytest.raises(NotEmptyError):
        zookeeper.delete("/a")


def test_a_write_is_conditional_on_the_version(connect: Connect) -> None:
    """The version counts writes, and a write names the one that it replaces."""
    zookeeper = connect()
    created = zookeeper.create("/a", b"0")
    assert created.version == 0
    assert zookeeper.write("/a", b"1", version=0).version == 1
    node = zookeeper.read("/a")
    assert (node.data, node.stat.version, node.stat.czxid) == (b"1", 1, created.czxid)


def test_a_multi_does_all_or_nothing(connect: Connect) -> None:
    """One failing operation is named, and the others are not done."""
    zookeeper = connect()
    zookeeper.create("/a", b"0")
    with pytest.raises(MultiError) as caught:
        zookeeper.multi([Create("/b"), SetData("/a", b"1", 5), Delete("/a")])
    assert caught.value.index == 1
    assert isinstance(caught.value.reason, BadVersionError)
    assert zookeeper.exists("/b") is None

    results = zookeeper.multi([Check("/a", 0), Create("/b"), SetData("/b", b"x", 0), Delete("/a")])
    assert results[2] is not None
    assert results[2].version == 1
    assert results[2].czxid > 0
    assert zookeeper.children("/") == ["b"]


def test_many_calls_answer_in_order_and_by_themselves(connect: Connect) -> None:
    """More calls than may be under way at once; some fail."""
    zookeeper = connect()
    outcomes = zookeeper.multi_many([[Create(f"/n{index // 2}", str(index).encode())] for index in range(100)])
    assert [isinstance(outcome, MultiError) for outcome in outcomes] == [index % 2 == 1 for index in range(100)]
    nodes = zookeeper.read_many([f"/n{index}" for index in range(60)])
    assert [node and node.data for node in nodes[:3]] == [b"0", b"2", b"4"]
    assert nodes[50:] == [None] * 10


def test_a_watch_is_called_once_however_often_it_is_set(connect: Connect) -> None:
    """Equal watches on one node are one."""
    zookeeper, other = connect(), connect()
    zookeeper.create("/a")
    calls: list[int] = []
    seen = threading.Semaphore(0)

    def watch() -> None:
        calls.append(1)
        seen.release()

    zookeeper.read("/a", watch)
    zookeeper.read("/a", watch)
    marker = threading.Event()
    zookeeper.exists("/b", marker.set)
    other.write("/a", b"1")
    other.create("/b")
    assert seen.acquire(timeout=TIMEOUT_S)
    assert marker.wait(TIMEOUT_S)
    assert len(calls) == 1


def test_paths_are_made_with_their_parents_as_far_as_they_are_missing(connect: Connect) -> None:
    """What is there stays as it is, and a path may be named twice."""
    zookeeper = connect()
    zookeeper.create("/a", b"kept")

    zookeeper.ensure_paths(["/a/b/c", "/d", "/a/b", "/d"])

    assert zookeeper.read("/a").data == b"kept"
    assert [zookeeper.exists(path) is not None for path in ("/a/b", "/a/b/c", "/d")] == [True] * 3


def test_a_path_is_made_also_if_its_parent_was_sent_late(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost connection has the parent sent again, behind its child."""
    zookeeper = connect()
    call_many = zookeeper._call_many

    def backwards(submits: Sequence[Any], paths: Sequence[str]) -> list[Any]:
        return call_many(submits[::-1], paths[::-1])[::-1]

    monkeypatch.setattr(zookeeper, "_call_many", backwards)

    zookeeper.ensure_paths(["/a/b/c"])

    assert zookeeper.exists("/a/b/c") is not None


def test_a_path_that_cannot_be_made_is_an_error(connect: Connect) -> None:
    """An ephemeral node has no children."""
    zookeeper = connect()
    zookeeper.create("/mine", ephemeral=True)

    with pytest.raises(ZooKeeperError):
        zookeeper.ensure_paths(["/mine/child"])


def test_children_are_watched_and_sequential_nodes_numbered(connect: Connect) -> None:
    """A sequential node has ten digits, and the parent's watch tells of it."""
    zookeeper = connect()
    zookeeper.ensure_path("/config/changes")
    told = threading.Event()
    assert zookeeper.children("/config/changes", told.set) == []
    path = connect().create_sequential("/config/changes/config_change_", b"x")
    assert path == "/config/changes/config_change_0000000000"
    assert told.wait(TIMEOUT_S)
    assert zookeeper.children("/config/changes") == ["config_change_0000000000"]


def test_after_expiry_nothing_works_until_the_session_is_renewed(connect: Connect) -> None:
    """Ephemeral nodes are gone, calls fail, and a new session has a new id."""
    zookeeper, other = connect(), connect()
    stat = zookeeper.create("/mine", ephemeral=True)
    session_id = zookeeper.session_id
    assert stat.ephemeral_owner == session_id
    expire(zookeeper)

    assert other.exists("/mine") is None
    with pytest.raises(SessionExpiredError):
        zookeeper.read("/mine")
    with pytest.raises(SessionExpiredError):
        zookeeper.read_many(["/mine"])
    zookeeper.renew_session()
    assert zookeeper.state is SessionState.CONNECTED
    assert zookeeper.session_id not in (0, session_id)
    assert zookeeper.create("/mine", ephemeral=True).ephemeral_owner == zookeeper.session_id


def test_an_ensemble_that_does_not_answer_is_named() -> None:
    """The error says where nobody answered, and what to check."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        zookeeper = session(f"127.0.0.1:{port}", connection_timeout_ms=300)
        with pytest.raises(ZooKeeperUnavailableError, match=rf"127\.0\.0\.1:{port}.*zookeeper\.connect"):
            zookeeper.start()
