"""A group of the consumer protocol (KIP-848), as a pure state machine.

Three epochs follow each other:

    group epoch        grows when the input of the assignment changes: a member joins, leaves or subscribes to other
                       topics, or a subscribed topic appears, disappears or gets partitions
    assignment epoch   catches up at the next heartbeat of any member, when the assignor computes the target assignment
    member epoch       catches up when the member has revoked the partitions that are not in its target (`member.py`)

There is no barrier: a member never waits for all the others. A member whose partitions do not change notices nothing.

As in the classic group, nothing here reads a clock, sends or writes. An operation changes the group at once and returns
the records to store. Replies that depend on a change are sent when its records are stored. If a write fails, its
records are written again with the next change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Self

from msgspec import Struct, field
from msgspec.structs import replace

from ottla.broker.coordination.stored_records import StoredRecord
from ottla.broker.groups.classic.messages import CONSUMER_PROTOCOL_TYPE
from ottla.broker.groups.consumer.assignors import (
    ASSIGNORS,
    NO_PARTITIONS,
    PartitionSet,
    Reader,
    TopicIdPartition,
)
from ottla.broker.groups.consumer.member import ConsumerMember
from ottla.broker.groups.consumer.messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupConfig,
    ConsumerGroupState,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DescribingRight,
    MemberDescription,
    MemberState,
    RespondHeartbeat,
    TopicShape,
)
from ottla.broker.groups.consumer.records import (
    GROUP_KINDS,
    MEMBER_KINDS,
    RecordKind,
    StoredConsumerGroup,
    by_topic,
    record_of,
    tombstone_of,
)
from ottla.broker.groups.consumer.topic_pattern import TopicPattern
from ottla.broker.groups.consumer.topic_pattern_parser import PatternError
from ottla.broker.groups.effects import Effects, Write
from ottla.broker.groups.timeline import Timeline
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import INTERNAL_TOPICS

# A member's record must fit in a batch together with the records of other members that change at the same time.
_SUBSCRIPTION_LENGTH_MAX: Final = 256 * 1024

# A kind of record and a member id. The id is empty for records of the whole group.
RecordName = tuple[RecordKind, str]


class _View(Struct, frozen=True):
    """The topics that a member's client may not describe, of those that its regular expression matches."""

    regex: str
    describing: DescribingRight | None
    hidden: frozenset[str] = frozenset()

    def is_of(self, regex: str, describing: DescribingRight | None) -> bool:
        """Whether it is the view of a client with the same rights, through the same expression."""
        return regex == self.regex and _holder(describing) == _holder(self.describing)


class _OpenWrite(Struct, eq=False):
    """A write that has not finished, with the replies that wait for it."""

    names: frozenset[RecordName]
    waiting: list[tuple[RespondHeartbeat, ConsumerHeartbeatReply]] = field(default_factory=list)


class ConsumerGroup:
    """A group of the consumer protocol: its members, its epochs and its assignment."""

    # The kind of group, as ListGroups names it.
    type_name = "consumer"
    protocol_type = CONSUMER_PROTOCOL_TYPE

    def __init__(self, group_id: str, config: ConsumerGroupConfig, new_id: Callable[[], str]) -> None:
        """`new_id` returns an id for a member that joins without one."""
        self.group_id = group_id
        self.is_dead = False
        self.timeline = Timeline()
        self._config = config
        self._new_id = new_id
        self._stored = StoredConsumerGroup(group_id)
        # The member that each partition is assigned to, or that has not revoked it yet.
        self._owners: dict[TopicIdPartition, str] = {}
        # All topics as of the last heartbeat. By regular expression: its pattern, and the topics that it matches.
        self._topics: Mapping[str, TopicShape] | None = None
        self._patterns: dict[str, TopicPattern] = {}
        self._matching: dict[str, frozenset[str]] = {}
        # By member, if it has a regular expression and has been heard from here. And what the views follow from.
        self._views: dict[str, _View] = {}
        self._rules: object = None
        # The records that have changed and are not being written, and the last write that has not finished.
        self._dirty: set[RecordName] = set()
        self._open_write: _OpenWrite | None = None
        # Member ids by instance id.
        self._static: dict[str, str] = {}
        # When each session expires, in that order: all sessions have the same length, and a heartbeat moves to the end.
        self._sessions: dict[str, int] = {}
        # The deadlines of members that must revoke partitions.
        self._revocations: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<ConsumerGroup {self.group_id} {self.state.value} epoch={self.epoch} members={len(self.members)}>"

    @classmethod
    def load(
        cls, stored: StoredConsumerGroup, config: ConsumerGroupConfig, new_id: Callable[[], str], now_ms: int
    ) -> Self:
        """Restore a stored group. Its members keep their partitions; their sessions start now."""
        group = cls(stored.group_id, config, new_id)
        members, stored.members = stored.members, {}
        group._stored = stored
        # If a record was lost and two members have the same partition, the one with the higher epoch owns it.
        for member in sorted(members.values(), key=lambda member: member.epoch):
            group._put(member, now_ms)
            group._heard(member.member_id, now_ms)
        for member_id in stored.targets.keys() - members.keys():
            del stored.targets[member_id]
        group._dirty.clear()
        if members:
            group.timeline.noted("the coordinator moved to this broker", now_ms)
        return group

    @property
    def epoch(self) -> int:
        """The group epoch: it grows when the input of the assignment changes."""
        return self._stored.epoch

    @property
    def assignment_epoch(self) -> int:
        """The group epoch that the target assignment was computed for."""
        return self._stored.assignment_epoch

    @property
    def members(self) -> dict[str, ConsumerMember]:
        """The members by their ids. Only the group changes them."""
        return self._stored.members

    @property
    def targets(self) -> dict[str, frozenset[TopicIdPartition]]:
        """The target assignment: the partitions of each member. Only the group changes it."""
        return self._stored.targets

    @property
    def topics(self) -> Mapping[str, TopicShape]:
        """The subscribed topics, as they were when the target assignment was computed."""
        return self._stored.topics

    @property
    def state(self) -> ConsumerGroupState:
        """The state of the group."""
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
        """Whether the group has no members."""
        return not self.members

    @property
    def assignor_name(self) -> str:
        """The assignor with the most votes; the first one in the configuration if no member asks for one."""
        votes = Counter(each.server_assignor for each in self.members.values() if each.server_assignor is not None)
        return votes.most_common(1)[0][0] if votes else self._config.assignors[0]

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic. Regular expressions count as of the last target assignment."""
        is_assigned = bool(self.members) and topic in self.topics
        return is_assigned or any(topic in member.topic_names for member in self.members.values())

    # Heartbeats

    def heartbeat(
        self,
        request: ConsumerHeartbeat,
        respond: RespondHeartbeat,
        topics: Mapping[str, TopicShape],
        now_ms: int,
    ) -> Effects:
        """Handle a heartbeat: a member joins, stays or leaves.

        `topics` has all topics of the cluster. It must be the same object as in the last call unless a topic has
        changed. The caller has validated the request.
        """
        effects = Effects()
        try:
            if self.is_dead:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
                reply = self._leave(request, now_ms)
            else:
                reply = self._stay(request, topics, now_ms)
        except KafkaError as error:
            effects.replies.append(partial(respond, ConsumerHeartbeatReply(ErrorCode.of(error.code), error.detail)))
            return effects
        self._answer(effects, respond, reply)
        return effects

    def _stay(
        self, request: ConsumerHeartbeat, topics: Mapping[str, TopicShape], now_ms: int
    ) -> ConsumerHeartbeatReply:
        before = self._joining(request) if request.member_epoch == JOIN_EPOCH else self._known(request)
        member = before.updated(request)
        if member.subscription_length > _SUBSCRIPTION_LENGTH_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the subscription is too long")
        if member.topic_regex is not None:
            self._check_regex(member.topic_regex, topics)
        member_id = member.member_id
        # A static member that takes over its old place keeps its partitions, so it is not new.
        is_new = member_id not in self.members and before.instance_id not in self._static
        self._take_place(before, now_ms)
        self._put(member, now_ms)
        self._heard(member_id, now_ms)
        if is_new:
            self._bump(f"member {member_id} joined from {member.client_host}", now_ms)
        elif not member.subscribes_as(before):
            self._bump(f"member {member_id} changed its subscription", now_ms)
        self._refresh(member, request.describing, topics, now_ms)
        if self.epoch > self.assignment_epoch:
            self._assign(now_ms)
        target = self.targets.get(member_id, NO_PARTITIONS)
        reconciled = member.reconciled(self.assignment_epoch, target, self._owners, request.owned)
        if reconciled is not member:
            self._put(reconciled, now_ms)
            if self.state is ConsumerGroupState.STABLE:
                self.timeline.ended(now_ms)
        has_news = (
            request.is_full
            or request.member_epoch == JOIN_EPOCH
            or request.member_epoch != before.epoch
            or reconciled.assigned != before.assigned
        )
        return ConsumerHeartbeatReply(
            ErrorCode.NONE,
            member_id=member_id,
            member_epoch=reconciled.epoch,
            heartbeat_interval_ms=self._config.heartbeat_interval_ms,
            assignment=reconciled.assigned if has_news else None,
        )

    def _joining(self, request: ConsumerHeartbeat) -> ConsumerMember:
        """Return the member that joins: a new one, or an existing one that joins again."""
        member_id = request.member_id or self._new_id()
        old_id = member_id if request.instance_id is None else self._static.get(request.instance_id)
        old = None if old_id is None else self.members.get(old_id)
        if old is None:
            if len(self.members) >= self._config.max_size:
                detail = f"the group already has {self._config.max_size} members"
                raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, detail)
            return ConsumerMember(member_id, instance_id=request.instance_id)
        if old.member_id != member_id and not old.is_away:
            detail = f"member {old.member_id} uses the instance id {request.instance_id}"
            raise KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID, detail)
        return old.rejoining(member_id)

    def _known(self, request: ConsumerHeartbeat) -> ConsumerMember:
        member = self._member(request)
        if not member.may_heartbeat_at(request.member_epoch, request.owned):
            detail = f"member {member.member_id} is at epoch {member.epoch}, not {request.member_epoch}"
            raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, detail)
        return member

    def _member(self, request: ConsumerHeartbeat) -> ConsumerMember:
        if request.instance_id is not None:
            known_id = self._static.get(request.instance_id)
            if known_id is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {request.instance_id}")
            if known_id != request.member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, f"member {known_id} uses {request.instance_id} now")
        member = self.members.get(request.member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no member {request.member_id}")
        return member

    def _take_place(self, member: ConsumerMember, now_ms: int) -> None:
        """Let a static member that came back take over its old place."""
        if member.instance_id is None:
            return
        old_id = self._static.get(member.instance_id)
        if old_id is None or old_id == member.member_id:
            return
        target = self.targets.get(old_id)
        self._remove(self.members[old_id])
        if target is not None:
            self.targets[member.member_id] = target
            self._dirty.add((RecordKind.TARGET, member.member_id))
        self.timeline.noted(f"static member {member.instance_id} came back", now_ms)

    # Leaving

    def _leave(self, request: ConsumerHeartbeat, now_ms: int) -> ConsumerHeartbeatReply:
        member = self._member(request)
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            self._put(member.away(), now_ms)
        else:
            self._remove(member)
            self._bump(f"member {member.member_id} left", now_ms)
        return ConsumerHeartbeatReply(ErrorCode.NONE, member_id=member.member_id, member_epoch=request.member_epoch)

    @property
    def next_deadline_ms(self) -> int | None:
        """The earliest time at which `tick` has something to do; None if there is none."""
        if self.is_dead:
            return None
        first = next(iter(self._sessions.values()), None)
        return min(self._revocations.values() if first is None else [first, *self._revocations.values()], default=None)

    def tick(self, now_ms: int) -> Effects:
        """Remove members whose session has expired, or that did not revoke partitions in time."""
        effects = Effects()
        silent = [member_id for member_id, deadline_ms in self._sessions.items() if now_ms >= deadline_ms]
        for member_id in silent:
            member = self.members[member_id]
            self._remove(member)
            silent_s = self._config.session_timeout_ms / 1000
            self._bump(f"member {member_id} missed heartbeats for {silent_s:g} s from {member.client_host}", now_ms)
        late = [member_id for member_id, deadline_ms in self._revocations.items() if now_ms >= deadline_ms]
        for member_id in late:
            member = self.members[member_id]
            self._remove(member)
            late_s = member.rebalance_timeout_ms / 1000
            self._bump(f"member {member_id} did not revoke partitions within {late_s:g} s", now_ms)
        self._answer(effects)
        return effects

    def close(self, error: ErrorCode) -> Effects:
        """Mark the group as dead, because it is deleted or has moved. Waiting replies are sent after their write."""
        self.is_dead = True
        return Effects()

    # Members

    def _put(self, member: ConsumerMember, now_ms: int) -> None:
        """Add or replace a member, and note which records have changed."""
        member_id = member.member_id
        before = self.members.get(member_id)
        self.members[member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member_id
        if member == before:
            return
        self._note_changes(before, member)
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._revocations.pop(member_id, None)
        elif before is None or before.revoking != member.revoking:
            self._revocations[member_id] = now_ms + max(member.rebalance_timeout_ms, 0)
        for partition in (NO_PARTITIONS if before is None else before.owned) - member.owned:
            if self._owners.get(partition) == member_id:
                del self._owners[partition]
        for partition in member.owned:
            self._owners[partition] = member_id

    def _note_changes(self, before: ConsumerMember | None, member: ConsumerMember) -> None:
        if before is None or _progress(before) != _progress(member):
            self._dirty.add((RecordKind.CURRENT, member.member_id))
        if before is None or before != replace(
            member,
            epoch=before.epoch,
            previous_epoch=before.previous_epoch,
            state=before.state,
            assigned=before.assigned,
            revoking=before.revoking,
        ):
            self._dirty.add((RecordKind.MEMBER, member.member_id))

    def _remove(self, member: ConsumerMember) -> None:
        member_id = member.member_id
        del self.members[member_id]
        self._views.pop(member_id, None)
        self._sessions.pop(member_id, None)
        self._revocations.pop(member_id, None)
        self.targets.pop(member_id, None)
        if member.instance_id is not None and self._static.get(member.instance_id) == member_id:
            del self._static[member.instance_id]
        for partition in member.owned:
            if self._owners.get(partition) == member_id:
                del self._owners[partition]
        self._dirty.update((kind, member_id) for kind in MEMBER_KINDS)

    def _heard(self, member_id: str, now_ms: int) -> None:
        self._sessions.pop(member_id, None)
        self._sessions[member_id] = now_ms + self._config.session_timeout_ms

    # Topics

    def _names(self, member: ConsumerMember) -> frozenset[str]:
        """Return the topics that a member subscribes to. Its expression matches only what its client may describe."""
        names, regex = frozenset(member.topic_names), member.topic_regex
        if regex is None:
            return names
        matching, view = self._matching.get(regex, frozenset[str]()), self._views.get(member.member_id)
        if view is None or view.regex != regex:
            # Its rights are not known until its next heartbeat. Until then nothing is added to what the group reads.
            return names | (matching & self.topics.keys())
        return names | (matching - view.hidden)

    def _check_regex(self, regex: str, topics: Mapping[str, TopicShape]) -> None:
        """Compile a regular expression and find the topics that it matches; KafkaError if it is invalid."""
        if regex in self._matching:
            return
        try:
            pattern = TopicPattern(regex)
            self._matching[regex] = pattern.matching(topics) - INTERNAL_TOPICS
        except PatternError as error:
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error
        self._patterns[regex] = pattern

    def _refresh(
        self,
        member: ConsumerMember,
        describing: DescribingRight | None,
        topics: Mapping[str, TopicShape],
        now_ms: int,
    ) -> None:
        """Update the subscribed topics if topics, rights or subscriptions have changed; raise the group epoch if
        needed.
        """
        has_other_topics = topics is not self._topics
        has_other_views = self._look(member, describing, topics)
        if not has_other_topics and not has_other_views and self.epoch == self.assignment_epoch:
            return
        names = frozenset[str]().union(*(self._names(member) for member in self.members.values()))
        read = {name: topics[name] for name in sorted(names) if name in topics}
        if read == self.topics:
            if has_other_views and self.epoch == self.assignment_epoch:
                self._bump(f"the expression of member {member.member_id} matches other topics", now_ms)
            return
        cause = _topic_change(self.topics, read)
        self._stored.topics = read
        self._dirty.add((RecordKind.TOPICS, ""))
        if self.epoch == self.assignment_epoch:
            self._bump(cause, now_ms)

    def _look(
        self, member: ConsumerMember, describing: DescribingRight | None, topics: Mapping[str, TopicShape]
    ) -> bool:
        """Find out what members see through their expressions, if that may have changed; return whether it has."""
        rules = None if describing is None else describing.rules
        is_outdated = topics is not self._topics or rules is not self._rules
        member_id, regex = member.member_id, member.topic_regex
        view = self._views.get(member_id)
        if not is_outdated and (regex is None or (view is not None and view.is_of(regex, describing))):
            return False
        before = {each.member_id: self._names(each) for each in self.members.values() if each.topic_regex is not None}
        if topics is not self._topics:
            self._match_again(topics)
        self._topics, self._rules = topics, rules
        if regex is None:
            self._views.pop(member_id, None)
        else:
            self._views[member_id] = _View(regex, describing)
        self._hide()
        return any(self._names(self.members[each]) != names for each, names in before.items())

    def _hide(self) -> None:
        """Ask for every view what its client may not describe; once for clients that are alike."""
        found: dict[tuple[str, object], frozenset[str]] = {}
        for member_id, view in self._views.items():
            if view.describing is None:
                continue
            key = (view.regex, view.describing.holder)
            if key not in found:
                found[key] = view.describing.denied(self._matching.get(view.regex, frozenset()))
            self._views[member_id] = replace(view, hidden=found[key])

    def _match_again(self, topics: Mapping[str, TopicShape]) -> None:
        in_use = {member.topic_regex for member in self.members.values()} - {None}
        self._patterns = {regex: pattern for regex, pattern in self._patterns.items() if regex in in_use}
        for regex in sorted(filter(None, in_use)):
            try:
                if regex not in self._patterns:
                    self._patterns[regex] = TopicPattern(regex)
                self._matching[regex] = self._patterns[regex].matching(topics) - INTERNAL_TOPICS
            except PatternError:
                # It became too expensive with the new topics. The topics that it matched before stay.
                self._matching.setdefault(regex, frozenset())
        self._matching = {regex: names for regex, names in self._matching.items() if regex in in_use}

    # Epochs

    def _bump(self, cause: str, now_ms: int) -> None:
        """Raise the group epoch, and note the cause of the rebalance."""
        self._stored.epoch += 1
        self._dirty.add((RecordKind.GROUP, ""))
        self.timeline.ended(now_ms)
        self.timeline.began(cause, now_ms)
        if not self.members:
            self.timeline.joined(self.epoch, 0, now_ms)
            self.timeline.ended(now_ms)

    def _assign(self, now_ms: int) -> None:
        """Compute the target assignment for the group epoch."""
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
        """Write the changed records, and send the reply once they and all earlier writes are stored."""
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
        # This protocol has no joint rebalance that a member could be asked to join.
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if error is ErrorCode.REBALANCE_IN_PROGRESS else error
        effects = Effects()
        for respond, reply in write.waiting:
            answer = reply if code is ErrorCode.NONE else ConsumerHeartbeatReply(code)
            effects.replies.append(partial(respond, answer))
        return effects

    # Offsets

    def check_commit(self, member_id: str, instance_id: str | None, epoch: int, now_ms: int) -> ErrorCode:
        """Return NONE if the member may commit offsets. Without an epoch, only an empty group accepts commits."""
        if self.is_dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if epoch < 0 and not self.members:
            return ErrorCode.NONE
        return self._epoch_error(member_id, epoch)

    def check_transactional_commit(self, member_id: str, instance_id: str | None, epoch: int) -> ErrorCode:
        """Return NONE if offsets may be committed in a transaction; a client that names no member may.

        The request has no code for an old member epoch, so that is ILLEGAL_GENERATION.
        """
        if self.is_dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not member_id and instance_id is None and epoch < 0:
            return ErrorCode.NONE
        error = self._epoch_error(member_id, epoch)
        return ErrorCode.ILLEGAL_GENERATION if error is ErrorCode.STALE_MEMBER_EPOCH else error

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Return NONE if offsets may be read: by members at their epoch, and by clients without member id and epoch."""
        if self.is_dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE if not member_id and epoch < 0 else self._epoch_error(member_id or "", epoch)

    def _epoch_error(self, member_id: str, epoch: int) -> ErrorCode:
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if epoch == member.epoch else ErrorCode.STALE_MEMBER_EPOCH

    # Describing

    def describe(self) -> list[MemberDescription]:
        """Return the members for ConsumerGroupDescribe."""
        return [
            MemberDescription(
                member.member_id,
                member.instance_id,
                member.rack_id,
                member.epoch,
                member.client_id,
                member.client_host,
                member.topic_names,
                member.topic_regex,
                member.assigned,
                self.targets.get(member.member_id, NO_PARTITIONS),
            )
            for member in self.members.values()
        ]

    def as_json(self) -> dict[str, Any]:
        """Return epochs, assignor and members as JSON, with partitions by topic name."""
        names = {shape.topic_id: name for name, shape in self.topics.items()}
        return {
            "epoch": self.epoch,
            "assignment_epoch": self.assignment_epoch,
            "assignor": self.assignor_name,
            "members": [
                {
                    "id": member.member_id,
                    "instance_id": member.instance_id,
                    "client_id": member.client_id,
                    "client_host": member.client_host.removeprefix("/"),
                    "epoch": member.epoch,
                    "state": member.state.name,
                    "rebalance_timeout_ms": member.rebalance_timeout_ms,
                    "assignment": _named(member.assigned, names),
                    "revoking": _named(member.revoking, names),
                    "target": _named(self.targets.get(member.member_id, NO_PARTITIONS), names),
                }
                for member in self.members.values()
            ],
        }

    def tombstones(self) -> list[StoredRecord]:
        """Return the records that delete the group."""
        members = [(kind, member_id) for member_id in self.members for kind in MEMBER_KINDS]
        return [tombstone_of(self.group_id, *key) for key in [*members, *((kind, "") for kind in GROUP_KINDS)]]


def _named(partitions: PartitionSet, names: Mapping[bytes, str]) -> dict[str, list[int]]:
    """Return partitions by topic name; the id stands in for the name of a deleted topic."""
    return {names.get(topic_id, topic_id.hex()): indexes for topic_id, indexes in by_topic(partitions).items()}


def _holder(describing: DescribingRight | None) -> object:
    return None if describing is None else describing.holder


def _progress(member: ConsumerMember) -> tuple[object, ...]:
    return member.epoch, member.previous_epoch, member.state, member.assigned, member.revoking


def _topic_change(before: Mapping[str, TopicShape], now: Mapping[str, TopicShape]) -> str:
    """Describe the first difference between the subscribed topics before and now."""
    for name, shape in now.items():
        known = before.get(name)
        if known is None:
            return f"topic {name} appeared"
        if known.topic_id != shape.topic_id:
            return f"topic {name} was deleted and created again"
        if known.partition_count != shape.partition_count:
            return f"topic {name} went from {known.partition_count} to {shape.partition_count} partitions"
    gone = next(name for name in before if name not in now)
    return f"topic {gone} was deleted"
