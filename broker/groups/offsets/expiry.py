"""The rules for the expiry of committed offsets, without I/O."""

from __future__ import annotations

from ottla.broker.groups.classic.messages import CONSUMER_PROTOCOL_TYPE, GroupState
from ottla.broker.groups.coordinated_group import CoordinatedGroup
from ottla.broker.groups.offsets.offset_store import CommittedOffset
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.records import NO_TIMESTAMP


def expired_offsets(entry: CoordinatedGroup, now_ms: int, retention_ms: int) -> list[TopicPartition]:
    """Return the partitions whose offsets have expired. The caller holds the group's lock.

    (a) An empty group that had members: all offsets, after the retention time since the last member left.
    (b) A stable group of consumers: offsets of topics without subscription, after the retention time since the commit.
    (c) A group that never had members: all offsets, after the retention time since the commit.
    (d) Any other group, for example one that rebalances: none.

    In (a) to (c), an expiry time from the client overrides the retention. A commit under way prevents expiry.
    """
    group, offsets = entry.group, entry.offsets
    is_empty = group.state.value == GroupState.EMPTY.value
    empty_since_ms = NO_TIMESTAMP
    subscribed: dict[str, bool] = {}
    if group.protocol_type and is_empty:
        empty_since_ms = entry.state_since_ms
    elif group.protocol_type == CONSUMER_PROTOCOL_TYPE and group.state.value == GroupState.STABLE.value:
        topics = {partition.topic for partition in offsets.committed}
        subscribed = {topic: group.is_subscribed_to(topic) for topic in topics}
    elif group.protocol_type:
        return []

    def is_expired(partition: TopicPartition, committed: CommittedOffset) -> bool:
        if subscribed.get(partition.topic, False) or offsets.is_pending(partition):
            return False
        if committed.expire_timestamp_ms != NO_TIMESTAMP:
            return now_ms >= committed.expire_timestamp_ms
        since_ms = committed.commit_timestamp_ms if empty_since_ms == NO_TIMESTAMP else empty_since_ms
        return now_ms - since_ms >= retention_ms

    return [partition for partition, committed in offsets.committed.items() if is_expired(partition, committed)]
