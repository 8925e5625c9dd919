"""The coordinator: which groups it has, what it stores before it replies, and its timers."""

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

from ottla.broker.coordination.placement import CONSUMER_OFFSETS
from ottla.broker.groups.classic.messages import LeaveMember
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition

OFFSETS = TopicPartition(CONSUMER_OFFSETS, 0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Return a broker that coordinates all groups."""
    with coordinating_broker(tmp_path) as broker:
        yield broker


def log_end(broker: Broker) -> int:
    """Return the end offset of `__consumer_offsets`."""
    partition = broker.services.partitions.find(OFFSETS)
    assert partition is not None
    return partition.log.log_end_offset


def check_delayed(broker: Broker) -> None:
    """Continue the requests that wait for the coordinator."""
    broker.services.delayed_topics.check(CONSUMER_OFFSETS)


def test_requests_to_a_group_are_refused_while_it_is_loaded(tmp_path: Path) -> None:
    """Heartbeats succeed nevertheless, and a sync makes the member join again."""
    with coordinating_broker(tmp_path, is_loaded=False) as broker:
        with pytest.raises(KafkaError) as refused:
            broker.services.groups.with_group(GROUP)
        assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert heartbeat(broker, "m", 1) == ErrorCode.NONE
        assert answered(sync(broker, "m", 1)).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_joins_commits_and_fetches_wait_a_moment_for_the_groups_to_be_loaded(tmp_path: Path) -> None:
    """Loading takes milliseconds, and an error would add the backoff of the client to that."""
    with coordinating_broker(tmp_path, is_loaded=False) as broker:
        broker.services.groups.on_loaded = partial(check_delayed, broker)
        waiting = join(broker)
        assert waiting == []
        load(broker)
        assert waiting[0].error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_requests_that_wait_too_long_for_loading_get_an_error(tmp_path: Path) -> None:
    """The error is retriable."""
    with coordinating_broker(tmp_path, is_loaded=False) as broker:
        waiting = join(broker)
        broker.services.delayed_topics.expire(float("inf"))
        assert waiting[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_refused_requests_name_the_reason(broker: Broker) -> None:
    """The reasons are an empty id, another coordinator, and a stopped broker."""
    groups = broker.services.groups
    assert answered(join(broker, group="")).error_code == ErrorCode.INVALID_GROUP_ID
    assert commit(broker, 5, group="") == ErrorCode.NONE
    broker.lead(CONSUMER_OFFSETS, epoch=1, leader=2, isr=(2,))
    assert heartbeat(broker, "m", 1) == ErrorCode.NOT_COORDINATOR
    groups.stop()
    assert heartbeat(broker, "m", 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_only_a_new_member_creates_a_group(broker: Broker) -> None:
    """A member with an id was in a group that no longer exists."""
    assert answered(join(broker, "m-1")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert heartbeat(broker, "m-1", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert answered(sync(broker, "m-1", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert list(broker.services.groups) == []


def test_a_stable_group_survives_a_failover(tmp_path: Path) -> None:
    """Its members continue with their heartbeats, and the offsets are loaded."""
    with coordinating_broker(tmp_path) as broker:
        member_id, generation = stable_member(broker)
        assert commit(broker, 42, member_id=member_id, generation_id_or_member_epoch=generation, metadata="x") == 0
    with coordinating_broker(tmp_path) as again:
        assert heartbeat(again, member_id, generation) == ErrorCode.NONE
        row = fetch(again)
        assert (row.committed_offset, row.metadata) == (42, "x")
        assert answered(sync(again, member_id, generation)).assignment == b"assigned"


def test_an_assignment_is_stored_before_members_receive_it(broker: Broker) -> None:
    """Members wait until all in-sync replicas have it."""
    member_id = join(broker)[0].member_id
    joined = answered(join(broker, member_id))
    broker.lead(CONSUMER_OFFSETS, epoch=1, isr=(1, 2))
    waiting = sync(broker, member_id, joined.generation_id, {member_id: b"mine"})
    assert waiting == []
    broker.lead(CONSUMER_OFFSETS, epoch=2, isr=(1,))
    assert (waiting[0].error_code, waiting[0].assignment) == (0, b"mine")


def test_an_assignment_that_is_not_stored_in_time_makes_members_join_again(broker: Broker) -> None:
    """They get REBALANCE_IN_PROGRESS, and the group rebalances."""
    member_id = join(broker)[0].member_id
    joined = answered(join(broker, member_id))
    broker.lead(CONSUMER_OFFSETS, epoch=1, isr=(1, 2))
    waiting = sync(broker, member_id, joined.generation_id, {member_id: b"mine"})
    broker.services.partitions.waits.produces.expire(float("inf"))
    assert waiting[0].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert heartbeat(broker, member_id, joined.generation_id) == ErrorCode.REBALANCE_IN_PROGRESS


def test_waiting_requests_are_refused_when_another_broker_takes_over(broker: Broker) -> None:
    """NOT_COORDINATOR makes clients look for the new coordinator."""
    stable_member(broker)
    second = join(broker)[0].member_id
    waiting = join(broker, second)
    assert waiting == []
    broker.lead(CONSUMER_OFFSETS, epoch=1, leader=2, isr=(2,))
    assert waiting[0].error_code == ErrorCode.NOT_COORDINATOR
    assert list(broker.services.groups) == []


def test_waiting_requests_are_answered_when_the_broker_stops(broker: Broker) -> None:
    """The error makes clients look for another coordinator."""
    stable_member(broker)
    waiting = join(broker, join(broker)[0].member_id)
    broker.services.groups.stop()
    assert waiting[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_silent_member_is_removed_when_its_session_expires(broker: Broker) -> None:
    """The empty group is stored."""
    member_id, generation = stable_member(broker)
    written = log_end(broker)
    pass_time(broker, SESSION_MS - 1)
    assert heartbeat(broker, member_id, generation) == ErrorCode.NONE
    pass_time(broker, SESSION_MS - 1)
    assert heartbeat(broker, member_id, generation) == ErrorCode.NONE
    pass_time(broker, SESSION_MS)
    assert heartbeat(broker, member_id, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert log_end(broker) == written + 1


def test_a_failed_timer_is_repeated(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise members would wait forever."""
    member_id, generation = stable_member(broker)

    def fail(now_ms: int) -> None:
        raise KeyError(now_ms)

    (entry,) = broker.services.groups
    with monkeypatch.context() as patched:
        patched.setattr(entry.group, "tick", fail)
        pass_time(broker, SESSION_MS)
    pass_time(broker, 1_000)
    assert heartbeat(broker, member_id, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_sessions_of_loaded_members_expire(tmp_path: Path) -> None:
    """A member that never contacts the new coordinator is removed."""
    with coordinating_broker(tmp_path) as broker:
        member_id, generation = stable_member(broker)
    with coordinating_broker(tmp_path) as again:
        pass_time(again, SESSION_MS)
        assert heartbeat(again, member_id, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_older_epoch_changes_nothing(broker: Broker) -> None:
    """Becoming the leader and resigning may race, so only newer epochs count."""
    groups = broker.services.groups
    member_id, generation = stable_member(broker)
    groups.became_leader(0, 7)
    groups.resigned(0, 6)
    assert heartbeat(broker, member_id, generation) == ErrorCode.NONE
    groups.resigned(0, 8)
    groups.became_leader(0, 7)
    assert heartbeat(broker, member_id, generation) == ErrorCode.NOT_COORDINATOR


def test_a_partition_that_is_given_up_while_it_is_loaded_is_dropped(tmp_path: Path) -> None:
    """The loaded groups are not used."""
    with coordinating_broker(tmp_path, is_loaded=False) as broker:
        broker.services.groups.resigned(0, 5)
        load(broker)
        assert not broker.services.groups.is_ready("readers")


def test_a_recreated_topic_starts_at_epoch_0(broker: Broker) -> None:
    """The epochs of the deleted topic do not count."""
    broker.services.groups.became_leader(0, 9)
    broker.services.partitions.drop(OFFSETS, delete=True)
    assert not broker.services.groups.is_ready("readers")
    broker.lead(CONSUMER_OFFSETS, epoch=0)
    load(broker)
    assert broker.services.groups.is_ready("readers")


def test_failed_loading_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No group of the partition is served before that."""
    with coordinating_broker(tmp_path, is_loaded=False) as broker:
        partition = broker.services.partitions.find(OFFSETS)
        assert partition is not None

        def fail(*_: object) -> None:
            raise OSError("the disk is gone")

        monkeypatch.setattr("ottla.broker.groups.coordinator.replay_log", fail)
        monkeypatch.setattr("ottla.broker.coordination.shards._RETRY_SECONDS", 3600.0)
        load(broker)
        assert not broker.services.groups.is_ready("readers")
        assert broker.services.groups.is_loading


def test_each_leaving_member_has_its_own_error(broker: Broker) -> None:
    """Unknown members and groups get UNKNOWN_MEMBER_ID."""
    member_id, generation = stable_member(broker)
    broker.lead(TOPIC, epoch=1)
    assert heartbeat(broker, member_id, generation) == ErrorCode.NONE
    errors = broker.services.groups.leave(GROUP, [LeaveMember(member_id), LeaveMember("nobody")])
    assert errors == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert broker.services.groups.leave("unknown", [LeaveMember("m")]) == [ErrorCode.UNKNOWN_MEMBER_ID]
