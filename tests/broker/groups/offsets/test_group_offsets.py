"""Commits, fetches, deletion and expiry of the offsets of groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.groups.coordinating import (
    GROUP,
    TOPIC,
    answered,
    commit,
    commit_body,
    coordinating_broker,
    fetch,
    heartbeat,
    join,
    load,
    pass_time,
    stable_member,
)
from tests.broker.handlers.data_path import NOW_MS, Broker

from ottla.broker.coordination.placement import CONSUMER_OFFSETS
from ottla.broker.groups.classic.messages import LeaveMember
from ottla.broker.groups.offsets.group_offsets import GroupOffsets
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition

PARTITION = TopicPartition(TOPIC, 0)
OFFSETS = TopicPartition(CONSUMER_OFFSETS, 0)
MINUTE_MS = 60_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Return a broker that coordinates all groups, and keeps offsets for an hour."""
    with coordinating_broker(tmp_path, offsets_retention_minutes="60", offset_metadata_max_bytes="10") as broker:
        yield broker


def offsets(broker: Broker) -> GroupOffsets:
    """Return the object that handlers use."""
    return broker.services.group_offsets


def committed(broker: Broker, group: str = GROUP) -> int:
    """Return the committed offset of a group."""
    return int(fetch(broker, group=group).committed_offset)


def reloaded(broker: Broker) -> Broker:
    """Let the broker drop its groups and load them again."""
    broker.services.groups.shards.forget(0)
    broker.services.groups.became_leader(0, 0)
    load(broker)
    return broker


def test_a_simple_consumer_commits_without_being_in_a_group(broker: Broker) -> None:
    """The commit creates an empty group."""
    assert committed(broker) == -1
    assert commit(broker, 42, metadata="x") == ErrorCode.NONE
    assert committed(broker) == 42
    (entry,) = broker.services.groups
    assert (entry.group.state.value, entry.group.protocol_type) == ("Empty", None)
    assert committed(reloaded(broker)) == 42


def test_members_commit_in_their_generation(broker: Broker) -> None:
    """Other clients may not commit while the group has members."""
    member_id, generation = stable_member(broker)
    fields: dict[str, Any] = {"member_id": member_id, "generation_id_or_member_epoch": generation}
    assert commit(broker, 5, **fields) == ErrorCode.NONE
    assert (
        commit(broker, 6, **(fields | {"generation_id_or_member_epoch": generation + 1}))
        == ErrorCode.ILLEGAL_GENERATION
    )
    assert commit(broker, 6, **(fields | {"member_id": "other"})) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(broker, 6) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(broker, 6, group="unknown", **fields) == ErrorCode.ILLEGAL_GENERATION
    assert committed(broker) == 5


def test_a_commit_extends_the_session(broker: Broker) -> None:
    """A commit counts as a heartbeat."""
    member_id, generation = stable_member(broker)
    for _ in range(3):
        pass_time(broker, 9_000)
        assert commit(broker, 5, member_id=member_id, generation_id_or_member_epoch=generation) == ErrorCode.NONE
    assert heartbeat(broker, member_id, generation) == ErrorCode.NONE


def test_partitions_are_refused_one_by_one(broker: Broker) -> None:
    """Unknown partitions and too long metadata are refused. The length is in UTF-16 units, as in Java."""
    assert commit(broker, 5, topic="nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(broker, 5, partition=9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(broker, 5, metadata="x" * 11) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert commit(broker, 5, metadata="\U0001f600" * 6) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert commit(broker, 5, metadata="\U0001f600" * 5) == ErrorCode.NONE


def test_a_commit_takes_effect_when_all_in_sync_replicas_have_it(broker: Broker) -> None:
    """Until then fetches return the previous offset."""
    assert commit(broker, 1) == ErrorCode.NONE
    broker.lead(CONSUMER_OFFSETS, epoch=1, isr=(1, 2))
    waiting = broker.ask(Api.OFFSET_COMMIT, 8, commit_body(2))
    assert (waiting, committed(broker)) == ([], 1)
    broker.lead(CONSUMER_OFFSETS, epoch=2, isr=(1,))
    assert waiting[0].topics[0].partitions[0].error_code == ErrorCode.NONE
    assert committed(broker) == 2


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (lambda broker: broker.services.partitions.waits.produces.expire(1e12), ErrorCode.REQUEST_TIMED_OUT),
        (lambda broker: broker.lead(CONSUMER_OFFSETS, epoch=2, leader=2, isr=(2,)), ErrorCode.NOT_COORDINATOR),
    ],
)
def test_a_commit_that_is_not_stored_in_time_fails(broker: Broker, end: Any, code: ErrorCode) -> None:
    """It may still take effect later, so the client commits again."""
    broker.lead(CONSUMER_OFFSETS, epoch=1, isr=(1, 2))
    waiting = broker.ask(Api.OFFSET_COMMIT, 8, commit_body(2))
    end(broker)
    assert waiting[0].topics[0].partitions[0].error_code == code


def test_a_commit_that_is_too_large_is_refused(tmp_path: Path) -> None:
    """The error is INVALID_COMMIT_OFFSET_SIZE."""
    with coordinating_broker(tmp_path, message_max_bytes="100") as broker:
        assert commit(broker, 5, metadata="x" * 100) == ErrorCode.INVALID_COMMIT_OFFSET_SIZE


def test_commits_fail_with_too_few_replicas_in_sync(tmp_path: Path) -> None:
    """Nothing is written in this case."""
    with coordinating_broker(tmp_path, min_insync_replicas="2") as broker:
        assert commit(broker, 5) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert committed(broker) == -1


def test_a_broker_that_may_have_been_replaced_returns_no_offsets(broker: Broker) -> None:
    """A new coordinator may have newer ones. A fetch of an in-sync replica proves that there is none."""
    commit(broker, 5)
    unsure = GroupOffsets(broker.services.groups, lambda: False)
    with pytest.raises(KafkaError) as refused:
        unsure.fetch(GROUP, [PARTITION])
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    broker.lead(CONSUMER_OFFSETS, epoch=1, isr=(1, 2))
    partition = broker.services.partitions.find(OFFSETS)
    assert partition is not None
    partition.follower_positions()[2].last_fetch_ms = NOW_MS
    found = unsure.fetch(GROUP, [PARTITION])[PARTITION].committed
    assert found is not None
    assert found.offset == 5


def test_a_new_coordinator_returns_offsets_when_all_in_sync_replicas_have_them(broker: Broker) -> None:
    """Otherwise a failover could lose offsets that a client has seen."""
    commit(broker, 1)
    broker.lead(CONSUMER_OFFSETS, epoch=1, isr=(1, 2))
    waiting = broker.ask(Api.OFFSET_COMMIT, 8, commit_body(2))
    broker.services.groups.shards.forget(0)
    broker.services.groups.became_leader(0, 1)
    load(broker)
    assert fetch(broker).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    broker.lead(CONSUMER_OFFSETS, epoch=2, isr=(1,))
    assert (committed(broker), len(waiting)) == (2, 1)


def test_a_new_coordinator_with_too_few_replicas_returns_what_it_loaded(tmp_path: Path) -> None:
    """Kafka does the same. Otherwise no consumer could start until the other replicas are back."""
    with coordinating_broker(tmp_path, min_insync_replicas="2") as broker:
        broker.lead(CONSUMER_OFFSETS, epoch=1, isr=(1, 2))
        assert broker.ask(Api.OFFSET_COMMIT, 8, commit_body(5)) == []
        broker.lead(CONSUMER_OFFSETS, epoch=2, isr=(1,))
        broker.services.groups.shards.forget(0)
        broker.services.groups.became_leader(0, 2)
        load(broker)

        row = fetch(broker)
        assert (row.error_code, getattr(row, "committed_offset", None)) == (ErrorCode.NONE, 5)
        assert commit(broker, 6) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert committed(broker) == 5


def test_unstable_offsets_are_refused_if_stable_ones_are_required(broker: Broker) -> None:
    """An open transaction may change them."""
    commit(broker, 5)
    (entry,) = broker.services.groups
    known = entry.offsets.get(PARTITION)
    assert known is not None
    entry.offsets.put_pending(9, {PARTITION: known._replace(offset=8)})
    assert committed(broker) == 5
    row = fetch(broker, require_stable=True)
    assert (row.error_code, row.committed_offset) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)


def test_offsets_of_a_subscribed_topic_cannot_be_deleted(broker: Broker) -> None:
    """They can be deleted when the group is empty, and do not come back."""
    commit(broker, 5)
    member_id, _ = stable_member(broker)
    assert offsets(broker).delete(GROUP, [PARTITION]) == {PARTITION: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    broker.services.groups.leave(GROUP, [LeaveMember(member_id)])
    assert offsets(broker).delete(GROUP, [PARTITION]) == {PARTITION: ErrorCode.NONE}
    assert committed(reloaded(broker)) == -1
    with pytest.raises(KafkaError) as refused:
        offsets(broker).delete("unknown", [PARTITION])
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_only_an_empty_group_can_be_deleted(broker: Broker) -> None:
    """Its offsets are deleted with it, and it does not come back."""
    commit(broker, 5)
    member_id, _ = stable_member(broker)
    assert offsets(broker).delete_group(GROUP) is ErrorCode.NON_EMPTY_GROUP
    broker.services.groups.leave(GROUP, [LeaveMember(member_id)])
    assert offsets(broker).delete_group(GROUP) is ErrorCode.NONE
    assert offsets(broker).delete_group(GROUP) is ErrorCode.GROUP_ID_NOT_FOUND
    assert list(reloaded(broker).services.groups) == []


def test_offsets_of_a_deleted_topic_are_removed(broker: Broker) -> None:
    """They are removed from all groups, and do not come back."""
    commit(broker, 5)
    offsets(broker).partitions_deleted([PARTITION, TopicPartition("other", 3)])
    load(broker)
    assert committed(reloaded(broker)) == -1


def test_offsets_expire_when_their_group_has_been_empty_for_long_enough(broker: Broker) -> None:
    """The time counts from when the last member left. The group is deleted with its offsets."""
    member_id, generation = stable_member(broker)
    commit(broker, 5, member_id=member_id, generation_id_or_member_epoch=generation)
    broker.now_ms += 50 * MINUTE_MS
    broker.services.groups.leave(GROUP, [LeaveMember(member_id)])
    broker.now_ms += 59 * MINUTE_MS
    assert offsets(broker).expire() == 0
    broker.now_ms += 1 * MINUTE_MS
    assert offsets(broker).expire() == 1
    assert list(reloaded(broker).services.groups) == []


def test_the_time_since_a_group_is_empty_survives_a_failover(broker: Broker) -> None:
    """The time is stored with the group."""
    member_id, generation = stable_member(broker)
    commit(broker, 5, member_id=member_id, generation_id_or_member_epoch=generation)
    broker.services.groups.leave(GROUP, [LeaveMember(member_id)])
    broker.now_ms += 40 * MINUTE_MS
    reloaded(broker)
    broker.now_ms += 20 * MINUTE_MS
    assert offsets(broker).expire() == 1


def test_offsets_of_simple_consumers_expire_after_their_commit(broker: Broker) -> None:
    """An expiry time from the client overrides the retention."""
    commit(broker, 5, group="by-option")
    commit(broker, 5, group="by-client", version=4, retention_time_ms=10 * MINUTE_MS)
    broker.now_ms += 10 * MINUTE_MS
    assert offsets(broker).expire() == 1
    assert (committed(broker, "by-option"), committed(broker, "by-client")) == (5, -1)
    broker.now_ms += 50 * MINUTE_MS
    assert offsets(broker).expire() == 1


def test_offsets_of_subscribed_topics_do_not_expire(broker: Broker) -> None:
    """No offset expires while the group rebalances."""
    broker.lead("unread")
    member_id, generation = stable_member(broker, session_timeout_ms=1_800_000)
    fields: dict[str, Any] = {"member_id": member_id, "generation_id_or_member_epoch": generation}
    commit(broker, 5, **fields)
    commit(broker, 5, topic="unread", **fields)
    broker.now_ms += 60 * MINUTE_MS
    waiting = join(broker, join(broker)[0].member_id)
    assert (waiting, offsets(broker).expire()) == ([], 0)
    joined = answered(join(broker, member_id))
    assert joined.error_code == 0


def test_expiry_runs_at_regular_intervals(tmp_path: Path) -> None:
    """The interval is a configuration option."""
    with coordinating_broker(
        tmp_path, offsets_retention_check_interval_ms="1", offsets_retention_minutes="1"
    ) as broker:
        work = broker.services.groups.work
        broker.services.group_offsets.start()
        for _ in range(2):
            commit(broker, 5)
            broker.now_ms += MINUTE_MS
            while list(broker.services.groups):
                work.run_due()
