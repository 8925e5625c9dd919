"""The rules by which a leader's ISR replaces another."""

from __future__ import annotations

import pytest

from ottla.broker.controller.isr_updates import IsrUpdate, is_present_state, refusal_of
from ottla.broker.controller.partition_states import RECOVERED, RECOVERING, LeaderAndIsr
from ottla.protocol.errors import ErrorCode

REPLICAS = (1, 2, 3)
PRESENT = LeaderAndIsr(leader=1, leader_epoch=4, isr=(1, 2), controller_epoch=9, partition_epoch=6)


def update(
    *isr: int, leader_epoch: int = 4, partition_epoch: int = 6, leader_recovery_state: int = RECOVERED
) -> IsrUpdate:
    """Ask for an ISR."""
    return IsrUpdate(leader_epoch, partition_epoch, tuple((broker, -1) for broker in isr), leader_recovery_state)


@pytest.mark.parametrize("isr", [(1,), (1, 2), (2, 1), (1, 2, 3)])
def test_a_leader_that_knows_the_state_may_shrink_and_expand(isr: tuple[int, ...]) -> None:
    """As long as it is in the ISR itself."""
    assert refusal_of(PRESENT, REPLICAS, 1, update(*isr)) is None


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (update(1, leader_epoch=5), ErrorCode.NOT_CONTROLLER),
        (update(1, leader_epoch=3), ErrorCode.FENCED_LEADER_EPOCH),
        (update(1, partition_epoch=5), ErrorCode.INVALID_UPDATE_VERSION),
        (update(1, partition_epoch=7), ErrorCode.INVALID_UPDATE_VERSION),
        (update(2), ErrorCode.INVALID_REQUEST),
        (update(), ErrorCode.INVALID_REQUEST),
        (update(1, 4), ErrorCode.INVALID_REQUEST),
        (update(1, 2, 2), ErrorCode.INVALID_REQUEST),
        (update(1, leader_recovery_state=RECOVERING), ErrorCode.INVALID_REQUEST),
        (update(1, leader_recovery_state=7), ErrorCode.INVALID_REQUEST),
    ],
)
def test_other_updates_are_refused(asked: IsrUpdate, code: ErrorCode) -> None:
    """Each with the error that tells the leader what to do."""
    assert refusal_of(PRESENT, REPLICAS, 1, asked) is code


def test_only_the_leader_changes_the_isr() -> None:
    """A follower that knows all epochs is refused too."""
    assert refusal_of(PRESENT, REPLICAS, 2, update(1, 2)) is ErrorCode.INVALID_REQUEST


def test_a_recovering_leader_is_alone_until_it_has_recovered() -> None:
    """After an unclean election it says that it has recovered, at the latest with the first follower."""
    recovering = LeaderAndIsr(1, 4, (1,), 9, 6, leader_recovery_state=RECOVERING)

    grown = update(1, 2, leader_recovery_state=RECOVERING)
    assert refusal_of(recovering, REPLICAS, 1, grown) is ErrorCode.INVALID_REQUEST
    assert refusal_of(recovering, REPLICAS, 1, update(1, 2)) is None
    assert refusal_of(recovering, REPLICAS, 1, update(1)) is None
    assert not is_present_state(recovering, 1, update(1))


def test_an_update_that_was_done_before_is_recognised() -> None:
    """The partition epoch may be the one from before it was done, and the order of members does not matter."""
    assert is_present_state(PRESENT, 1, update(2, 1, partition_epoch=5))
    assert is_present_state(PRESENT, 1, update(1, 2))
    assert not is_present_state(PRESENT, 1, update(1, 2, partition_epoch=7))
    assert not is_present_state(PRESENT, 1, update(1, 2, leader_epoch=3))
    assert not is_present_state(PRESENT, 2, update(1, 2))
    assert not is_present_state(PRESENT, 1, update(1))
