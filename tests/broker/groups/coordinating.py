"""A group coordinator for tests, with real logs and codecs. Tests control its timers and its loading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.broker.handlers.data_path import Broker, running_broker

from ottla.broker.coordination.placement import CONSUMER_OFFSETS
from ottla.protocol.api import Api
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

GROUP = "readers"
TOPIC = "t"
SESSION_MS = 10_000


@contextmanager
def coordinating_broker(
    directory: Path, services: Mapping[str, Any] | None = None, *, is_loaded: bool = True, **options: str
) -> Iterator[Broker]:
    """Run a broker that leads a topic and the only partition of `__consumer_offsets`. Options use underscores.

    `services` take the place of those that the broker would have.
    """
    named = {"group.initial.rebalance.delay.ms": "0"} | {key.replace("_", "."): value for key, value in options.items()}
    with running_broker(
        directory, {CONSUMER_OFFSETS: {"cleanup.policy": "compact"}}, named, **services or {}
    ) as broker:
        broker.lead(TOPIC)
        broker.lead(CONSUMER_OFFSETS)
        if is_loaded:
            load(broker)
        yield broker


def load(broker: Broker) -> None:
    """Load the groups of partitions that the broker has begun to lead."""
    broker.services.groups.work.run_due()


def pass_time(broker: Broker, milliseconds: int) -> None:
    """Let time pass, then fire the timers that are due."""
    broker.now_ms += milliseconds
    broker.services.groups.rebalances.expire(broker.now_ms / 1000)


def answered(answer: Any) -> Any:
    """Return the response; fail if it has not come yet."""
    if isinstance(answer, list):
        (answer,) = answer
    return answer


def join(broker: Broker, member_id: str = "", *, version: int = 9, group: str = GROUP, **fields: Any) -> Any:
    """Send a JoinGroup request; return the response, or a list that gets it later."""
    fields = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": 60_000 if version >= 1 else -1} | fields
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"\x00\x00\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x00")]
    fields.setdefault("protocols", protocols)
    body = JoinGroupRequest(group_id=group, member_id=member_id, protocol_type="consumer", **fields)
    return broker.ask(Api.JOIN_GROUP, version, body)


def sync(
    broker: Broker,
    member_id: str,
    generation: int,
    assignments: Mapping[str, bytes] | None = None,
    *,
    version: int = 5,
    protocol: tuple[str | None, str | None] = ("consumer", "range"),
) -> Any:
    """Send a SyncGroup request. The leader sends the assignments by member id."""
    rows = [SyncGroupRequestAssignment(member_id=each, assignment=data) for each, data in (assignments or {}).items()]
    body = SyncGroupRequest(
        group_id=GROUP,
        generation_id=generation,
        member_id=member_id,
        protocol_type=protocol[0],
        protocol_name=protocol[1],
        assignments=rows,
    )
    return broker.ask(Api.SYNC_GROUP, version, body)


def heartbeat(broker: Broker, member_id: str, generation: int, *, version: int = 4, group: str = GROUP) -> int:
    """Send a heartbeat; return the error code."""
    body = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)
    return int(broker.ask(Api.HEARTBEAT, version, body).error_code)


def stable_member(broker: Broker, **fields: Any) -> tuple[str, int]:
    """Make a stable group with one member; return its id and the generation."""
    member_id = join(broker, version=9, **fields)[0].member_id
    joined = answered(join(broker, member_id, version=9, **fields))
    assert joined.error_code == 0
    assert answered(sync(broker, member_id, joined.generation_id, {member_id: b"assigned"})).error_code == 0
    return member_id, joined.generation_id


def commit_body(offset: int, *, group: str = GROUP, topic: str = TOPIC, **fields: Any) -> OffsetCommitRequest:
    """Return a request that commits one offset."""
    row = OffsetCommitRequestPartition(
        partition_index=fields.pop("partition", 0),
        committed_offset=offset,
        committed_metadata=fields.pop("metadata", ""),
        commit_timestamp=fields.pop("commit_timestamp", -1),
        committed_leader_epoch=fields.pop("leader_epoch", -1),
    )
    return OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])], **fields
    )


def commit(broker: Broker, offset: int, *, version: int = 8, **fields: Any) -> int:
    """Commit one offset; return the error code."""
    answer = answered(broker.ask(Api.OFFSET_COMMIT, version, commit_body(offset, **fields)))
    return int(answer.topics[0].partitions[0].error_code)


def fetch(broker: Broker, *, version: int = 8, group: str = GROUP, topic: str = TOPIC, **fields: Any) -> Any:
    """Fetch one offset; return its partition in the response."""
    if version >= 8:
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
        body = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], **fields)
        answer = answered(broker.ask(Api.OFFSET_FETCH, version, body)).groups[0]
    else:
        asked = [OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
        body = OffsetFetchRequest(group_id=group, topics=asked, **fields)
        answer = answered(broker.ask(Api.OFFSET_FETCH, version, body))
    return answer.topics[0].partitions[0] if answer.topics else answer
