"""A group of the new protocol under a clock that the test moves, with clients that do what they are told.

a = group.joins("a", topics=["t"])   a client joins; `a.owned` is what it reads
a.heartbeats()                       it tells what it has; what it is told to give back it gives back
group.passes(5_000)                  the clock moves, and what is due happens
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

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
from ottla.broker.groups.records import StoredRecord
from ottla.protocol.errors import ErrorCode


def topic_id(name: str) -> bytes:
    """The id of a topic that was made once."""
    return name.encode().rjust(16, b"\0")


def partitions(name: str, *indexes: int) -> PartitionSet:
    """Some partitions of a topic."""
    return frozenset(TopicIdPartition(topic_id(name), index) for index in indexes)


@dataclass(eq=False)
class Client:
    """A consumer: what it believes, and what it does with the answers."""

    script: ConsumerScript
    member_id: str
    fields: dict[str, Any]
    epoch: int = 0
    owned: PartitionSet = NO_PARTITIONS
    replies: list[ConsumerHeartbeatReply] = field(default_factory=list)
    sent: int = 0

    @property
    def error(self) -> ErrorCode:
        """How its last request ended."""
        return self.replies[-1].error

    def joins(self) -> Client:
        """Join, with nothing in its hands."""
        self.epoch, self.owned = 0, NO_PARTITIONS
        return self.sends(rebalance_timeout_ms=60_000, owned=NO_PARTITIONS, **self.fields)

    def heartbeats(self, **fields: Any) -> Client:
        """Say what it has, and do what it is told."""
        return self.sends(**{"owned": self.owned, **fields})

    def leaves(self, epoch: int = -1) -> Client:
        """Leave; -2 for a while."""
        self.owned = NO_PARTITIONS
        return self.sends(member_epoch=epoch, instance_id=self.fields.get("instance_id"))

    def sends(self, **fields: Any) -> Client:
        """Send a heartbeat and take the answer when it comes."""
        request = ConsumerHeartbeat(
            **{"member_id": self.member_id, "member_epoch": self.epoch, "client_host": "/10.0.0.5", **fields}
        )
        self.sent += 1
        number = self.sent

        def respond(reply: ConsumerHeartbeatReply) -> None:
            # It has given up waiting for an answer once it has sent another request.
            if number == self.sent:
                self.takes(reply)

        script = self.script
        script.take(script.group.heartbeat(request, respond, script.topics, script.now_ms))
        return self

    def takes(self, reply: ConsumerHeartbeatReply) -> None:
        """Take an answer."""
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
        # The log: what is stored under each key. Where `write_error` is set, storing fails; where `is_slow`, it waits.
        self.stored: dict[bytes, bytes] = {}
        self.write_error = ErrorCode.NONE
        self.is_slow = False
        self._open_writes: list[Write] = []

    @property
    def state(self) -> str:
        """The state by the name that clients know."""
        return self.group.state.value

    @property
    def causes(self) -> list[str]:
        """Why it rebalanced."""
        return [each.cause for each in self.group.timeline.rebalances]

    def has_topics(self, **counts: int) -> None:
        """Set the topics that there are."""
        self.topics = {name: TopicShape(topic_id(name), partition_count) for name, partition_count in counts.items()}

    def client(self, name: str, topics: Iterable[str] = ("t",), **fields: Any) -> Client:
        """Make a client."""
        return Client(self, name, {"topic_names": tuple(topics), **fields})

    def joins(self, name: str, topics: Iterable[str] = ("t",), **fields: Any) -> Client:
        """Make a client, and let it join."""
        return self.client(name, topics, **fields).joins()

    def passes(self, milliseconds: int) -> None:
        """Let time pass; what is due happens when it is due."""
        end_ms = self.now_ms + milliseconds
        for _ in range(1000):
            deadline_ms = self.group.next_deadline_ms
            if deadline_ms is None or deadline_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, deadline_ms)
            self.take(self.group.tick(self.now_ms))
        self.now_ms = end_ms

    def take(self, effects: Effects) -> None:
        """Do what an operation asks for."""
        for reply in effects.replies:
            reply()
        if effects.write is not None:
            self._open_writes.append(effects.write)
            if not self.is_slow:
                self.writes_end()

    def writes_end(self) -> None:
        """Let what is being stored be stored, or fail."""
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
        """Return what a broker would make of the log."""
        return read_group("g", [StoredRecord(key, value) for key, value in self.stored.items()])

    def moves(self) -> None:
        """Let another broker take the group over, with what was stored; what was on its way is lost."""
        self.write_error = ErrorCode.NOT_COORDINATOR
        self.writes_end()
        self.write_error = ErrorCode.NONE
        self.group.close(ErrorCode.NOT_COORDINATOR)
        stored = self.read_back()
        assert stored is not None
        self.group = ConsumerGroup.load(stored, self.config, self.new_id, self.now_ms)
