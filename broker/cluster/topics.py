"""Creating, enlarging and deleting topics. The wish is written to ZooKeeper, where the controller sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec import UNSET, Struct, field
from msgspec.structs import replace

from ottla.broker.cluster import znodes
from ottla.broker.cluster.metadata import MetadataCache
from ottla.broker.cluster.operations import (
    BadVersionError,
    Check,
    Create,
    MultiError,
    NodeExistsError,
    NoNodeError,
    Operation,
    SetData,
)
from ottla.broker.cluster.placement import placement, start_of_added
from ottla.broker.cluster.zookeeper import ZooKeeper
from ottla.broker.common.topic_names import check_topic_name, topic_name_problem
from ottla.broker.config import BrokerConfig, ConfigError, TopicConfig
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.primitives import uuid_from_text, uuid_to_text

# In a request: use the broker's default.
DEFAULT_COUNT: Final = -1

_ATTEMPTS_MAX: Final = 10

# By the ids of brokers; None for a broker without one.
_Racks = dict[int, str | None]


class TopicSpec(Struct, frozen=True):
    """A topic to create, with either the number of partitions and replicas, or the replicas of each partition."""

    name: str
    partition_count: int = DEFAULT_COUNT
    replication_factor: int = DEFAULT_COUNT
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)


class TopicCreation(Struct, frozen=True):
    """The topic that was created. If it was only validated, the topic that would be, with an id of zeros."""

    name: str
    id: bytes
    assignment: Mapping[int, Sequence[int]]
    config: TopicConfig

    @property
    def replication_factor(self) -> int:
        """How many replicas each partition has."""
        return len(self.assignment[0])


class Topics:
    """The topics of the cluster in ZooKeeper."""

    def __init__(self, zookeeper: ZooKeeper, metadata: MetadataCache, config: Callable[[], BrokerConfig]) -> None:
        self._zookeeper = zookeeper
        self._metadata = metadata
        self._config = config

    def create(self, topic: TopicSpec, *, validate_only: bool = False) -> TopicCreation:
        """Create a topic, or raise KafkaError and leave nothing behind. The controller chooses leaders afterwards."""
        check_topic_name(topic.name)
        self._check_partition_count(len(topic.assignment) or topic.partition_count)
        refuse_existing(self._zookeeper, topic.name)
        assignment = self._assignment(topic)
        config = self.checked_config(topic.configs)
        topic_id = bytes(16) if validate_only else znodes.new_uuid()
        if not validate_only:
            self._write_new(topic, topic_id, assignment)
        return TopicCreation(topic.name, topic_id, assignment, config)

    def delete(self, name: str) -> None:
        """Mark a topic for deletion; the controller deletes it."""
        if not self._config().delete_topic_enable:
            raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)
        _check_possible(name)
        for _ in range(_ATTEMPTS_MAX):
            stat = self._zookeeper.exists(znodes.topic_path(name))
            if stat is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
            # Never leave a mark without a topic: the next topic of that name would be deleted.
            is_there = Check(znodes.topic_path(name), stat.version)
            try:
                self._zookeeper.multi([is_there, Create(znodes.delete_topic_path(name))])
                return
            except MultiError as error:
                if isinstance(error.reason, NodeExistsError):
                    # Another request deletes the same topic.
                    return
                if not isinstance(error.reason, NoNodeError | BadVersionError):
                    raise
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"topic {name} keeps being changed by others")

    def add_partitions(
        self,
        name: str,
        count: int,
        assignment: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> Mapping[int, Sequence[int]]:
        """Enlarge a topic to `count` partitions; return the replicas of the new ones."""
        _check_possible(name)
        self._check_partition_count(count if assignment is None else max(count, len(assignment)))
        for _ in range(_ATTEMPTS_MAX):
            node = self._zookeeper.read_or_none(znodes.topic_path(name))
            if node is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
            content = znodes.TopicNode.decode(node.data, znodes.topic_path(name))
            added = self._added(name, content, count, assignment)
            if validate_only:
                return added
            partitions = content.partitions | {index: list(replicas) for index, replicas in added.items()}
            try:
                self._zookeeper.write(
                    znodes.topic_path(name), replace(content, partitions=partitions).encode(), node.stat.version
                )
                return added
            except BadVersionError:
                continue
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"topic {name} keeps being changed by others")

    def checked_config(self, overrides: Mapping[str, str]) -> TopicConfig:
        """Return the options of a topic with these overrides; INVALID_CONFIG if one is unknown or wrong."""
        try:
            return TopicConfig.validated(self._config(), overrides)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def _check_partition_count(self, count: int) -> None:
        """Raise INVALID_PARTITIONS for a number that is too large, before anything is built for it."""
        limit = self._config().ottla_topic_max_partitions
        if count > limit:
            detail = f"{count} partitions are more than ottla.topic.max.partitions = {limit}"
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, detail)

    def _assignment(self, topic: TopicSpec) -> Mapping[int, Sequence[int]]:
        counts = (topic.partition_count, topic.replication_factor)
        if topic.assignment:
            if counts != (DEFAULT_COUNT, DEFAULT_COUNT):
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "give either an assignment, or the numbers of partitions and replicas"
                )
            return _checked_assignment(topic.assignment, self._racks_with(topic.assignment.values()))
        config = self._config()
        partitions, replicas = counts
        replication_factor = config.default_replication_factor if replicas == DEFAULT_COUNT else replicas
        return placement(
            self._open_racks(replication_factor),
            config.num_partitions if partitions == DEFAULT_COUNT else partitions,
            replication_factor,
        )

    def _racks(self, is_enough: Callable[[_Racks], bool]) -> _Racks:
        """Return the racks of the live brokers.

        The metadata lacks a broker for a moment after it has registered. So if there are too few, ZooKeeper is asked
        before a request is refused.
        """
        known = {broker.id: broker.rack for broker in self._metadata.snapshot.brokers.values()}
        return known if is_enough(known) else known | self._registered_racks()

    def _registered_racks(self) -> _Racks:
        ids = [int(name) for name in self._zookeeper.children(znodes.BROKER_IDS) if name.isdecimal()]
        racks: _Racks = {}
        for broker, node in zip(ids, self._zookeeper.read_many(list(map(znodes.broker_path, ids))), strict=True):
            if node is not None:
                rack = znodes.BrokerNode.decode(node.data, znodes.broker_path(broker)).rack
                racks[broker] = None if rack is UNSET else rack
        return racks

    def _racks_with(self, assignment: Iterable[Sequence[int]]) -> _Racks:
        named = {broker for replicas in assignment for broker in replicas}
        return self._racks(lambda known: known.keys() >= named)

    def _open_racks(self, replication_factor: int) -> _Racks:
        """Return the racks of the brokers that get new replicas."""
        drained = self._config().ottla_drained_brokers

        def is_open(broker: int) -> bool:
            return str(broker) not in drained

        racks = self._racks(lambda known: sum(map(is_open, known)) >= replication_factor)
        return {broker: rack for broker, rack in racks.items() if is_open(broker)}

    def _write_new(self, topic: TopicSpec, topic_id: bytes, assignment: Mapping[int, Sequence[int]]) -> None:
        """Write config and assignment in one step: no broker ever sees the topic without its config."""
        path, config_path = znodes.topic_path(topic.name), znodes.config_path(znodes.TOPIC_CONFIGS, topic.name)
        content = znodes.TopicNode(
            topic_id=uuid_to_text(topic_id), partitions={index: list(each) for index, each in assignment.items()}
        ).encode()
        config = znodes.ConfigNode(config=dict(topic.configs)).encode()
        # The config may be left over from a deleted topic, or was set before the topic was created.
        config_operation: Operation = Create(config_path, config)
        for _ in range(_ATTEMPTS_MAX):
            try:
                self._zookeeper.multi([config_operation, Create(path, content)])
                return
            except MultiError as error:
                if not isinstance(error.reason, NodeExistsError):
                    if isinstance(config_operation, Create):
                        raise
                    config_operation = Create(config_path, config)
                    continue
                node = self._zookeeper.read_or_none(path)
                if node is not None and node.data == content:
                    # The answer to the first try was lost.
                    return
                if node is not None:
                    raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, topic.name) from error
                config_operation = SetData(config_path, config)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"topic {topic.name} keeps being created and deleted by others")

    def _added(
        self, name: str, content: znodes.TopicNode, count: int, assignment: Sequence[Sequence[int]] | None
    ) -> Mapping[int, Sequence[int]]:
        present = len(content.partitions)
        if content.adding_replicas or content.removing_replicas:
            raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, name)
        if self._zookeeper.exists(znodes.delete_topic_path(name)) is not None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} is being deleted")
        if count <= present:
            detail = f"{name} has {present} partitions, and {count} were requested; their number can only grow"
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, detail)
        first = content.partitions.get(0)
        if not first:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{name} has no partition 0")
        if assignment is None:
            racks = self._open_racks(len(first))
            start = start_of_added(sorted(racks), first[0])
            return placement(racks, count - present, len(first), first_partition=present, start=start)
        if len(assignment) != count - present:
            detail = f"{count - present} partitions are added, but replicas are given for {len(assignment)}"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, detail)
        added = {present + index: replicas for index, replicas in enumerate(assignment)}
        racks = self._racks_with(assignment)
        return _checked_assignment(added, racks, first_partition=present, replication_factor=len(first))


def refuse_existing(zookeeper: ZooKeeper, name: str) -> None:
    """Raise KafkaError if a topic of this name exists, or one whose metrics would have the same name."""
    if zookeeper.exists(znodes.topic_path(name)) is not None:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, name)
    if "." in name or "_" in name:
        # Metric names use an underscore for both, so metrics could not tell such topics apart.
        same = name.replace(".", "_")
        others = (each for each in zookeeper.children(znodes.TOPICS) if each.replace(".", "_") == same)
        for other in others:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} differs from topic {other} only in dots and underscores"
            )


def topic_id_of(content: znodes.TopicNode) -> bytes | None:
    """Return the id of a topic; None for one that was created before topics had ids."""
    if content.topic_id is UNSET or not isinstance(content.topic_id, str):
        return None
    try:
        return uuid_from_text(content.topic_id)
    except ValueError as error:
        raise znodes.MalformedNodeError(f"a topic has the id {content.topic_id!r}: {error}") from error


def _checked_assignment(
    assignment: Mapping[int, Sequence[int]],
    brokers: Mapping[int, object],
    *,
    first_partition: int = 0,
    replication_factor: int | None = None,
) -> Mapping[int, Sequence[int]]:
    """Raise INVALID_REPLICA_ASSIGNMENT unless the partitions are in sequence, each with the same number of different
    live brokers.
    """

    def refuse(detail: str) -> None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, detail)

    expected = range(first_partition, first_partition + len(assignment))
    if sorted(assignment) != list(expected):
        refuse(f"partitions must be {expected.start} to {expected.stop - 1} without gaps")
    factor = len(assignment[first_partition]) if replication_factor is None else replication_factor
    for index, replicas in assignment.items():
        if not replicas:
            refuse(f"partition {index} has no replicas")
        if len(set(replicas)) < len(replicas):
            refuse(f"partition {index} names a broker twice: {list(replicas)}")
        if len(replicas) != factor:
            refuse(f"partition {index} has {len(replicas)} replicas, and others have {factor}")
        if unknown := set(replicas) - set(brokers):
            refuse(f"partition {index} names brokers that are not alive: {sorted(unknown)}")
    return assignment


def _check_possible(name: str) -> None:
    """Raise UNKNOWN_TOPIC_OR_PARTITION for a name that no topic can have; it must not become part of a path."""
    if topic_name_problem(name) is not None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
