"""A consumer group with a clock that the test controls, and with clients that follow their assignments.

a = group.joins("a", topics=["t"])   a client joins; `a.owned` has its partitions
a.heartbeats()                       the client reports its partitions, and takes over the assignment in the reply
group.passes(5_000)                  the clock moves, and deadlines on the way fire
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from ottla.broker.coordination.stored_records import StoredRecord
from ottla.broker.groups.classic.messages import GroupSnapshot
from ottla.broker.groups.consumer.assignors import NO_PARTITIONS, PartitionSet, TopicIdPartition
from ottla.broker.groups.consumer.group import ConsumerGroup
from ottla.broker.groups.consumer.messages import (
    ConsumerGroupConfig,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    TopicShape,
)
from ottla.broker.groups.consumer.records import StoredConsumerGroup, read_group
from ottla.broker.groups.effects import Effects, Write
from ottla.protocol.errors import ErrorCode


def topic_id(name: str) -> bytes:
    """Return the id of a topic."""
    return name.encode().rjust(16, b"\0")


def partitions(name: str, *indexes: int) -> PartitionSet:
    """Return some partitions of a topic."""
    return frozenset(TopicIdPartition(topic_id(name), index) for index in indexes)


@dataclass(eq=False)
class Client:
    """A consumer with its own view of its epoch and its partitions."""

    script: ConsumerScript
    member_id: str
    fields: dict[str, Any]
    epoch: int = 0
    owned: PartitionSet = NO_PARTITIONS
    replies: list[ConsumerHeartbeatReply] = field(default_factory=list)
    sent: int = 0

    @property
    def error(self) -> ErrorCode:
        """The error code of the last reply."""
        return self.replies[-1].error

    def joins(self) -> Client:
        """Join, owning no partitions."""
        self.epoch, self.owned = 0, NO_PARTITIONS
        return self.sends(rebalance_timeout_ms=60_000, owned=NO_PARTITIONS, **self.fields)

    def heartbeats(self, **fields: Any) -> Client:
        """Send a heartbeat with the owned partitions."""
        return self.sends(**{"owned": self.owned, **fields})

    def leaves(self, epoch: int = -1) -> Client:
        """Leave; epoch -2 means temporarily."""
        self.owned = NO_PARTITIONS
        return self.sends(member_epoch=epoch, instance_id=self.fields.get("instance_id"))

    def sends(self, **fields: Any) -> Client:
        """Send a request, and handle the reply when it comes."""
        request = ConsumerHeartbeat(
            **{"member_id": self.member_id, "member_epoch": self.epoch, "client_host": "/10.0.0.5", **fields}
        )
        self.sent += 1
        number = self.sent

        def respond(reply: ConsumerHeartbeatReply) -> None:
            # A client that has sent another request no longer waits for this reply.
            if number == self.sent:
                self.takes(reply)

        script = self.script
        script.take(script.group.heartbeat(request, respond, script.topics, script.now_ms))
        return self

    def takes(self, reply: ConsumerHeartbeatReply) -> None:
        """Handle a reply."""
        self.replies.append(reply)
        if reply.error is ErrorCode.NONE:
            self.epoch = reply.member_epoch
            self.member_id = reply.member_id or self.member_id
            if reply.assignment is not None:
                self.owned = reply.assignment


class ConsumerScript:
    """A group with its clock, its topics and its storage."""

    def __init__(self, topics: dict[str, int] | None = None, **options: Any) -> None:
        self.now_ms = 0
        self.config = ConsumerGroupConfig(**options)
        numbers = count(1)
        self.new_id = lambda: f"new-{next(numbers)}"
        self.group = ConsumerGroup("g", self.config, self.new_id)
        self.topics: dict[str, TopicShape] = {}
        self.has_topics(**(topics or {"t": 4}))
        # The stored values. Writes fail if `write_error` is set, and wait for `writes_end` if `is_slow`.
        self.stored: dict[bytes, bytes] = {}
        self.write_error = ErrorCode.NONE
        self.is_slow = False
        self._open_writes: list[Write] = []

    @property
    def state(self) -> str:
        """The name of the state in Kafka's protocol."""
        return self.group.state.value

    @property
    def causes(self) -> list[str]:
        """The causes of all rebalances."""
        return [each.cause for each in self.group.timeline.rebalances]

    def has_topics(self, **counts: int) -> None:
        """Set the topics of the cluster."""
        self.topics = {name: TopicShape(topic_id(name), partition_count) for name, partition_count in counts.items()}

    def client(self, name: str, topics: Iterable[str] = ("t",), **fields: Any) -> Client:
        """Create a client."""
        return Client(self, name, {"topic_names": tuple(topics), **fields})

    def joins(self, name: str, topics: Iterable[str] = ("t",), **fields: Any) -> Client:
        """Create a client and let it join."""
        return self.client(name, topics, **fields).joins()

    def passes(self, milliseconds: int) -> None:
        """Let time pass, and fire all deadlines on the way."""
        end_ms = self.now_ms + milliseconds
        for _ in range(1000):
            deadline_ms = self.group.next_deadline_ms
            if deadline_ms is None or deadline_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, deadline_ms)
            self.take(self.group.tick(self.now_ms))
        self.now_ms = end_ms

    def take(self, effects: Effects) -> None:
        """Carry out the effects of an operation."""
        for reply in effects.replies:
            reply()
        if effects.write is not None:
            self._open_writes.append(effects.write)
            if not self.is_slow:
                self.writes_end()

    def writes_end(self) -> None:
        """Finish all open writes, with `write_error` as their result."""
        writes, self._open_writes = self._open_writes, []
        for write in writes:
            assert not isinstance(write.snapshot, GroupSnapshot)
            if self.write_error is ErrorCode.NONE:
                for record in write.snapshot:
                    if record.value is None:
                        self.stored.pop(record.key, None)
                    else:
                        self.stored[record.key] = record.value
            self.take(write.done(self.write_error))

    def read_back(self) -> StoredConsumerGroup | None:
        """Return the group that a broker would load from the log."""
        return read_group("g", [StoredRecord(key, value) for key, value in self.stored.items()])

    def moves(self) -> None:
        """Move the group to another broker, which loads it from the log. Open writes are lost."""
        self.write_error = ErrorCode.NOT_COORDINATOR
        self.writes_end()
        self.write_error = ErrorCode.NONE
        self.group.close(ErrorCode.NOT_COORDINATOR)
        stored = self.read_back()
        assert stored is not None
        self.group = ConsumerGroup.load(stored, self.config, self.new_id, self.now_ms)
