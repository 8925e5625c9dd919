"""Moves that start a few at a time, so that a large plan does not load every broker at once.

A plan is written to a node of ZooKeeper and then carried out:

    A. Where the leader will lose its replica, or another replica is to lead, leadership changes first. That copies
       nothing, and needs no turn.
    B. A move starts when none of the brokers that it copies from or to has too many moves already.
    C. When a partition has its target, its preferred leader is elected. After the last one, throttles are removed and
       the node is deleted.

The node has whole plans, and is written only when they change. What is done shows in the assignments, so the next
controller finds out by itself which moves are left. A later request for a partition replaces an earlier one, whether it
waits for a turn or not; and cancelling a move that waits just drops it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import structlog
from msgspec import Struct

from ottla.balance.throttles import RATES, REPLICAS, rate_options, throttled_brokers, topic_throttles
from ottla.broker.cluster import znodes
from ottla.broker.cluster.configs import Configs
from ottla.broker.cluster.operations import Create, Delete, NodeExistsError, NoNodeError, SetData
from ottla.broker.controller.context import ReplicaAssignment
from ottla.broker.controller.leader_elections import ElectionType, LeaderElections
from ottla.broker.controller.office import Office
from ottla.broker.controller.reassignments.reassignment import Reassignments
from ottla.broker.controller.reassignments.reassignment_plan import origin_of, reassigned
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition

log = structlog.get_logger(__name__)

Targets = Mapping[TopicPartition, Sequence[int] | None]
Results = dict[TopicPartition, KafkaError | None]

# ZooKeeper refuses nodes of a megabyte.
_NODE_BYTES_MAX: Final = 900_000


class MoveLimits(Struct, frozen=True):
    """How many moves may copy from or to one broker at a time, and how fast; 0 bytes for no limit."""

    moves_per_broker: int
    bytes_per_second: int = 0


class MoveQueue:
    """The moves of one term: those that wait for their turn, and those under way."""

    def __init__(self, office: Office, reassignments: Reassignments, elections: LeaderElections) -> None:
        self._office = office
        self._context = office.context
        self._reassignments = reassignments
        self._elections = elections
        self._configs = Configs(office.zookeeper)
        # The rest is as in the node, but without what is done.
        self._targets: dict[TopicPartition, tuple[int, ...]] = {}
        self._limits = MoveLimits(1)
        self._throttled_topics: set[str] = set()
        self._throttled_brokers: set[int] = set()
        # Whether the node exists.
        self._is_recorded = False
        reassignments.on_progress = lambda: office.post(self.advance)

    def __len__(self) -> int:
        return len(self._targets)

    # Requests

    def alter(self, requested: Targets, limits: MoveLimits | None = None) -> Results:
        """Move partitions to a target, at once or within limits; None cancels. Returns what was refused."""
        if limits is not None and None not in requested.values():
            return self._enqueue(requested, limits)
        waiting = {each for each in requested if each in self._targets and not self._reassignments.is_reassigning(each)}
        self._drop(requested)
        dropped = {each for each in waiting if requested[each] is None}
        results: Results = dict.fromkeys(dropped)
        results |= self._reassignments.alter({each: requested[each] for each in requested if each not in dropped})
        self._office.post(self.advance)
        return results

    def listing(self, chosen: Collection[TopicPartition] | None = None) -> dict[TopicPartition, ReplicaAssignment]:
        """Return those of some partitions, or of all, that are being reassigned or wait for that."""
        waiting = {
            partition: reassigned(self._context.assignment(partition), target)
            for partition, target in self._targets.items()
            if (chosen is None or partition in chosen) and self._context.assignment(partition).replicas
        }
        return waiting | self._reassignments.listing(chosen)

    # Events

    def resume(self) -> None:
        """Continue with the plan of an earlier controller."""
        node = self._office.zookeeper.read_or_none(znodes.MOVES)
        if node is None:
            return
        self._is_recorded = True
        try:
            content = znodes.MovesNode.decode(node.data, znodes.MOVES)
        except znodes.MalformedNodeError as error:
            log.error("moves_malformed", reason=str(error))
            return
        self._targets = {
            TopicPartition(each.topic, each.partition): tuple(each.replicas) for each in content.partitions
        }
        self._limits = MoveLimits(content.moves_per_broker, content.bytes_per_second)
        self._throttled_topics = set(content.throttled_topics)
        self._throttled_brokers = set(content.throttled_brokers)
        self._finish_done()
        log.info("moves_resumed", count=len(self._targets))
        self._begin()

    def advance(self) -> None:
        """Start the moves whose turn has come, and finish the plan after the last."""
        self._finish_done()
        started = self._whose_turn_it_is()
        if started:
            for partition, error in self._reassignments.alter(started).items():
                if error is not None and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    del self._targets[partition]
            # Those that copy nothing are done already.
            self._finish_done()
        if not self._targets and self._is_recorded:
            self._remove_throttles()
            self._forget_plan()

    # Steps

    def _enqueue(self, requested: Targets, limits: MoveLimits) -> Results:
        results: Results = {}
        accepted: dict[TopicPartition, tuple[int, ...]] = {}
        for partition, target in requested.items():
            try:
                self._reassignments.check(partition, target)
            except KafkaError as error:
                results[partition] = error
            else:
                results[partition] = None
                accepted[partition] = tuple(target or ())
        if not accepted:
            return results
        targets = {each: target for each, target in self._targets.items() if each not in accepted} | accepted
        copied = self._copied(targets) if limits.bytes_per_second > 0 else {}
        now = self._origins(copied)
        self._record(
            targets,
            limits,
            self._throttled_topics.union(each.topic for each in copied),
            self._throttled_brokers.union(throttled_brokers(now, copied)),
        )
        log.info("moves_planned", count=len(accepted), copied=len(self._copied(accepted)), **_as_fields(limits))
        self._begin()
        return results

    def _begin(self) -> None:
        """Take the steps before the first turn, again if an earlier controller has not come so far."""
        copied = self._copied(self._targets)
        if self._limits.bytes_per_second > 0 and copied:
            for topic, options in topic_throttles(self._origins(copied), copied).items():
                self._set_options(znodes.TOPIC_CONFIGS, topic, options)
            for broker in sorted(self._throttled_brokers):
                self._set_options(znodes.BROKER_CONFIGS, str(broker), rate_options(self._limits.bytes_per_second))
        self._change_leaders(self._targets)
        self.advance()

    def _origins(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, ...]]:
        return {each: origin_of(self._context.assignment(each)) for each in partitions}

    def _copied(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> dict[TopicPartition, tuple[int, ...]]:
        """Return the targets with new replicas."""
        return {
            each: target
            for each, target in targets.items()
            if not set(target) <= set(origin_of(self._context.assignment(each)))
        }

    def _change_leaders(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        """Let another replica lead now where the present leader is to leave, or another one is to be preferred."""
        reordered: dict[TopicPartition, list[int]] = {}
        for partition, target in targets.items():
            state = self._context.leadership.get(partition)
            if state is None or self._reassignments.is_reassigning(partition):
                continue
            able = [each for each in self._context.online_replicas(partition) if each in state.isr]
            leader = next((each for each in target if each in able), None)
            if leader is None or leader == state.leader or (state.leader in target and leader != target[0]):
                continue
            others = [each for each in self._context.assignment(partition).replicas if each != leader]
            reordered[partition] = [leader, *others]
        if reordered:
            self._reassignments.alter(reordered)
            self._elections.elect(ElectionType.PREFERRED, reordered)

    def _whose_turn_it_is(self) -> dict[TopicPartition, tuple[int, ...]]:
        busy: dict[int, int] = {}
        for partition in self._context.reassigning:
            for broker in self._brokers_of(partition, self._context.assignment(partition).adding):
                busy[broker] = busy.get(broker, 0) + 1
        chosen: dict[TopicPartition, tuple[int, ...]] = {}
        for partition, target in self._targets.items():
            if self._reassignments.is_reassigning(partition):
                continue
            added = [each for each in target if each not in self._context.assignment(partition).replicas]
            if any(broker not in self._context.brokers for broker in added):
                continue
            brokers = self._brokers_of(partition, added)
            if all(busy.get(broker, 0) < self._limits.moves_per_broker for broker in brokers):
                chosen[partition] = target
                for broker in brokers:
                    busy[broker] = busy.get(broker, 0) + 1
        return chosen

    def _brokers_of(self, partition: TopicPartition, added: Sequence[int]) -> set[int]:
        """Return the brokers that a move copies from and to."""
        state = self._context.leadership.get(partition)
        return {*added, *([state.leader] if state is not None else [])} if added else set()

    def _finish_done(self) -> None:
        done = [
            partition
            for partition, target in self._targets.items()
            if not self._reassignments.is_reassigning(partition)
            and self._context.assignment(partition).replicas in (target, ())
        ]
        for partition in done:
            del self._targets[partition]
        if done:
            self._elections.elect(ElectionType.PREFERRED, [each for each in done if each in self._context.leadership])

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget what was planned for partitions."""
        left = {each: target for each, target in self._targets.items() if each not in set(partitions)}
        if len(left) < len(self._targets):
            self._record(left, self._limits, self._throttled_topics, self._throttled_brokers)

    # The node, and options of topics and brokers

    def _record(
        self,
        targets: Mapping[TopicPartition, tuple[int, ...]],
        limits: MoveLimits,
        topics: Collection[str],
        brokers: Collection[int],
    ) -> None:
        content = znodes.MovesNode(
            moves_per_broker=limits.moves_per_broker,
            bytes_per_second=limits.bytes_per_second,
            partitions=[
                znodes.ReassignedPartition(topic=each.topic, partition=each.partition, replicas=list(target))
                for each, target in targets.items()
            ],
            throttled_topics=sorted(topics),
            throttled_brokers=sorted(brokers),
        ).encode()
        if len(content) > _NODE_BYTES_MAX:
            detail = f"a plan of {len(targets)} partitions is too large; move fewer at a time"
            raise KafkaError(ErrorCode.INVALID_REQUEST, detail)
        if self._is_recorded:
            self._office.fence.write(SetData(znodes.MOVES, content))
        else:
            self._office.fence.ensure([znodes.OTTLA])
            try:
                self._office.fence.write(Create(znodes.MOVES, content))
            except NodeExistsError:
                self._office.fence.write(SetData(znodes.MOVES, content))
        self._is_recorded = True
        self._targets, self._limits = dict(targets), limits
        self._throttled_topics, self._throttled_brokers = set(topics), set(brokers)

    def _forget_plan(self) -> None:
        try:
            self._office.fence.write(Delete(znodes.MOVES))
        except NoNodeError:
            log.warning("moves_deleted_by_others")
        self._is_recorded = False
        log.info("moves_done")

    def _remove_throttles(self) -> None:
        """Remove what `_enqueue` has set. Plain removals, so the next controller can repeat them."""
        for topic in sorted(self._throttled_topics & self._context.assignments.keys()):
            self._set_options(znodes.TOPIC_CONFIGS, topic, dict.fromkeys(REPLICAS))
        for broker in sorted(self._throttled_brokers):
            self._set_options(znodes.BROKER_CONFIGS, str(broker), dict.fromkeys(RATES))
        self._throttled_topics, self._throttled_brokers = set(), set()

    def _set_options(self, entity_type: str, name: str, options: Mapping[str, str | None]) -> None:
        def change(current: Mapping[str, str]) -> Mapping[str, str]:
            changed = {**current, **options}
            return {option: value for option, value in changed.items() if value is not None}

        try:
            self._configs.change(entity_type, name, change)
        except KafkaError as error:
            log.warning("throttle_not_changed", entity=name, reason=str(error))


def _as_fields(limits: MoveLimits) -> dict[str, int]:
    return {"moves_per_broker": limits.moves_per_broker, "bytes_per_second": limits.bytes_per_second}
