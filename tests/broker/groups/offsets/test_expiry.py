"""The rules for the expiry of offsets, case by case."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.groups.classic.messages import GroupState
from ottla.broker.groups.coordinated_group import CoordinatedGroup
from ottla.broker.groups.offsets.expiry import expired_offsets
from ottla.broker.groups.offsets.offset_store import CommittedOffset, OffsetStore
from ottla.protocol.identifiers import TopicPartition

READ, UNREAD = TopicPartition("read", 0), TopicPartition("unread", 0)
RETENTION_MS = 100
COMMITTED_MS, EMPTY_MS = 1_000, 2_000


def entry(state: GroupState, protocol_type: str | None, *, expire_ms: int = -1) -> CoordinatedGroup:
    """Return a group that has committed two offsets and reads one of the topics."""
    group: Any = SimpleNamespace(
        group_id="g", state=state, protocol_type=protocol_type, is_subscribed_to=lambda topic: topic == "read"
    )
    offset = CommittedOffset(5, -1, "", COMMITTED_MS, expire_ms)
    return CoordinatedGroup(group, OffsetStore({READ: offset, UNREAD: offset}), 0, EMPTY_MS)


@pytest.mark.parametrize(
    ("state", "protocol_type", "since_ms", "expired"),
    [
        (GroupState.EMPTY, "consumer", EMPTY_MS, [READ, UNREAD]),
        (GroupState.EMPTY, "connect", EMPTY_MS, [READ, UNREAD]),
        (GroupState.EMPTY, None, COMMITTED_MS, [READ, UNREAD]),
        (GroupState.STABLE, "consumer", COMMITTED_MS, [UNREAD]),
        (GroupState.STABLE, "connect", COMMITTED_MS, []),
        (GroupState.PREPARING_REBALANCE, "consumer", COMMITTED_MS, []),
        (GroupState.COMPLETING_REBALANCE, "consumer", COMMITTED_MS, []),
    ],
)
def test_expiry_depends_on_the_state_of_the_group(
    state: GroupState, protocol_type: str | None, since_ms: int, expired: list[TopicPartition]
) -> None:
    """Offsets expire exactly at the end of the retention time."""
    group = entry(state, protocol_type)
    assert expired_offsets(group, since_ms + RETENTION_MS - 1, RETENTION_MS) == []
    assert expired_offsets(group, since_ms + RETENTION_MS, RETENTION_MS) == expired


def test_an_expiry_time_from_the_client_overrides_the_retention() -> None:
    """It may be later than the retention time."""
    group = entry(GroupState.EMPTY, None, expire_ms=9_000)
    assert expired_offsets(group, 8_999, RETENTION_MS) == []
    assert expired_offsets(group, 9_000, RETENTION_MS) == [READ, UNREAD]


def test_an_offset_that_is_being_committed_stays() -> None:
    """A tombstone would come after the commit in the log, and delete it."""
    group = entry(GroupState.EMPTY, None)
    group.offsets.begin([READ], 0)
    group.offsets.put_pending(9, {UNREAD: CommittedOffset(6, -1, "", 0)})
    assert expired_offsets(group, 1_000_000, RETENTION_MS) == []
