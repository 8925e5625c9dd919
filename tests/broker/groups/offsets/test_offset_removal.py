"""Removals of offsets and concurrent commits: the one that is later in the log wins."""

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

from ottla.broker.coordination.placement import CONSUMER_OFFSETS
from ottla.broker.groups.classic.messages import LeaveMember
from ottla.broker.groups.offsets.offset_store import CommittedOffset
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
    """Return the committed offset of the group."""
    return int(fetch(broker).committed_offset)


def lose_groups(broker: Broker) -> None:
    """Let the broker drop its groups and start to load them again."""
    broker.services.groups.shards.forget(0)
    broker.services.groups.became_leader(0, 0)


def committed_in_log(broker: Broker) -> int:
    """Return the committed offset of the group after a failover."""
    lose_groups(broker)
    load(broker)
    return committed(broker)


def begin_commit(broker: Broker, offset: int) -> list[Any]:
    """Begin a commit. The response is added to the list when the follower has the commit."""
    waiting: list[Any] = broker.ask(Api.OFFSET_COMMIT, 8, commit_body(offset))
    assert waiting == []
    return waiting


def delete(broker: Broker) -> None:
    """Delete the offset by request of an administrator."""
    assert broker.services.group_offsets.delete(GROUP, [PARTITION]) == {PARTITION: ErrorCode.NONE}


def delete_topic(broker: Broker) -> None:
    """Tell the coordinator that the topic was deleted."""
    broker.services.group_offsets.partitions_deleted([PARTITION, TopicPartition("other", 3)])


REMOVALS = pytest.mark.parametrize("remove", [delete, delete_topic])


@REMOVALS
@pytest.mark.parametrize("has_older", [True, False], ids=["over an older one", "the first"])
def test_a_commit_under_way_does_not_undo_a_later_removal(
    broker: Broker, remove: Callable[[Broker], None], has_older: bool
) -> None:
    """The commit is before the removal in the log. The result is the same after a failover."""
    if has_older:
        commit(broker, 1)
    broker.lead(CONSUMER_OFFSETS, epoch=1, isr=(1, 2))
    waiting = begin_commit(broker, 2)
    remove(broker)
    broker.lead(CONSUMER_OFFSETS, epoch=2, isr=(1,))

    assert waiting[0].topics[0].partitions[0].error_code == ErrorCode.NONE
    assert (committed(broker), committed_in_log(broker)) == (NOTHING, NOTHING)


@REMOVALS
def test_a_commit_after_a_removal_takes_effect_despite_earlier_commits_under_way(
    broker: Broker, remove: Callable[[Broker], None]
) -> None:
    """Both commits complete at the same moment."""
    broker.lead(CONSUMER_OFFSETS, epoch=1, isr=(1, 2))
    begin_commit(broker, 1)
    remove(broker)
    begin_commit(broker, 2)
    broker.lead(CONSUMER_OFFSETS, epoch=2, isr=(1,))

    assert (committed(broker), committed_in_log(broker)) == (2, 2)


def test_offsets_of_a_deleted_topic_are_gone_at_once(broker: Broker) -> None:
    """A new topic with the same name must not get the old offsets, and must keep its own."""
    commit(broker, 5)
    delete_topic(broker)
    assert committed(broker) == NOTHING
    commit(broker, 7)
    load(broker)

    assert (committed(broker), committed_in_log(broker)) == (7, 7)


def test_offsets_of_a_topic_that_is_deleted_while_they_are_loaded_are_never_returned(broker: Broker) -> None:
    """No client can commit to a new topic with the same name before loading ends."""
    commit(broker, 5)
    lose_groups(broker)
    delete_topic(broker)
    returned: list[int] = []
    broker.services.groups.on_loaded = lambda: returned.append(committed(broker))
    load(broker)

    assert returned == [NOTHING]
    commit(broker, 7)
    load(broker)
    assert committed_in_log(broker) == 7


def test_without_enough_replicas_a_deletion_fails_unless_the_topic_is_gone(tmp_path: Path) -> None:
    """The administrator must know that nothing was written. Offsets of a deleted topic are removed anyway."""
    with coordinating_broker(tmp_path, min_insync_replicas="2") as broker:
        entry = broker.services.groups.group_or_new(GROUP)
        entry.offsets.put({PARTITION: CommittedOffset(5, -1, "", 0, log_offset=0)})

        refused = broker.services.group_offsets.delete(GROUP, [PARTITION])
        assert (refused, committed(broker)) == ({PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE}, 5)
        delete_topic(broker)
        assert committed(broker) == NOTHING


def listed(broker: Broker) -> list[str]:
    """Return the groups in the response to ListGroups."""
    return [group.group_id for group in broker.ask(Api.LIST_GROUPS, 4, ListGroupsRequest()).groups]


def listed_in_log(broker: Broker) -> list[str]:
    """Return the groups in the response to ListGroups after a failover."""
    lose_groups(broker)
    load(broker)
    return listed(broker)


@REMOVALS
@pytest.mark.parametrize("had_members", [True, False], ids=["of members", "of nobody"])
def test_an_empty_group_is_deleted_with_its_last_offset(
    broker: Broker, remove: Callable[[Broker], None], had_members: bool
) -> None:
    """Kafka does the same."""
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
    """An offset or a commit under way keeps the group alive."""
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
    """Its only offsets, of a topic without subscription, are deleted."""
    broker.lead("other")
    member_id, generation = stable_member(broker)
    commit(broker, 5, topic="other", member_id=member_id, generation_id_or_member_epoch=generation)
    other = TopicPartition("other", 0)

    assert broker.services.group_offsets.delete(GROUP, [other]) == {other: ErrorCode.NONE}
    assert (listed(broker), listed_in_log(broker)) == ([GROUP], [GROUP])


def test_a_group_that_loses_its_last_offset_while_it_is_loaded_is_never_listed(broker: Broker) -> None:
    """Its topic is deleted in the meantime."""
    commit(broker, 5)
    lose_groups(broker)
    delete_topic(broker)
    load(broker)

    assert (listed(broker), listed_in_log(broker)) == ([], [])
