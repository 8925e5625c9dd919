"""The rules of leadership, without anything that could fail."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.broker.controller.partition_states import (
    PARTITION_PREVIOUS,
    RECOVERED,
    RECOVERING,
    REPLICA_PREVIOUS,
    LeaderAndIsr,
    PartitionState,
    ReplicaState,
    controlled_shutdown_election,
    initial_state,
    offline_election,
    preferred_election,
    restarted_members,
    without_replica,
    without_restarted,
)
from ottla.protocol.identifiers import NO_LEADER


def state(leader: int, *isr: int) -> LeaderAndIsr:
    """Make a state of leader epoch 5."""
    return LeaderAndIsr(leader, 5, isr, controller_epoch=1, partition_epoch=7)


@st.composite
def partitions(draw: st.DrawFn) -> tuple[list[int], LeaderAndIsr, set[int]]:
    """Draw an assignment, a state whose ISR is some of it, and the live brokers."""
    replicas = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5, unique=True))
    isr = draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True))
    leader = draw(st.sampled_from([NO_LEADER, *isr]))
    return replicas, state(leader, *isr), draw(st.sets(st.integers(1, 6)))


def test_a_new_partition_is_led_by_its_first_live_replica() -> None:
    """All live ones are in sync, in the order of the assignment."""
    assert initial_state([3, 1, 2], {1, 2}, 4) == LeaderAndIsr(1, 0, (1, 2), 4, 0)
    assert initial_state([3], {1, 2}, 4) is None


def test_an_offline_election_takes_the_first_live_replica_in_sync() -> None:
    """By the order of the assignment, not of the ISR."""
    elected = offline_election([1, 2, 3], state(1, 1, 3, 2), {2, 3}, unclean=False)
    assert elected is not None
    assert (elected.leader, elected.leader_epoch, elected.isr) == (2, 6, (3, 2))
    assert elected.leader_recovery_state == RECOVERED


def test_an_unclean_election_is_a_last_resort() -> None:
    """Only where it is allowed and nobody in sync lives; the leader is then alone and recovering."""
    assert offline_election([1, 2], state(1, 1), {2}, unclean=False) is None
    elected = offline_election([1, 2], state(1, 1), {2}, unclean=True)
    assert elected is not None
    assert (elected.leader, elected.isr, elected.leader_recovery_state) == (2, (2,), RECOVERING)
    clean = offline_election([1, 2], state(1, 1, 2), {2}, unclean=True)
    assert clean is not None
    assert clean.leader_recovery_state == RECOVERED
    assert offline_election([1, 2], state(1, 1), set(), unclean=True) is None


def test_members_that_restarted_leave_the_isr_where_another_could_lead() -> None:
    """Who is gone has not restarted; where none that is online is steady, nothing changes."""
    in_sync = replace(state(1, 1, 2, 3), lives={1: 10, 2: 20, 3: 30})
    assert restarted_members(in_sync, {1: 10, 2: 21}) == {2}
    assert without_restarted(in_sync, {2: 21, 3: 30}, {2, 3}).isr == (1, 3)
    assert without_restarted(in_sync, {2: 21, 3: 31}, {2, 3}) == in_sync
    assert without_restarted(in_sync, {2: 21, 3: 30}, {2}) == in_sync


def test_the_preferred_replica_leads_if_it_lives_and_is_in_sync() -> None:
    """The ISR stays as it is."""
    elected = preferred_election([1, 2], state(2, 2, 1), {1, 2})
    assert elected is not None
    assert (elected.leader, elected.isr) == (1, (2, 1))
    assert preferred_election([1, 2], state(2, 2), {1, 2}) is None
    assert preferred_election([1, 2], state(2, 2, 1), {2}) is None


def test_brokers_that_shut_down_hand_over() -> None:
    """They count as live, leave the ISR, and never lead; without another candidate nothing changes."""
    elected = controlled_shutdown_election([1, 2, 3], state(1, 1, 2, 3), {1, 2, 3}, {1, 2})
    assert elected is not None
    assert (elected.leader, elected.isr) == (3, (3,))
    assert controlled_shutdown_election([1, 2], state(1, 1), {1, 2}, {1}) is None


def test_the_last_member_of_the_isr_stays_in_it() -> None:
    """It alone has all committed records."""
    assert without_replica(state(1, 1, 2), 1).isr == (2,)
    assert without_replica(state(1, 1, 2), 1).leader == NO_LEADER
    assert without_replica(state(1, 1, 2), 2).leader == 1
    alone = without_replica(state(1, 1), 1)
    assert (alone.leader, alone.isr, alone.leader_epoch) == (NO_LEADER, (1,), 6)
    assert without_replica(state(1, 1), 2) == state(1, 1)


@examples(300)
@given(partitions(), st.booleans(), st.sets(st.integers(1, 6)))
def test_elections_keep_the_rules(
    partition: tuple[list[int], LeaderAndIsr, set[int]], unclean: bool, shutting_down: set[int]
) -> None:
    """A leader lives, is in its ISR, and was in sync unless the election was unclean; the leader epoch rises by one."""
    replicas, before, live = partition
    for elected in (
        offline_election(replicas, before, live, unclean=unclean),
        preferred_election(replicas, before, live),
        controlled_shutdown_election(replicas, before, live, shutting_down),
    ):
        if elected is None:
            continue
        assert elected.leader in live
        assert elected.leader in elected.isr
        assert elected.leader_epoch == before.leader_epoch + 1
        assert elected.partition_epoch == before.partition_epoch
        if elected.leader_recovery_state == RECOVERED:
            assert elected.leader in before.isr
            assert set(elected.isr) <= set(before.isr)
        else:
            assert unclean
            assert not live.intersection(before.isr)
            assert elected.isr == (elected.leader,)


@examples(200)
@given(partitions(), st.integers(1, 6))
def test_leaving_never_empties_the_isr(partition: tuple[list[int], LeaderAndIsr, set[int]], replica: int) -> None:
    """And an offline replica never leads."""
    _, before, _ = partition
    after = without_replica(before, replica)
    assert after.isr
    assert set(after.isr) <= set(before.isr)
    assert after.leader != replica


def test_every_state_can_be_entered_and_left() -> None:
    """The tables have a row for each state, and no dead ends."""
    assert set(PARTITION_PREVIOUS) == set(PartitionState)
    assert set(REPLICA_PREVIOUS) == set(ReplicaState)
    assert set().union(*PARTITION_PREVIOUS.values()) == set(PartitionState)
    assert set().union(*REPLICA_PREVIOUS.values()) == set(ReplicaState)


def test_a_replica_is_deleted_only_after_it_was_stopped() -> None:
    """And forgotten only after its deletion."""
    assert REPLICA_PREVIOUS[ReplicaState.DELETION_STARTED] == {ReplicaState.OFFLINE}
    assert REPLICA_PREVIOUS[ReplicaState.NON_EXISTENT] == {ReplicaState.DELETION_SUCCESSFUL}
    assert PARTITION_PREVIOUS[PartitionState.NON_EXISTENT] == {PartitionState.OFFLINE}
