"""The election of controllers, and the fence around their writes, against a real ZooKeeper."""

from __future__ import annotations

import threading

import pytest
from tests.broker.sessions import NOW_MS, TIMEOUT_S, Connect

from ottla.broker.cluster import znodes
from ottla.broker.cluster.operations import (
    BadVersionError,
    Create,
    MultiError,
    NodeExistsError,
    NoNodeError,
    Operation,
    SetData,
)
from ottla.broker.cluster.zookeeper import ZooKeeper
from ottla.broker.controller.election import ControllerMovedError, Elected, Fence, elect


def nothing() -> None:
    """Watch nothing."""


def test_the_first_controller_has_epoch_1(connect: Connect) -> None:
    """The nodes are Kafka's."""
    zookeeper = connect()
    assert elect(zookeeper, 1, NOW_MS, nothing) == Elected(epoch=1, epoch_version=1)
    node = zookeeper.read("/controller")
    assert node.data == b'{"version":2,"brokerid":1,"timestamp":"1700000000000","kraftControllerEpoch":-1}'
    assert node.stat.ephemeral_owner == zookeeper.session_id
    assert zookeeper.read("/controller_epoch").data == b"1"


def test_of_two_that_race_one_wins(connect: Connect) -> None:
    """Over and over: the epoch rises by one each time."""
    sessions = [connect(), connect()]
    for round_number in range(1, 11):
        results: list[Elected | None] = [None, None]
        barrier = threading.Barrier(2)

        def stand(index: int, results: list[Elected | None] = results, barrier: threading.Barrier = barrier) -> None:
            barrier.wait(TIMEOUT_S)
            results[index] = elect(sessions[index], index, NOW_MS, nothing)

        threads = [threading.Thread(target=stand, args=(index,)) for index in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT_S)
        winners = [result for result in results if result is not None]
        assert [winner.epoch for winner in winners] == [round_number]
        sessions[0].delete(znodes.CONTROLLER)


def test_an_office_that_was_given_up_during_an_outage_is_not_lost(connect: Connect) -> None:
    """Its node could not be deleted then, and lives as long as the session; the next term has a higher epoch."""
    zookeeper = connect()
    assert elect(zookeeper, 1, NOW_MS, nothing) == Elected(epoch=1, epoch_version=1)
    assert elect(zookeeper, 1, NOW_MS, nothing) == Elected(epoch=2, epoch_version=2)
    assert elect(connect(), 2, NOW_MS, nothing) is None


def test_the_loser_hears_when_the_office_is_free(connect: Connect) -> None:
    """And is elected then, with a higher epoch."""
    winner, loser = connect(), connect()
    free = threading.Event()
    assert elect(winner, 1, NOW_MS, nothing) is not None
    assert elect(loser, 2, NOW_MS, free.set) is None
    winner.close()
    assert free.wait(TIMEOUT_S)
    assert elect(loser, 2, NOW_MS, nothing) == Elected(epoch=2, epoch_version=2)


def test_a_won_election_whose_answer_was_lost_is_won(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node is our session's, and the epoch is the one that we wanted."""
    zookeeper = connect()
    lose_answer(zookeeper, monkeypatch)
    assert elect(zookeeper, 1, NOW_MS, nothing) == Elected(epoch=1, epoch_version=1)


def test_an_election_lost_in_between_is_lost(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else's node and epoch are not ours."""
    zookeeper, other = connect(), connect()
    multi = zookeeper.multi

    def too_late(operations: list[object]) -> object:
        elect(other, 2, NOW_MS, nothing)
        return multi(operations)  # type: ignore[arg-type]

    monkeypatch.setattr(zookeeper, "multi", too_late)
    assert elect(zookeeper, 1, NOW_MS, nothing) is None


def test_a_controller_that_was_replaced_writes_nothing(connect: Connect) -> None:
    """The check on the epoch node's version comes with every write."""
    old, new = connect(), connect()
    elected = elect(old, 1, NOW_MS, nothing)
    assert elected is not None
    fence = Fence(old, elected)
    fence.write(Create("/before"))
    old.delete(znodes.CONTROLLER)
    assert elect(new, 2, NOW_MS, nothing) is not None
    for write in (
        lambda: fence.write(Create("/after")),
        lambda: fence.ensure(["/after"]),
        lambda: fence.delete(["/before"]),
        lambda: fence.multi_many([[Create("/after")], [SetData("/before", b"1")]]),
    ):
        with pytest.raises(ControllerMovedError):
            write()
    assert new.exists("/before") is not None
    assert new.exists("/after") is None


def test_a_conflict_in_the_operation_is_not_the_end_of_the_term(connect: Connect) -> None:
    """It is told as what it is."""
    zookeeper = connect()
    elected = elect(zookeeper, 1, NOW_MS, nothing)
    assert elected is not None
    fence = Fence(zookeeper, elected)
    fence.write(Create("/a"))
    with pytest.raises(NodeExistsError):
        fence.write(Create("/a"))
    with pytest.raises(BadVersionError):
        fence.write(SetData("/a", b"", 9))
    outcomes = fence.multi_many([[Create("/b"), Create("/a")], [SetData("/a", b"1", 0)]])
    failed, done = outcomes
    assert isinstance(failed, MultiError)
    assert failed.index == 1
    assert not isinstance(done, MultiError)
    assert done[0] is not None
    assert done[0].version == 1
    fence.ensure(["/a", "/c"])
    fence.delete(["/a", "/nothing", "/c"])
    with pytest.raises(NoNodeError):
        fence.ensure(["/no/parent"])


def lose_answer(zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each multi be sent twice, as after a connection that was lost before the answer."""
    multi = zookeeper.multi

    def twice(operations: list[object]) -> object:
        multi(operations)  # type: ignore[arg-type]
        return multi(operations)  # type: ignore[arg-type]

    monkeypatch.setattr(zookeeper, "multi", twice)


def test_many_writes_go_in_groups_and_still_each_by_itself(connect: Connect) -> None:
    """More than one group, with one write in the middle that fails."""
    zookeeper = connect()
    fence = Fence(zookeeper, elected(zookeeper))
    zookeeper.create("/node-150")
    multis: list[list[Operation]] = [
        [Create(f"/node-{number}", b"data"), SetData(f"/node-{number}", b"other")] for number in range(250)
    ]

    outcomes = fence.multi_many(multis)

    failed = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, MultiError)]
    assert failed == [150]
    error = outcomes[150]
    assert isinstance(error, MultiError)
    assert (error.index, type(error.reason)) == (0, NodeExistsError)
    assert all(len(outcome) == 2 for outcome in outcomes if not isinstance(outcome, MultiError))
    assert zookeeper.read("/node-249").data == b"other"


def test_writes_that_are_large_go_alone(connect: Connect) -> None:
    """A server takes no request of more than a megabyte."""
    zookeeper = connect()
    fence = Fence(zookeeper, elected(zookeeper))
    outcomes = fence.multi_many([[Create(f"/large-{number}", bytes(600_000))] for number in range(4)])
    assert outcomes == [[None]] * 4


def elected(zookeeper: ZooKeeper) -> Elected:
    """Win an election."""
    won = elect(zookeeper, 1, NOW_MS, nothing)
    assert won is not None
    return won
