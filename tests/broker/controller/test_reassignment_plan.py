"""The rules of reassignment: what the lists of a topic's node mean, and who leads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.controller.context import ReplicaAssignment
from ottla.broker.controller.partition_states import LeaderAndIsr
from ottla.broker.controller.reassignments.reassignment_plan import (
    check_target,
    elected,
    extras_of,
    is_reassigned,
    origin_of,
    reassigned,
    target_of,
    with_extras,
    without,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import NO_LEADER

BROKERS = st.lists(st.integers(0, 6), min_size=1, max_size=5, unique=True)


@given(origin=BROKERS, targets=st.lists(BROKERS, min_size=1, max_size=4))
def test_target_and_origin_can_be_told_however_often_the_target_changed(
    origin: list[int], targets: list[list[int]]
) -> None:
    """What only earlier targets wanted is neither."""
    assignment = ReplicaAssignment(tuple(origin))
    for target in targets:
        assignment = reassigned(assignment, target)

    assert target_of(assignment) == tuple(targets[-1])
    assert set(origin_of(assignment)) == set(origin)
    earlier = {broker for target in targets for broker in target}
    assert set(extras_of(assignment)) == earlier - set(targets[-1]) - set(origin)
    assert set(assignment.replicas) == earlier | set(origin)
    assert is_reassigned(assignment) == (set(assignment.replicas) != set(origin) or set(origin) != set(targets[-1]))


def test_a_move_lists_the_target_first() -> None:
    """The first of them is who shall lead in the end."""
    assert reassigned(ReplicaAssignment((1, 2)), (3, 2)) == ReplicaAssignment((3, 2, 1), adding=(3,), removing=(1,))


def test_another_order_is_no_move() -> None:
    """Nothing is added and nothing removed."""
    assert reassigned(ReplicaAssignment((1, 2)), (2, 1)) == ReplicaAssignment((2, 1))


def test_extras_can_be_added_and_taken_away() -> None:
    """Target and origin stay what they are."""
    assignment = ReplicaAssignment((3, 1), adding=(3,), removing=(1,))
    more = with_extras(assignment, [7])

    assert more == ReplicaAssignment((3, 1, 7), adding=(3, 7), removing=(1, 7))
    assert extras_of(more) == (7,)
    assert without(more, [7]) == assignment


@pytest.mark.parametrize("target", [(), (1, 1), (-1,), (1, 4)])
def test_an_impossible_target_is_refused(target: tuple[int, ...]) -> None:
    """No broker, one twice, none at all, or one that is not alive."""
    with pytest.raises(KafkaError) as error:
        check_target(ReplicaAssignment((1,)), target, {1, 2, 3})
    assert error.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_replica_that_is_there_may_be_on_a_dead_broker() -> None:
    """Only what is added must be alive."""
    check_target(ReplicaAssignment((1, 2)), (1, 2, 3), {1, 3})


@pytest.mark.parametrize(
    ("replicas", "isr", "online", "expected"),
    [
        # The leader stays, wherever it stands in the list.
        ((2, 1), (1, 2), (1, 2), (1, (1, 2))),
        # It does not belong to the replicas, or is dead: the first in sync follows it.
        ((3, 2), (1, 2, 3), (1, 2, 3), (3, (2, 3))),
        ((1, 2), (1, 2), (2,), (2, (1, 2))),
        ((3, 2), (1, 2), (2, 3), (2, (2,))),
        # Nobody could lead.
        ((3,), (1, 2), (1, 2, 3), None),
        ((2,), (1, 2), (1,), None),
    ],
)
def test_the_leader_stays_where_it_can(
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    online: tuple[int, ...],
    expected: tuple[int, tuple[int, ...]] | None,
) -> None:
    """Others leave the ISR, and the epoch rises."""
    state = elected(replicas, LeaderAndIsr(1, 7, isr, 1, 1), online)

    assert (None if state is None else (state.leader, state.isr)) == expected
    assert state is None or state.leader_epoch == 8


def test_a_partition_without_leader_gets_one() -> None:
    """The first of the replicas that is in sync and online."""
    state = elected((2, 1), LeaderAndIsr(NO_LEADER, 7, (1, 2), 1, 1), (1, 2))
    assert state is not None
    assert state.leader == 2
