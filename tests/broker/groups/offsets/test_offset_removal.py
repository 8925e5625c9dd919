"""Removed offsets, and commits around them: what lies later in the log wins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.groups.coordinating import (
    GROUP,
    TOPIC,
    commit,
    commit_body,
    coordinating_broker,
    fetch,
    load,
    stable_member,
)
from tests.broker.handlers.data_path import Broker

from ottla.broker.groups.classic.messages import LeaveMember
from ottla.broker.groups.offsets.offset_store import CommittedOffset
from ottla.broker.groups.placement import CONSUMER_OFFSETS
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.list_groups import ListGroupsRequest

PARTITION = TopicPartition(TOPIC, 0)
NOTHING = -1


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Return a broker that coordinates all groups."""
    with coordinating_broker(tmp_path) as broker:
        yield broker


def committed(broker: Broker) -> int:
    """Return the offset that the group has."""
    return int(fetch(broker).committed_offset)


def lose_groups(broker: Broker) -> None:
    """Have the broker begin to read its groups again."""
    broker.services.groups.shards.forget(0)
    broker.services.groups.became_leader(0, 0)


def committed_in_log(broker: Broker) -> int:
    """Return the offset that the group has after a failover."""
    lose_groups(broker)
    load(broker)
    return committed(broker)


def begin_commit(broker: Broker, offset: int) -> list[Any]:
    """Commit; the answer will be in the list when the follower has it."""
    waiting: list[Any] = broker.ask(Api.OFFSET_COMMIT, 8, commit_body(offset))
    assert waiting == []
    return waiting


def delete(broker: Broker) -> None:
    """Delete the offset as an administrator does."""
    assert broker.services.group_offsets.delete(GROUP, [PARTITION]) == {PARTITION: ErrorCode.NONE}


def delete_topic(broker: Broker) -> None:
    """Tell the coordinator that the topic is gone."""
    broker.services.group_offsets.partitions_deleted([PARTITION, TopicPartition("other", 3)])


REMOVALS = pytest.mark.parametrize("remove", [delete, delete_topic])


@REMOVALS
@pytest.mark.parametrize("has_older", [True, False], ids=["over an older one", "the first"])
def test_a_commit_under_way_does_not_bring_back_what_was_removed_after_it(
    broker: Broker, remove: Callable[[Broker], None], has_older: bool
) -> None:
    """It lies before the removal in the log, though it is committed later: neither here, nor after a failover."""
    if has_older:
        commit(broker, 1)
    broker.lead(CONSUMER_OFFSETS, epoch=1, isr=(1, 2))
    waiting = begin_commit(broker, 2)
    remove(broker)
    broker.lead(CONSUMER_OFFSETS, epoch=2, isr=(1,))

    assert waiting[0].topics[0].partitions[0].error_code == ErrorCode.NONE
    assert (committed(broker), committed_in_log(broker)) == (NOTHING, NOTHING)


@REMOVALS
def test_a_commit_after_a_removal_counts_whatever_is_still_under_way(
    broker: Broker, remove: Callable[[Broker], None]
) -> None:
    """Both commits are committed at the same moment."""
    broker.lead(CONSUMER_OFFSETS, epoch=1, isr=(1, 2))
    begin_commit(broker, 1)
    remove(broker)
    begin_commit(broker, 2)
    broker.lead(CONSUMER_OFFSETS, epoch=2, isr=(1,))

    assert (committed(broker), committed_in_log(broker)) == (2, 2)


def test_offsets_of_a_deleted_topic_are_gone_at_once(broker: Broker) -> None:
    """Whatever else the coordinator has to do: they must neither be told nor removed to the topic's successor."""
    commit(broker, 5)
    delete_topic(broker)
    assert committed(broker) == NOTHING
    commit(broker, 7)
    load(broker)

    assert (committed(broker), committed_in_log(broker)) == (7, 7)


def test_offsets_of_a_topic_that_is_deleted_while_they_are_read_are_never_told(broker: Broker) -> None:
    """Nobody can have committed anything to its successor before."""
    commit(broker, 5)
    lose_groups(broker)
    delete_topic(broker)
    told: list[int] = []
    broker.services.groups.on_loaded = lambda: told.append(committed(broker))
    load(broker)

    assert told == [NOTHING]
    commit(broker, 7)
    load(broker)
    assert committed_in_log(broker) == 7


def test_without_enough_replicas_a_deletion_fails_unless_the_topic_is_gone(tmp_path: Path) -> None:
    """An administrator must know that nothing was written; what became of a topic does not depend on it."""
    with coordinating_broker(tmp_path, min_insync_replicas="2") as broker:
        entry = broker.services.groups.group_or_new(GROUP)
        entry.offsets.put({PARTITION: CommittedOffset(5, -1, "", 0, log_offset=0)})

        refused = broker.services.group_offsets.delete(GROUP, [PARTITION])
        assert (refused, committed(broker)) == ({PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE}, 5)
        delete_topic(broker)
        assert committed(broker) == NOTHING


def listed(broker: Broker) -> list[str]:
    """Return the groups that an administrator sees."""
    return [group.group_id for group in broker.ask(Api.LIST_GROUPS, 4, ListGroupsRequest()).groups]


def listed_in_log(broker: Broker) -> list[str]:
    """Return the groups that an administrator sees after a failover."""
    lose_groups(broker)
    load(broker)
    return listed(broker)


@REMOVALS
@pytest.mark.parametrize("had_members", [True, False], ids=["of members", "of nobody"])
def test_an_empty_group_goes_with_its_last_offset(
    broker: Broker, remove: Callable[[Broker], None], had_members: bool
) -> None:
    """As in Kafka: there is nothing left to know of it."""
    if had_members:
        member_id, _ = stable_member(broker)
        broker.services.groups.leave(GROUP, [LeaveMember(member_id)])
    commit(broker, 5)
    assert listed(broker) == [GROUP]

    remove(broker)

    assert (listed(broker), listed_in_log(broker)) == ([], [])
    assert (commit(broker, 7), committed(broker)) == (ErrorCode.NONE, 7)


@REMOVALS
def test_a_group_with_anything_left_stays(broker: Broker, remove: Callable[[Broker], None]) -> None:
    """An offset, a commit under way, a member."""
    broker.lead("other")
    commit(broker, 5)
    commit(broker, 6, topic="other")
    remove(broker)
    assert listed(broker) == [GROUP]

    broker.lead(CONSUMER_OFFSETS, epoch=1, isr=(1, 2))
    assert broker.ask(Api.OFFSET_COMMIT, 8, commit_body(8, topic="other")) == []
    assert broker.services.group_offsets.delete(GROUP, [PARTITION]) == {PARTITION: ErrorCode.NONE}
    assert listed(broker) == [GROUP]


def test_a_group_with_members_stays_without_offsets(broker: Broker) -> None:
    """Those of a topic that none of them reads are all that it has."""
    broker.lead("other")
    member_id, generation = stable_member(broker)
    commit(broker, 5, topic="other", member_id=member_id, generation_id_or_member_epoch=generation)
    other = TopicPartition("other", 0)

    assert broker.services.group_offsets.delete(GROUP, [other]) == {other: ErrorCode.NONE}
    assert (listed(broker), listed_in_log(broker)) == ([GROUP], [GROUP])


def test_a_group_whose_last_offset_goes_while_it_is_read_is_never_seen(broker: Broker) -> None:
    """Its topic was deleted meanwhile."""
    commit(broker, 5)
    lose_groups(broker)
    delete_topic(broker)
    load(broker)

    assert (listed(broker), listed_in_log(broker)) == ([], [])
