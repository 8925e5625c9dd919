"""A partition takes roles, commits what the ISR has, and serves followers and consumers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.broker.replication.replicas import LAG_MAX_MS, ORDERS, Replica, fetch, role

from ottla.broker.replication.partition import EpochEndOffset, IsrAnswer, PartitionRole, Read
from ottla.protocol.errors import ErrorCode, KafkaError


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    """Broker 1, without a role."""
    return Replica(tmp_path)


def code_of(call: Callable[[], object]) -> ErrorCode:
    """The error that a call ends with."""
    with pytest.raises(KafkaError) as raised:
        call()
    return raised.value.code


def consume(replica: Replica, offset: int, **options: bool) -> Read:
    """Read as a consumer."""
    return replica.partition.read(offset, 1000, -1, committed_only=False, at_least_one=True, **options)


# Roles


def test_a_leader_writes_down_where_its_epoch_begins(replica: Replica) -> None:
    """Also before it has appended anything."""
    replica.lead(epoch=4)
    replica.append(2)
    replica.lead(epoch=6)

    assert replica.log.leader_epochs.entries == [(4, 0), (6, 2)]


@pytest.mark.parametrize(("epoch", "version"), [(3, 9), (4, 3), (4, 4)])
def test_an_older_role_is_not_taken(replica: Replica, epoch: int, version: int) -> None:
    """Neither of an earlier leader epoch nor of an earlier version of the node, nor the same again."""
    replica.lead(epoch=4, version=4)

    assert not replica.partition.take_role(role(2, epoch, version))
    assert replica.partition.is_leader


def test_another_isr_in_the_same_epoch_keeps_the_start_of_the_epoch(replica: Replica) -> None:
    """Whoever joins needs no more than at the begin of the epoch."""
    replica.lead(isr=(1, 2))
    replica.append(3)
    replica.fetched_by(2, offset=3)
    replica.lead(version=1, isr=(1, 2))
    replica.fetched_by(3, offset=3)

    assert [dict(proposal.isr).keys() for proposal in replica.proposals] == [{1, 2, 3}]
    assert replica.log.leader_epochs.entries == [(0, 0)]


def test_who_resigned_may_be_told_the_same_again(replica: Replica) -> None:
    """Our session ended and no controller noticed; what is older is refused as before."""
    replica.lead(epoch=4, version=7)
    replica.partition.resign()

    assert code_of(replica.append) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not replica.partition.take_role(role(1, 4, 6))
    assert replica.partition.take_role(role(1, 4, 7))
    assert replica.partition.is_leader


# Appending


def test_a_follower_takes_no_appends(replica: Replica) -> None:
    """The producer looks for the leader."""
    replica.follow()

    assert code_of(replica.append) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_acks_all_needs_enough_replicas_in_sync(replica: Replica) -> None:
    """Nothing is appended for want of them; acks=1 asks for none."""
    replica.lead(isr=(1,))

    assert code_of(replica.append) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert replica.log.log_end_offset == 0
    replica.append(acks=1)


def test_who_is_cut_off_from_zookeeper_acknowledges_nothing_alone(replica: Replica) -> None:
    """Another may lead by now; what followers must have as well is safe."""
    replica.lead()
    replica.may_lead_alone = False

    assert code_of(lambda: replica.append(acks=1)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    replica.append(acks=-1)


def test_who_is_cut_off_from_zookeeper_and_followers_sends_producers_on(replica: Replica) -> None:
    """Followers that have fallen silent may follow another; nothing can be committed here until the ISR is another."""
    replica.lead()
    replica.append()
    replica.clock.now += LAG_MAX_MS + 1
    replica.partition.shrink_isr()
    replica.append()
    replica.may_lead_alone = False

    assert code_of(replica.append) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_append_is_committed_when_all_in_sync_have_it(replica: Replica) -> None:
    """It waits until then."""
    replica.lead()
    replica.append()
    replica.fetched_by(2, offset=1)
    assert replica.partition.commit_error(0) is None

    replica.fetched_by(3, offset=1)
    assert replica.partition.commit_error(0) is ErrorCode.NONE


def test_an_append_fails_when_the_isr_shrank_too_far_meanwhile(replica: Replica) -> None:
    """It is committed, and not as safe as was asked for."""
    replica.lead()
    replica.append()
    replica.fetched_by(2, 3, offset=1)
    replica.lead(version=1, isr=(1,))

    assert replica.partition.commit_error(0) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_an_append_fails_when_another_leads(replica: Replica) -> None:
    """What becomes of it is not known."""
    replica.lead()
    replica.append()
    replica.follow(epoch=1)

    assert replica.partition.commit_error(0) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_nothing_is_committed_by_too_few(replica: Replica) -> None:
    """The high watermark stands while the ISR is smaller than min.insync.replicas."""
    replica.lead(isr=(1,))
    replica.append(acks=1)

    assert replica.log.high_watermark == 0


def test_who_is_cut_off_from_zookeeper_sends_nobody_back_who_is_ahead_of_it(replica: Replica) -> None:
    """The consumer has read from another leader; out of range would have it begin anew with the oldest record."""
    replica.lead(isr={1, 2, 3})

    def code_for(offset: int) -> ErrorCode:
        return code_of(lambda: replica.partition.read(offset, 1000, -1, committed_only=False, at_least_one=True))

    assert code_for(7) is ErrorCode.OFFSET_OUT_OF_RANGE
    replica.may_lead_alone = False
    assert code_for(7) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code_for(-2) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert replica.partition.read(0, 1000, -1, committed_only=False, at_least_one=True).records is None


def test_a_leader_alone_commits_at_once_where_one_is_enough(tmp_path: Path) -> None:
    """Nobody will fetch."""
    replica = Replica(tmp_path, min_isr=1)
    replica.lead(isr=(1,))
    replica.append()

    assert replica.partition.commit_error(0) is ErrorCode.NONE


def test_a_leader_without_followers_commits_what_it_appends(replica: Replica) -> None:
    """No more replicas can be in sync than there are."""
    replica.partition.take_role(PartitionRole(1, 0, 0, (1,), frozenset({1})))
    replica.append(2, acks=1)

    assert replica.log.high_watermark == 2


def test_a_leader_alone_in_sync_waits_for_a_follower_that_is_about_to_join(tmp_path: Path) -> None:
    """The follower is caught up, so its leader must not be ahead of it at each append."""
    replica = Replica(tmp_path, min_isr=1)
    replica.lead(isr=(1,))
    replica.append()
    replica.fetched_by(2, offset=1)
    replica.append(acks=1)

    assert replica.log.high_watermark == 1


# Followers


@pytest.mark.parametrize(("epoch", "code"), [(3, ErrorCode.FENCED_LEADER_EPOCH), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_who_fetches_in_another_epoch_is_refused(replica: Replica, epoch: int, code: ErrorCode) -> None:
    """And its position does not count."""
    replica.lead(epoch=4)
    replica.append()

    assert code_of(lambda: replica.fetched_by(2, offset=1, epoch=epoch)) is code
    assert replica.partition.follower_positions()[2].log_end_offset == -1


def test_a_follower_reads_past_the_high_watermark(replica: Replica) -> None:
    """It must, for it to move."""
    replica.lead()
    replica.append(2)
    read = replica.partition.read_for_follower(fetch(2, 0), 1000, at_least_one=True)

    assert read.records is not None
    assert read.high_watermark == 0


def test_the_fetch_that_moves_the_high_watermark_wakes_requests(replica: Replica) -> None:
    """Produces and consumers wait for it."""
    replica.lead()
    replica.append()
    replica.fetched_by(2, offset=1)
    assert replica.waits.moves == []
    replica.fetched_by(3, offset=1)

    assert replica.log.high_watermark == 1
    assert replica.waits.moves == [ORDERS]


def test_the_fetch_that_shows_another_log_start_wakes_deletions(replica: Replica) -> None:
    """Also right after an election, when no start is known."""
    replica.lead()
    woken = []
    for start in (0, 0, 1):
        request = fetch(2, 0)._replace(log_start_offset=start)
        replica.partition.read_for_follower(request, 1000, at_least_one=True)
        woken.append(len(replica.waits.low_watermark_moves))

    assert woken == [1, 1, 2]


def test_a_follower_with_another_log_learns_where_it_differs(replica: Replica) -> None:
    """It ends epoch 0 at 3, we at 2; it gets no records, and its position does not count."""
    replica.lead()
    replica.append(2)
    replica.lead(epoch=1)
    replica.append(2)
    read = replica.partition.read_for_follower(fetch(2, 3, epoch=1, last_epoch=0), 1000, at_least_one=True)

    assert (read.diverging, read.records) == (EpochEndOffset(0, 2), None)
    assert replica.partition.follower_positions()[2].log_end_offset == -1


def test_a_follower_with_an_epoch_in_between_learns_the_one_before(replica: Replica) -> None:
    """It has epoch 1, of which we have nothing."""
    replica.lead()
    replica.append(2)
    replica.lead(epoch=2)
    read = replica.partition.read_for_follower(fetch(2, 2, epoch=2, last_epoch=1), 1000, at_least_one=True)

    assert read.diverging == EpochEndOffset(0, 2)


@pytest.mark.parametrize(("offset", "last_epoch"), [(9, -1), (1, 7)])
def test_an_offset_or_an_epoch_that_is_not_here_is_out_of_range(replica: Replica, offset: int, last_epoch: int) -> None:
    """The follower asks for our offsets then."""
    replica.lead()
    replica.append(2)
    request = fetch(2, offset, last_epoch=last_epoch)

    assert (
        code_of(lambda: replica.partition.read_for_follower(request, 1000, at_least_one=True))
        is ErrorCode.OFFSET_OUT_OF_RANGE
    )


# In sync


def answer(replica: Replica, code: ErrorCode, isr: tuple[int, ...] = (), epoch: int = 0) -> bool:
    """Let the controller answer the last proposal; return whether that woke requests."""
    before = len(replica.waits.moves)
    replica.partition.take_isr_answer(replica.proposals[-1], IsrAnswer(code, 1, epoch, isr, 5))
    return len(replica.waits.moves) > before


def test_a_follower_that_has_caught_up_is_proposed_once(replica: Replica) -> None:
    """There is one proposal at a time."""
    replica.lead(isr=(1, 2))
    replica.fetched_by(3, offset=0)
    replica.fetched_by(3, offset=0)

    assert [proposal.isr for proposal in replica.proposals] == [((1, 10), (2, -1), (3, -1))]


def test_a_follower_that_is_not_in_the_metadata_is_not_proposed(replica: Replica) -> None:
    """The controller would refuse."""
    replica.live = {1, 2}
    replica.lead(isr=(1, 2))
    replica.fetched_by(3, offset=0)

    assert not replica.proposals


def test_followers_that_do_not_keep_up_are_to_leave(replica: Replica) -> None:
    """2 has everything, 3 has not fetched for too long."""
    replica.lead()
    replica.append()
    replica.fetched_by(2, offset=1)
    replica.partition.shrink_isr()
    assert not replica.proposals

    replica.clock.now += LAG_MAX_MS + 1
    replica.partition.shrink_isr()
    replica.partition.shrink_isr()
    assert [dict(proposal.isr).keys() for proposal in replica.proposals] == [{1, 2}]


def test_who_hears_neither_followers_nor_zookeeper_removes_nobody(replica: Replica) -> None:
    """A broker that others hear, and that hears nobody, would take itself for the only one alive."""
    replica.lead()
    replica.append()
    replica.clock.now += LAG_MAX_MS + 1
    replica.heard_ms_ago = LAG_MAX_MS // 2 + 1
    replica.partition.shrink_isr()
    assert not replica.proposals
    assert not replica.partition.is_proposal_pending

    replica.heard_ms_ago = LAG_MAX_MS // 2
    replica.partition.shrink_isr()
    assert [dict(proposal.isr).keys() for proposal in replica.proposals] == [{1}]


def test_who_is_cut_off_from_zookeeper_adds_nobody(replica: Replica) -> None:
    """Another may lead by now; the follower's next fetch after that proposes it."""
    replica.lead(isr=(1, 2))
    replica.may_lead_alone = False
    replica.fetched_by(3, offset=0)
    assert not replica.proposals

    replica.may_lead_alone = True
    replica.fetched_by(3, offset=0)
    assert [dict(proposal.isr).keys() for proposal in replica.proposals] == [{1, 2, 3}]


def test_what_the_controller_wrote_counts(replica: Replica) -> None:
    """With 3 gone, what 2 has is committed."""
    replica.lead()
    replica.append()
    replica.fetched_by(2, offset=1)
    replica.clock.now += LAG_MAX_MS + 1
    replica.partition.shrink_isr()

    assert answer(replica, ErrorCode.NONE, (1, 2))
    assert replica.partition.isr == {1, 2}
    assert replica.partition.role.partition_epoch == 5
    assert (replica.log.high_watermark, replica.partition.isr_shrinks) == (1, 1)


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_refused_proposal_is_withdrawn(replica: Replica, code: ErrorCode) -> None:
    """The next fetch proposes anew."""
    replica.lead(isr=(1, 2))
    replica.fetched_by(3, offset=0)
    answer(replica, code)
    assert not replica.partition.is_proposal_pending

    replica.fetched_by(3, offset=0)
    assert len(replica.proposals) == 2


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_after_an_unclear_answer_the_controller_must_speak_first(replica: Replica, code: ErrorCode) -> None:
    """The change may have been made: 3 holds the high watermark back until the next role."""
    replica.lead(isr=(1, 2))
    replica.fetched_by(3, offset=0)
    answer(replica, code)
    replica.append()
    replica.fetched_by(2, offset=1)

    assert (replica.partition.is_proposal_pending, len(replica.proposals)) == (True, 1)
    assert replica.log.high_watermark == 0


def test_any_other_error_is_tried_again(replica: Replica) -> None:
    """With the same proposal, so that the controller knows it."""
    replica.lead(isr=(1, 2))
    replica.fetched_by(3, offset=0)
    answer(replica, ErrorCode.NOT_CONTROLLER)

    assert replica.proposals == [replica.proposals[0]] * 2


def test_an_answer_to_an_earlier_role_is_dropped(replica: Replica) -> None:
    """The role has told what is."""
    replica.lead(isr=(1, 2))
    replica.fetched_by(3, offset=0)
    replica.lead(epoch=1, isr=(1, 2))

    assert not answer(replica, ErrorCode.NONE, (1, 2, 3))
    assert replica.partition.isr == {1, 2}


# Consumers


def test_consumers_read_what_is_committed(replica: Replica) -> None:
    """Two records are there, one of them everywhere."""
    replica.lead()
    replica.append(2)
    replica.fetched_by(2, 3, offset=1)
    read = consume(replica, 0)

    assert read.records is not None
    assert (read.high_watermark, consume(replica, 1).records) == (1, None)


def test_a_follower_serves_only_consumers_that_mean_it(replica: Replica) -> None:
    """Others look for the leader; without a leader nobody is served."""
    replica.follow()

    assert code_of(lambda: consume(replica, 0)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert consume(replica, 0, client_may_read_follower=True).records is None
    replica.partition.resign()
    assert code_of(lambda: consume(replica, 0, client_may_read_follower=True)) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_new_leader_knows_the_high_watermark_when_its_followers_have_fetched(replica: Replica) -> None:
    """Until then the latest offset that it could tell may be too low."""
    replica.lead()
    replica.append()
    replica.lead(epoch=1)
    assert not replica.partition.is_high_watermark_known

    replica.fetched_by(2, 3, offset=1, epoch=1)
    assert replica.partition.is_high_watermark_known
