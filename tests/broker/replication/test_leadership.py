"""What a leader knows of its followers, and what follows from it."""

from __future__ import annotations

import pytest
from tests.broker.replication.replicas import LAG_MAX_MS, NOW_MS, ORDERS, TOPIC_ID, fetch, role

from ottla.broker.replication.leader.leadership import IsrAnswer, Leadership, RemoteReplica
from ottla.protocol.errors import ErrorCode, KafkaError

LATE_MS = NOW_MS + LAG_MAX_MS + 1


def leading(isr: tuple[int, ...] = (1, 2, 3), start_offset: int = 0, **positions: int) -> Leadership:
    """Broker 1 leads; `at_2=5` says that broker 2 has everything below 5."""
    leadership = Leadership(1, role(isr=isr), start_offset, NOW_MS)
    for name, position in positions.items():
        leadership.followers[int(name[3:])].log_end_offset = position
    return leadership


def committed_end(leadership: Leadership, leader_end: int, now_ms: int = NOW_MS) -> int:
    """Up to where everybody has the log, with all brokers alive."""
    return leadership.committed_end(leader_end, now_ms, LAG_MAX_MS, lambda broker: True)


# High watermark


def test_what_every_member_of_the_isr_has_is_committed() -> None:
    """The slowest of them decides."""
    assert committed_end(leading(at_2=7, at_3=5), 9) == 5


def test_nothing_is_committed_before_every_member_has_fetched() -> None:
    """Where a follower is, nobody knows before."""
    assert committed_end(leading(at_2=7), 9) < 0


def test_who_lags_outside_the_isr_holds_nothing_back() -> None:
    """3 is far behind, and does not count."""
    assert committed_end(leading(isr=(1, 2), at_2=7, at_3=2), 9, LATE_MS) == 7


def test_who_has_just_caught_up_outside_the_isr_counts_if_it_lives() -> None:
    """It would never reach the high watermark otherwise."""
    leadership = leading(isr=(1, 2), at_2=9, at_3=7)
    leadership.followers[3].last_caught_up_ms = NOW_MS

    assert leadership.committed_end(9, NOW_MS, LAG_MAX_MS, lambda broker: True) == 7
    assert leadership.committed_end(9, NOW_MS, LAG_MAX_MS, lambda broker: broker != 3) == 9


def test_who_is_about_to_join_counts_already() -> None:
    """The controller may have taken it in."""
    leadership = leading(isr=(1, 2), at_2=9, at_3=7)
    leadership.propose(ORDERS, TOPIC_ID, frozenset({1, 2, 3}), 10)

    assert committed_end(leadership, 9, LATE_MS) == 7


def test_who_is_about_to_leave_counts_still() -> None:
    """The controller may not have taken it out."""
    leadership = leading(at_2=9, at_3=4)
    leadership.propose(ORDERS, TOPIC_ID, frozenset({1, 2}), 10)

    assert committed_end(leadership, 9, LATE_MS) == 4


# Keeping up


def test_a_follower_at_the_end_is_caught_up_now() -> None:
    """It has everything."""
    leadership, follower = leading(), RemoteReplica()
    leadership.fetched(follower, fetch(2, 9, broker_epoch=4), 9, NOW_MS)

    assert (follower.log_end_offset, follower.last_caught_up_ms, follower.broker_epoch) == (9, NOW_MS, 4)


def test_a_follower_that_has_what_there_was_at_its_last_fetch_was_caught_up_then() -> None:
    """With a producer that never stops, a follower is always one fetch behind."""
    leadership, follower = leading(), RemoteReplica()
    leadership.fetched(follower, fetch(2, 3), 5, NOW_MS)
    leadership.fetched(follower, fetch(2, 5), 9, NOW_MS + 40)

    assert follower.last_caught_up_ms == NOW_MS


def test_a_follower_that_fetches_too_slowly_is_not_caught_up() -> None:
    """It had less than there was when it fetched before."""
    leadership, follower = leading(), RemoteReplica()
    leadership.fetched(follower, fetch(2, 3), 5, NOW_MS)
    leadership.fetched(follower, fetch(2, 4), 9, NOW_MS + 40)

    assert not follower.is_caught_up(9, NOW_MS + 40, LAG_MAX_MS)


def test_members_get_their_time_to_appear() -> None:
    """A new leader takes nobody out before the lag time is over."""
    leadership = leading()

    assert leadership.lagging(5, NOW_MS + LAG_MAX_MS, LAG_MAX_MS) == frozenset()
    assert leadership.lagging(5, LATE_MS, LAG_MAX_MS) == {2, 3}


def test_who_is_at_the_end_does_not_lag_however_long_it_is_silent() -> None:
    """There is nothing that it lacks."""
    assert leading(at_2=5, at_3=4).lagging(5, LATE_MS, LAG_MAX_MS) == {3}


# Joining


@pytest.mark.parametrize(("position", "may_join"), [(4, False), (6, False), (7, True)])
def test_who_joins_has_reached_high_watermark_and_start_of_epoch(position: int, may_join: bool) -> None:
    """The high watermark is 5, the epoch began at 7."""
    leadership = leading(isr=(1, 2), start_offset=7, at_3=position)

    assert leadership.may_join(3, 5) is may_join


def test_a_member_does_not_join() -> None:
    """It is there already."""
    assert not leading(at_3=9).may_join(3, 5)


def test_a_proposal_names_the_lives_of_the_members() -> None:
    """Broker epochs, in the order of the replicas: our own, and with what the followers fetched."""
    leadership = leading(isr=(1, 2))
    leadership.followers[3].broker_epoch = 33
    proposal = leadership.propose(ORDERS, TOPIC_ID, frozenset({1, 2, 3}), 10)

    assert proposal.isr == ((1, 10), (2, -1), (3, 33))
    assert (proposal.leader_epoch, proposal.partition_epoch) == (0, 0)


def test_a_committed_proposal_is_the_isr() -> None:
    """With the version of the node that the controller wrote."""
    leadership = leading(isr=(1, 2))
    leadership.propose(ORDERS, TOPIC_ID, frozenset({1, 2, 3}), 10)
    leadership.committed(IsrAnswer(ErrorCode.NONE, 1, 0, (1, 2, 3), 8))

    assert leadership.role.isr == leadership.maximal_isr == {1, 2, 3}
    assert (leadership.role.partition_epoch, leadership.pending) == (8, None)


def test_a_withdrawn_proposal_leaves_the_isr_as_it_was() -> None:
    """Nobody is about to join any more."""
    leadership = leading(isr=(1, 2))
    leadership.propose(ORDERS, TOPIC_ID, frozenset({1, 2, 3}), 10)
    leadership.withdraw()

    assert leadership.maximal_isr == {1, 2}
    assert leadership.pending is None


# Who fetches


def test_a_broker_without_a_replica_learns_that_it_is_early() -> None:
    """A reassignment has told it, and not yet us."""
    with pytest.raises(KafkaError) as raised:
        leading().follower(fetch(9, 0))

    assert raised.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_fetch_of_an_earlier_life_is_refused() -> None:
    """What that life had may be lost; a fetch that names no life is believed."""
    leadership = leading()
    leadership.followers[2].broker_epoch = 5

    assert leadership.follower(fetch(2, 0, broker_epoch=-1)) is leadership.followers[2]
    with pytest.raises(KafkaError) as raised:
        leadership.follower(fetch(2, 0, broker_epoch=4))
    assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


# Epochs


def test_positions_end_with_their_epoch() -> None:
    """A follower may have cut its log for a leader that we never heard of; its life is known still."""
    earlier = leading(at_2=7)
    earlier.followers[2].broker_epoch = 5
    later = Leadership(1, role(epoch=1), 9, LATE_MS, earlier)

    assert (later.followers[2].log_end_offset, later.followers[2].broker_epoch) == (-1, 5)


def test_positions_stay_while_the_epoch_does() -> None:
    """Another ISR in the same epoch says nothing about logs."""
    later = Leadership(1, role(version=1, isr=(1, 2)), 0, LATE_MS, leading(at_2=7))

    assert later.followers[2].log_end_offset == 7
