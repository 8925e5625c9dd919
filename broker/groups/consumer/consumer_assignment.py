"""What a group of the new protocol consists of: who is to have what, at which epoch, and what is on its way to the log.

`consumer_group.py` tells more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from ottla.broker.groups.classic.messages import Effects, Write
from ottla.broker.groups.consumer.assignors import ASSIGNORS, NO_PARTITIONS, Reader, TopicIdPartition
from ottla.broker.groups.consumer.consumer_member import ConsumerMember
from ottla.broker.groups.consumer.consumer_messages import (
    ConsumerGroupConfig,
    ConsumerGroupState,
    ConsumerHeartbeatReply,
    RespondHeartbeat,
    TopicShape,
)
from ottla.broker.groups.consumer.consumer_records import RecordKind, StoredConsumerGroup, record_of
from ottla.broker.groups.consumer.topic_pattern import TopicPattern
from ottla.broker.groups.consumer.topic_pattern_parser import PatternError
from ottla.broker.groups.timeline import Timeline
from ottla.protocol.errors import ErrorCode, KafkaError

# A record by its kind and its member; no member for those of the group.
RecordName = tuple[RecordKind, str]

# What members do not mean when they say `.*`.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})


@dataclass(slots=True, eq=False)
class _OpenWrite:
    """Records on their way to the log, and who waits for them."""

    names: frozenset[RecordName]
    waiting: list[tuple[RespondHeartbeat, ConsumerHeartbeatReply]] = field(default_factory=list)


class ConsumerAssignment:
    """The epochs, the members and the assignment of one group."""

    def __init__(self, stored: StoredConsumerGroup, config: ConsumerGroupConfig) -> None:
        self.group_id = stored.group_id
        self.is_dead = False
        self.timeline = Timeline()
        self._config = config
        self._stored = stored
        # Who has each partition, or has not given it back yet.
        self._owners: dict[TopicIdPartition, str] = {}
        # All topics as of the last heartbeat, and by expression which of them match.
        self._topics: Mapping[str, TopicShape] | None = None
        self._patterns: dict[str, TopicPattern] = {}
        self._matching: dict[str, frozenset[str]] = {}
        # What has changed and is not on its way to the log, and the last that is.
        self._dirty: set[RecordName] = set()
        self._open_write: _OpenWrite | None = None

    def __repr__(self) -> str:
        return f"<ConsumerGroup {self.group_id} {self.state.value} epoch={self.epoch} members={len(self.members)}>"

    @property
    def epoch(self) -> int:
        """How often something has changed that the assignment depends on."""
        return self._stored.epoch

    @property
    def assignment_epoch(self) -> int:
        """The group's epoch that the assignment is made for."""
        return self._stored.assignment_epoch

    @property
    def members(self) -> dict[str, ConsumerMember]:
        """The members by their ids; changed by the group alone."""
        return self._stored.members

    @property
    def targets(self) -> dict[str, frozenset[TopicIdPartition]]:
        """What each member is to have; changed by the group alone."""
        return self._stored.targets

    @property
    def topics(self) -> Mapping[str, TopicShape]:
        """The topics that members read, as they were when the assignment was made."""
        return self._stored.topics

    @property
    def state(self) -> ConsumerGroupState:
        """Where the group stands."""
        if self.is_dead:
            return ConsumerGroupState.DEAD
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        is_stable = all(each.is_reconciled_to(self.assignment_epoch) for each in self.members.values())
        return ConsumerGroupState.STABLE if is_stable else ConsumerGroupState.RECONCILING

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in it."""
        return not self.members

    @property
    def assignor_name(self) -> str:
        """The assignor that most members ask for."""
        votes = Counter(each.server_assignor for each in self.members.values() if each.server_assignor is not None)
        return votes.most_common(1)[0][0] if votes else self._config.assignors[0]

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read a topic; expressions as they matched when the assignment was made."""
        is_assigned = bool(self.members) and topic in self.topics
        return is_assigned or any(topic in member.topic_names for member in self.members.values())

    # Topics

    def _names(self, member: ConsumerMember) -> frozenset[str]:
        names = frozenset(member.topic_names)
        return names if member.topic_regex is None else names | self._matching.get(member.topic_regex, frozenset())

    def _check_regex(self, regex: str, topics: Mapping[str, TopicShape]) -> None:
        """Understand an expression, and find the topics that match."""
        if regex in self._matching:
            return
        try:
            pattern = TopicPattern(regex)
            self._matching[regex] = pattern.matching(topics) - INTERNAL_TOPICS
        except PatternError as error:
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error
        self._patterns[regex] = pattern

    def _refresh(self, topics: Mapping[str, TopicShape], now_ms: int) -> None:
        """Look at the topics if they or the subscriptions have changed; what is new asks for an assignment."""
        if topics is self._topics and self.epoch == self.assignment_epoch:
            return
        if topics is not self._topics:
            self._match_again(topics)
            self._topics = topics
        names = frozenset[str]().union(*(self._names(member) for member in self.members.values()))
        read = {name: topics[name] for name in sorted(names) if name in topics}
        if read == self.topics:
            return
        cause = _topic_change(self.topics, read)
        self._stored.topics = read
        self._dirty.add((RecordKind.TOPICS, ""))
        if self.epoch == self.assignment_epoch:
            self._bump(cause, now_ms)

    def _match_again(self, topics: Mapping[str, TopicShape]) -> None:
        in_use = {member.topic_regex for member in self.members.values()} - {None}
        self._patterns = {regex: pattern for regex, pattern in self._patterns.items() if regex in in_use}
        for regex in sorted(filter(None, in_use)):
            try:
                if regex not in self._patterns:
                    self._patterns[regex] = TopicPattern(regex)
                self._matching[regex] = self._patterns[regex].matching(topics) - INTERNAL_TOPICS
            except PatternError:
                # It was good for the topics that there were: what it matched then stays.
                self._matching.setdefault(regex, frozenset())
        self._matching = {regex: names for regex, names in self._matching.items() if regex in in_use}

    # Epochs

    def _bump(self, cause: str, now_ms: int) -> None:
        """Note that another assignment is needed, and why."""
        self._stored.epoch += 1
        self._dirty.add((RecordKind.GROUP, ""))
        self.timeline.ended(now_ms)
        self.timeline.began(cause, now_ms)
        if not self.members:
            self.timeline.joined(self.epoch, 0, now_ms)
            self.timeline.ended(now_ms)

    def _assign(self, now_ms: int) -> None:
        """Say who is to have what at the group's epoch."""
        shapes = self.topics
        readers = {
            member_id: Reader(
                frozenset(shapes[name].topic_id for name in self._names(member) if name in shapes),
                self.targets.get(member_id, NO_PARTITIONS),
                member.instance_id,
            )
            for member_id, member in self.members.items()
        }
        assign = ASSIGNORS[self.assignor_name]
        targets = assign(readers, {shape.topic_id: shape.partition_count for shape in shapes.values()})
        changed = {member_id for member_id, target in targets.items() if target != self.targets.get(member_id)}
        self._dirty.update((RecordKind.TARGET, member_id) for member_id in changed)
        self._dirty.add((RecordKind.TARGET_EPOCH, ""))
        self._stored.targets = targets
        self._stored.assignment_epoch = self.epoch
        self.timeline.joined(self.epoch, len(self.members), now_ms)

    # Storing

    def _answer(
        self,
        effects: Effects,
        respond: RespondHeartbeat | None = None,
        reply: ConsumerHeartbeatReply | None = None,
    ) -> None:
        """Store what has changed; whoever hears of it waits for that, and for what was on its way before."""
        if self._dirty:
            write = self._open_write = _OpenWrite(frozenset(self._dirty))
            self._dirty.clear()
            records = tuple(record_of(self._stored, *name) for name in sorted(write.names))
            effects.write = Write(records, lambda error: self._written(write, error))
        if respond is None or reply is None:
            return
        if self._open_write is not None:
            self._open_write.waiting.append((respond, reply))
        else:
            effects.replies.append(partial(respond, reply))

    def _written(self, write: _OpenWrite, error: ErrorCode) -> Effects:
        if self._open_write is write:
            self._open_write = None
        if error is not ErrorCode.NONE:
            self._dirty |= write.names
        # There is no rebalance that a member of this protocol could be told to take part in.
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if error is ErrorCode.REBALANCE_IN_PROGRESS else error
        effects = Effects()
        for respond, reply in write.waiting:
            answer = reply if code is ErrorCode.NONE else ConsumerHeartbeatReply(code)
            effects.replies.append(partial(respond, answer))
        return effects


def _topic_change(before: Mapping[str, TopicShape], now: Mapping[str, TopicShape]) -> str:
    """Say in words what has become of the topics."""
    for name, shape in now.items():
        known = before.get(name)
        if known is None:
            return f"topic {name} appeared"
        if known.topic_id != shape.topic_id:
            return f"topic {name} was made anew"
        if known.partition_count != shape.partition_count:
            return f"topic {name} got partitions: {known.partition_count} became {shape.partition_count}"
    gone = next(name for name in before if name not in now)
    return f"topic {gone} is gone"
