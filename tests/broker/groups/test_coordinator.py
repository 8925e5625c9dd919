"""The coordinator: whose groups it has, what it stores before it answers, and what timers do."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.broker.groups.coordinating import (
    GROUP,
    SESSION_MS,
    TOPIC,
    answered,
    commit,
    coordinating_broker,
    fetch,
    heartbeat,
    join,
    load,
    pass_time,
    stable_member,
    sync,
)
from tests.broker.handlers.data_path import Broker

from ottla.broker.groups.classic.messages import LeaveMember
from ottla.broker.groups.placement import CONSUMER_OFFSETS
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition

OFFSETS = TopicPartition(CONSUMER_OFFSETS, 0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Return a broker that coordinates all groups."""
    with coordinating_broker(tmp_path) as broker:
        yield broker


def log_end(broker: Broker) -> int:
    """Return how much was written to `__consumer_offsets`."""
    partition = broker.services.partitions.find(OFFSETS)
    assert partition is not None
    return partition.log.log_end_offset


def check_delayed(broker: Broker) -> None:
    """Tell those who wait for the coordinator."""
    broker.services.delayed_topics.check(CONSUMER_OFFSETS)


def test_a_group_is_guarded_while_it_is_loaded(tmp_path: Path) -> None:
    """Commits are to be sent again; heartbeats are fine, and a sync is sent back to the join."""
    with coordinating_broker(tmp_path, is_loaded=False) as broker:
        with pytest.raises(KafkaError) as refused:
            broker.services.groups.with_group(GROUP)
        assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert heartbeat(broker, "m", 1) == ErrorCode.NONE
        assert answered(sync(broker, "m", 1)).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_joins_commits_and_fetches_wait_a_moment_for_the_groups_to_be_loaded(tmp_path: Path) -> None:
    """So that the client's backoff is not added to the milliseconds that loading takes."""
    with coordinating_broker(tmp_path, is_loaded=False) as broker:
        broker.services.groups.on_loaded = partial(check_delayed, broker)
        waiting = join(broker)
        assert waiting == []
        load(broker)
        assert waiting[0].error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_those_that_waited_too_long_for_loading_are_told_so(tmp_path: Path) -> None:
    """They come again."""
    with coordinating_broker(tmp_path, is_loaded=False) as broker:
        waiting = join(broker)
        broker.services.delayed_topics.expire(float("inf"))
        assert waiting[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_the_guard_names_what_is_wrong(broker: Broker) -> None:
    """An empty id first, then a stop, then another coordinator."""
    groups = broker.services.groups
    assert answered(join(broker, group="")).error_code == ErrorCode.INVALID_GROUP_ID
    assert commit(broker, 5, group="") == ErrorCode.NONE
    broker.lead(CONSUMER_OFFSETS, epoch=1, leader=2, isr=(2,))
    assert heartbeat(broker, "m", 1) == ErrorCode.NOT_COORDINATOR
    groups.stop()
    assert heartbeat(broker, "m", 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_only_a_new_member_makes_a_group(broker: Broker) -> None:
    """One that comes with an id was in a group that nobody knows any more."""
    assert answered(join(broker, "m-1")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert heartbeat(broker, "m-1", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert answered(sync(broker, "m-1", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert list(broker.services.groups) == []


def test_a_stable_group_survives_its_coordinator(tmp_path: Path) -> None:
    """Its members go on with their heartbeats, and their offsets are there."""
    with coordinating_broker(tmp_path) as broker:
        member_id, generation = stable_member(broker)
        assert commit(broker, 42, member_id=member_id, generation_id_or_member_epoch=generation, metadata="x") == 0
    with coordinating_broker(tmp_path) as again:
        assert heartbeat(again, member_id, generation) == ErrorCode.NONE
        row = fetch(again)
        assert (row.committed_offset, row.metadata) == (42, "x")
        assert answered(sync(again, member_id, generation)).assignment == b"assigned"


def test_an_assignment_is_stored_before_it_is_given_out(broker: Broker) -> None:
    """While a replica in sync lacks it, members wait."""
    member_id = join(broker)[0].member_id
    joined = answered(join(broker, member_id))
    broker.lead(CONSUMER_OFFSETS, epoch=1, isr=(1, 2))
    waiting = sync(broker, member_id, joined.generation_id, {member_id: b"mine"})
    assert waiting == []
    broker.lead(CONSUMER_OFFSETS, epoch=2, isr=(1,))
    assert (waiting[0].error_code, waiting[0].assignment) == (0, b"mine")


def test_an_assignment_that_is_not_stored_in_time_makes_members_join_again(broker: Broker) -> None:
    """They are told so, and the group rebalances."""
    member_id = join(broker)[0].member_id
    joined = answered(join(broker, member_id))
    broker.lead(CONSUMER_OFFSETS, epoch=1, isr=(1, 2))
    waiting = sync(broker, member_id, joined.generation_id, {member_id: b"mine"})
    broker.services.partitions.waits.produces.expire(float("inf"))
    assert waiting[0].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert heartbeat(broker, member_id, joined.generation_id) == ErrorCode.REBALANCE_IN_PROGRESS


def test_those_who_wait_are_sent_away_when_another_broker_takes_over(broker: Broker) -> None:
    """With NOT_COORDINATOR they look for it."""
    stable_member(broker)
    second = join(broker)[0].member_id
    waiting = join(broker, second)
    assert waiting == []
    broker.lead(CONSUMER_OFFSETS, epoch=1, leader=2, isr=(2,))
    assert waiting[0].error_code == ErrorCode.NOT_COORDINATOR
    assert list(broker.services.groups) == []


def test_those_who_wait_are_answered_when_the_broker_stops(broker: Broker) -> None:
    """Nobody is left waiting for a broker that is gone."""
    stable_member(broker)
    waiting = join(broker, join(broker)[0].member_id)
    broker.services.groups.stop()
    assert waiting[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_member_that_is_silent_is_removed_when_its_session_ends(broker: Broker) -> None:
    """And the group is stored as empty."""
    member_id, generation = stable_member(broker)
    written = log_end(broker)
    pass_time(broker, SESSION_MS - 1)
    assert heartbeat(broker, member_id, generation) == ErrorCode.NONE
    pass_time(broker, SESSION_MS - 1)
    assert heartbeat(broker, member_id, generation) == ErrorCode.NONE
    pass_time(broker, SESSION_MS)
    assert heartbeat(broker, member_id, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert log_end(broker) == written + 1


def test_a_group_that_fails_when_its_time_comes_is_looked_at_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its members would wait for ever."""
    member_id, generation = stable_member(broker)

    def fail(now_ms: int) -> None:
        raise KeyError(now_ms)

    (entry,) = broker.services.groups
    with monkeypatch.context() as patched:
        patched.setattr(entry.group, "tick", fail)
        pass_time(broker, SESSION_MS)
    pass_time(broker, 1_000)
    assert heartbeat(broker, member_id, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_loaded_members_have_sessions_too(tmp_path: Path) -> None:
    """One that never comes to the new coordinator is removed."""
    with coordinating_broker(tmp_path) as broker:
        member_id, generation = stable_member(broker)
    with coordinating_broker(tmp_path) as again:
        pass_time(again, SESSION_MS)
        assert heartbeat(again, member_id, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_older_epoch_changes_nothing(broker: Broker) -> None:
    """Loading and giving up may race; the newest epoch is right."""
    groups = broker.services.groups
    member_id, generation = stable_member(broker)
    groups.became_leader(0, 7)
    groups.resigned(0, 6)
    assert heartbeat(broker, member_id, generation) == ErrorCode.NONE
    groups.resigned(0, 8)
    groups.became_leader(0, 7)
    assert heartbeat(broker, member_id, generation) == ErrorCode.NOT_COORDINATOR


def test_a_partition_that_is_given_up_while_it_is_read_is_forgotten(tmp_path: Path) -> None:
    """What was read is of no use then."""
    with coordinating_broker(tmp_path, is_loaded=False) as broker:
        broker.services.groups.resigned(0, 5)
        load(broker)
        assert not broker.services.groups.is_ready(0)


def test_a_topic_that_is_made_anew_begins_with_its_first_epoch(broker: Broker) -> None:
    """The epochs of the one before do not count."""
    broker.services.groups.became_leader(0, 9)
    broker.services.partitions.drop(OFFSETS, delete=True)
    assert not broker.services.groups.is_ready(0)
    broker.lead(CONSUMER_OFFSETS, epoch=0)
    load(broker)
    assert broker.services.groups.is_ready(0)


def test_what_cannot_be_read_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is served from half of a log."""
    with coordinating_broker(tmp_path, is_loaded=False) as broker:
        partition = broker.services.partitions.find(OFFSETS)
        assert partition is not None

        def fail(*_: object) -> None:
            raise OSError("the disk is gone")

        monkeypatch.setattr("ottla.broker.groups.shards.replay_log", fail)
        monkeypatch.setattr("ottla.broker.groups.shards._RETRY_SECONDS", 3600.0)
        load(broker)
        assert not broker.services.groups.is_ready(0)
        assert broker.services.groups.is_loading


def test_leaving_is_answered_for_each_member(broker: Broker) -> None:
    """The others need not wait for the session to end."""
    member_id, generation = stable_member(broker)
    broker.lead(TOPIC, epoch=1)
    assert heartbeat(broker, member_id, generation) == ErrorCode.NONE
    errors = broker.services.groups.leave(GROUP, [LeaveMember(member_id), LeaveMember("nobody")])
    assert errors == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert broker.services.groups.leave("unknown", [LeaveMember("m")]) == [ErrorCode.UNKNOWN_MEMBER_ID]
