"""The nodes that say which partitions move where: those of the topics, and the one that old tools write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import structlog
from msgspec.structs import replace

from ottla.broker.cluster import znodes
from ottla.broker.cluster.operations import BadVersionError, Delete, MultiError, NoNodeError, Operation, SetData, ZNode
from ottla.broker.cluster.zookeeper import Watch, ZooKeeper
from ottla.broker.controller.context import ReplicaAssignment
from ottla.broker.controller.election import Fence
from ottla.protocol.identifiers import TopicPartition

log = structlog.get_logger(__name__)

# Besides the controller, only adding partitions changes these nodes, and people do.
_ATTEMPTS_MAX: Final = 10


class AssignmentNodes:
    """Writes assignments of partitions into the nodes of their topics, in one term."""

    def __init__(self, zookeeper: ZooKeeper, fence: Fence) -> None:
        self._zookeeper = zookeeper
        self._fence = fence

    def write(self, assignments: Mapping[TopicPartition, ReplicaAssignment]) -> set[TopicPartition]:
        """Write assignments, one topic at a time; return the partitions whose assignments are in ZooKeeper now."""
        by_topic: dict[str, dict[int, ReplicaAssignment]] = {}
        for partition, assignment in assignments.items():
            by_topic.setdefault(partition.topic, {})[partition.partition] = assignment
        written: set[TopicPartition] = set()
        remaining = list(by_topic)
        for _ in range(_ATTEMPTS_MAX):
            writes: dict[str, Operation] = {}
            paths = [znodes.topic_path(topic) for topic in remaining]
            for topic, node in zip(remaining, self._zookeeper.read_many(paths), strict=True):
                content = _topic_content(topic, node)
                if content is None or node is None:
                    continue
                changed = _with_assignments(content, by_topic[topic])
                if changed == content:
                    written |= {TopicPartition(topic, index) for index in by_topic[topic]}
                else:
                    writes[topic] = SetData(znodes.topic_path(topic), changed.encode(), node.stat.version)
            # All are read again: a conflict may be our own write whose answer was lost.
            remaining = list(writes)
            if not remaining:
                return written
            for outcome in self._fence.multi_many([[operation] for operation in writes.values()]):
                if isinstance(outcome, MultiError) and not isinstance(outcome.reason, BadVersionError | NoNodeError):
                    raise outcome.reason
        log.error("assignments_not_written", topics=remaining)
        return written


class LegacyNode:
    """The node in which old tools name the partitions to move, in one term."""

    def __init__(self, zookeeper: ZooKeeper, fence: Fence) -> None:
        self._zookeeper = zookeeper
        self._fence = fence
        # Its content when it was read last; None if the node is missing or malformed.
        self._known: dict[TopicPartition, tuple[int, ...]] | None = None

    def read(self, watch: Watch | None = None) -> dict[TopicPartition, tuple[int, ...]]:
        """Return the targets in the node; `watch` is called when the node is created, changed or deleted."""
        if watch is not None:
            self._zookeeper.exists(znodes.REASSIGNMENT, watch)
        held, version = self._read()
        self._known = None if version is None else held
        return held

    def remove(self, is_done: Callable[[TopicPartition, tuple[int, ...]], bool]) -> None:
        """Remove finished targets, and delete the node when it is empty."""
        known = self._known
        if known is None or (known and not any(is_done(partition, target) for partition, target in known.items())):
            return
        for _ in range(_ATTEMPTS_MAX):
            held, version = self._read()
            left = {partition: target for partition, target in held.items() if not is_done(partition, target)}
            if version is None or (held and left == held):
                self._known = None if version is None else held
                return
            try:
                self._fence.write(_legacy_write(left, version))
                self._known = left or None
                return
            except (BadVersionError, NoNodeError):
                continue
        log.error("reassignment_node_keeps_changing")

    def _read(self) -> tuple[dict[TopicPartition, tuple[int, ...]], int | None]:
        node = self._zookeeper.read_or_none(znodes.REASSIGNMENT)
        if node is None:
            return {}, None
        try:
            content = znodes.ReassignmentNode.decode(node.data, znodes.REASSIGNMENT)
        except znodes.MalformedNodeError as error:
            log.error("reassignment_node_malformed", reason=str(error))
            return {}, None
        held = {TopicPartition(each.topic, each.partition): tuple(each.replicas) for each in content.partitions}
        return held, node.stat.version


def _legacy_write(left: Mapping[TopicPartition, tuple[int, ...]], version: int) -> Operation:
    if not left:
        return Delete(znodes.REASSIGNMENT, version)
    partitions = [
        znodes.ReassignedPartition(topic=partition.topic, partition=partition.partition, replicas=list(target))
        for partition, target in left.items()
    ]
    return SetData(znodes.REASSIGNMENT, znodes.ReassignmentNode(partitions=partitions).encode(), version)


def _topic_content(topic: str, node: ZNode | None) -> znodes.TopicNode | None:
    try:
        return None if node is None else znodes.TopicNode.decode(node.data, znodes.topic_path(topic))
    except znodes.MalformedNodeError as error:
        log.error("topic_malformed", topic=topic, reason=str(error))
        return None


def _with_assignments(content: znodes.TopicNode, assignments: Mapping[int, ReplicaAssignment]) -> znodes.TopicNode:
    partitions, adding, removing = (
        dict(content.partitions),
        dict(content.adding_replicas),
        dict(content.removing_replicas),
    )
    for index, assignment in assignments.items():
        partitions[index] = list(assignment.replicas)
        for lists, brokers in ((adding, assignment.adding), (removing, assignment.removing)):
            lists.pop(index, None)
            if brokers:
                lists[index] = list(brokers)
    return replace(content, partitions=partitions, adding_replicas=adding, removing_replicas=removing)
