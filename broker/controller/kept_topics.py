"""Deleted topics that can be brought back: `ottla.topic.undelete.ms`.

    /ottla/deleted_topics/<topic id>             DeletedTopicNode: name, replicas, leaders' epochs, ISRs, options
    /ottla/deleted_topics/<topic id>/<broker>    no data: the broker has given its replicas up, for their space

Deletion. The node is written before the brokers are told to forget the topic, with the ISRs as they are then. The last
step of the deletion, which removes the topic itself, also marks the node as complete. Brokers keep the logs aside. If
another controller repeats a step, it finds the node and leaves it as it is.

Undeletion. The topic comes back with its id. Brokers have the id in `partition.metadata` of the logs that they keep, so
a broker that is told to lead or follow a partition of this id takes its kept log, now or when it comes back.

    1. Create the topic, and in the same write mark it for deletion.
    2. Create the state of each partition: no leader yet, the ISR of then without brokers that gave their replicas up.
    3. Remove the mark and the node, and write the options, all in one write. Then elect leaders.

Until step 3 the topic is one that is being deleted, for everybody. If the controller dies before, the next one deletes
it again at once, because no broker has heard of it: the topic can be brought back as before.
If it dies after step 3, the next one finds partitions without leaders, and elects them. A broker that gives up its
replicas during the undeletion makes step 3 fail, because the node has a new child.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

import structlog

from ottla.broker.cluster import znodes
from ottla.broker.cluster.operations import (
    Create,
    Delete,
    MultiError,
    NodeExistsError,
    NotEmptyError,
    Operation,
    SetData,
)
from ottla.broker.cluster.topics import refuse_existing
from ottla.broker.common.topic_names import check_topic_name
from ottla.broker.config import TopicConfig
from ottla.broker.controller.office import Office
from ottla.broker.controller.partition_states import LeaderAndIsr
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import INTERNAL_TOPICS, NO_LEADER, UNKNOWN_BROKER_EPOCH, TopicPartition
from ottla.protocol.primitives import uuid_from_text, uuid_to_text

log = structlog.get_logger(__name__)

_LOOK_SECONDS: Final = 60.0
# ZooKeeper takes nodes of up to a megabyte.
_NODE_BYTES_MAX: Final = 900_000


class DeletedTopic(NamedTuple):
    """A deleted topic that is kept."""

    topic_id: bytes
    content: znodes.DeletedTopicNode
    version: int
    # Brokers that have given up their replicas.
    given_up: frozenset[int]


class KeptTopics:
    """The deleted topics that can be brought back, in one term."""

    def __init__(self, office: Office, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._office = office
        self._context = office.context
        self._fence = office.fence
        self._zookeeper = office.zookeeper
        self._now_ms = now_ms
        # Called with the name of a topic that is back in ZooKeeper, with partitions without leaders.
        self.on_restored: Callable[[str], None] = lambda topic: None

    def begin(self) -> None:
        """Forget topics whose time is over, now and at regular intervals."""
        self._forget_expired()

    # Deleting

    def keep(self, topic: str) -> bool:
        """Write down a topic that is about to be deleted, if it is to be kept, and note that in the context.

        Returns whether that was done long ago: an undeletion was interrupted, and no broker has heard of the topic.
        """
        topic_id = self._context.topic_ids.get(topic)
        if topic in INTERNAL_TOPICS or topic_id is None or topic in self._context.kept:
            return False
        path = znodes.deleted_topic_path(topic_id)
        node = self._zookeeper.read_or_none(path)
        if node is not None:
            # An earlier controller began the deletion.
            known = znodes.DeletedTopicNode.decode(node.data, path)
            self._context.kept[topic] = known.kept_until_ms
            return known.is_complete
        overrides = self._options(topic)
        undelete_ms = TopicConfig(self._office.config(), overrides).ottla_undelete_ms
        if undelete_ms <= 0:
            return False
        now_ms = self._now_ms()
        content = znodes.DeletedTopicNode(
            name=topic,
            deleted_ms=now_ms,
            kept_until_ms=now_ms + undelete_ms,
            partitions={
                index: self._partition(TopicPartition(topic, index)) for index in self._context.assignments[topic]
            },
            config=overrides,
        )
        data = content.encode()
        if len(data) > _NODE_BYTES_MAX:
            log.warning("deleted_topic_not_kept", topic=topic, reason="it has too many partitions for a node")
            return False
        self._fence.ensure([znodes.OTTLA, znodes.DELETED_TOPICS])
        self._fence.write(Create(path, data))
        self._context.kept[topic] = content.kept_until_ms
        log.info("deleted_topic_kept", topic=topic, kept_until_ms=content.kept_until_ms)
        return False

    def completion(self, topic: str) -> list[Operation]:
        """Return what the last step of a deletion writes: now the topic can be brought back."""
        topic_id = self._context.topic_ids.get(topic)
        if topic not in self._context.kept or topic_id is None:
            return []
        path = znodes.deleted_topic_path(topic_id)
        node = self._zookeeper.read_or_none(path)
        if node is None:
            return []
        content = znodes.DeletedTopicNode.decode(node.data, path)
        return [SetData(path, znodes.completed(content).encode())]

    def _partition(self, partition: TopicPartition) -> znodes.DeletedPartition:
        replicas = list(self._context.assignment(partition).replicas)
        state = self._context.leadership.get(partition)
        if state is None:
            # It never had a leader, so all replicas are equally empty.
            return znodes.DeletedPartition(replicas=replicas, isr=replicas, leader_epoch=-1, isr_broker_epochs=[])
        lives = [state.lives.get(broker, UNKNOWN_BROKER_EPOCH) for broker in state.isr]
        return znodes.DeletedPartition(
            replicas=replicas, isr=list(state.isr), leader_epoch=state.leader_epoch, isr_broker_epochs=lives
        )

    def _options(self, topic: str) -> dict[str, str]:
        path = znodes.config_path(znodes.TOPIC_CONFIGS, topic)
        node = self._zookeeper.read_or_none(path)
        return {} if node is None or not node.data else dict(znodes.ConfigNode.decode(node.data, path).config)

    # Bringing back

    def all(self) -> list[DeletedTopic]:
        """Return all deleted topics that are kept, those deleted last first."""
        names = self._zookeeper.children(znodes.DELETED_TOPICS) if self._exists(znodes.DELETED_TOPICS) else []
        found = [each for name in names if (each := self._read(uuid_from_text(name))) is not None]
        return sorted(found, key=lambda each: each.content.deleted_ms, reverse=True)

    def why_not(self, deleted: DeletedTopic, name: str) -> KafkaError | None:
        """Return why a topic cannot be brought back under a name; None if it can."""
        content = deleted.content
        if not content.is_complete:
            down = sorted(
                {broker for each in content.partitions.values() for broker in each.replicas}
                - self._context.brokers.keys()
            )
            if not down:
                return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{content.name} is still being deleted; try again")
            return KafkaError(
                ErrorCode.REPLICA_NOT_AVAILABLE,
                f"{content.name} is still being deleted, which waits for broker {', '.join(map(str, down))}; start it, "
                "and try again",
            )
        if content.kept_until_ms <= self._now_ms():
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"{content.name} was kept for a time that is over")
        for index, partition in content.partitions.items():
            left = [broker for broker in partition.isr if broker not in deleted.given_up]
            if not left:
                return KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"no replica of {content.name}-{index} that was in sync is left: their disks needed the space",
                )
            if self._context.brokers.keys().isdisjoint(left):
                return KafkaError(
                    ErrorCode.REPLICA_NOT_AVAILABLE,
                    f"the brokers that have {content.name}-{index} are down: {left}; start one, and try again",
                )
        try:
            check_topic_name(name)
            refuse_existing(self._zookeeper, name)
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                return error
            return KafkaError(error.code, f"{name} exists; bring the deleted topic back under another name")
        return None

    def undelete(self, topic_id: bytes, new_name: str | None, *, validate_only: bool = False) -> tuple[str, int]:
        """Bring a topic back, under its own name or another; return the name and the number of partitions.

        A topic that is back already is not an error: the response to the first request may have been lost. Raises
        KafkaError if it cannot be brought back.
        """
        deleted = self._read(topic_id)
        if deleted is None:
            for known, known_id in self._context.topic_ids.items():
                if known_id == topic_id and known not in self._context.deleting and new_name in (None, known):
                    return known, len(self._context.assignments[known])
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no deleted topic with id {uuid_to_text(topic_id)} is kept")
        content, name = deleted.content, new_name or deleted.content.name
        refusal = self.why_not(deleted, name)
        if refusal is not None:
            raise refusal
        if not validate_only:
            self._create_marked(name, deleted)
            self._create_states(name, deleted)
            self._complete(name, deleted)
            log.info("topic_undeleted", topic=name, was=content.name, partitions=len(content.partitions))
            self.on_restored(name)
        return name, len(content.partitions)

    def _create_marked(self, name: str, deleted: DeletedTopic) -> None:
        content = znodes.TopicNode(
            topic_id=uuid_to_text(deleted.topic_id),
            partitions={index: each.replicas for index, each in deleted.content.partitions.items()},
        )
        operations = [Create(znodes.topic_path(name), content.encode()), Create(znodes.delete_topic_path(name))]
        outcome = self._fence.multi_many([operations])[0]
        if isinstance(outcome, MultiError):
            if isinstance(outcome.reason, NodeExistsError):
                raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, name) from outcome
            raise outcome.reason

    def _create_states(self, name: str, deleted: DeletedTopic) -> None:
        states = {}
        for index, each in deleted.content.partitions.items():
            isr = tuple(broker for broker in each.isr if broker not in deleted.given_up)
            lives = dict(zip(each.isr, each.isr_broker_epochs, strict=False))
            states[TopicPartition(name, index)] = LeaderAndIsr(
                leader=NO_LEADER,
                leader_epoch=each.leader_epoch + 1,
                isr=isr,
                controller_epoch=self._context.epoch,
                partition_epoch=0,
                lives={broker: lives[broker] for broker in isr if broker in lives},
            )
        if len(self._office.store.create(states)) < len(states):
            # Ends the term. The next one takes the topic back to the deleted ones.
            raise RuntimeError(f"the states of {name} could not be written")

    def _complete(self, name: str, deleted: DeletedTopic) -> None:
        config_path = znodes.config_path(znodes.TOPIC_CONFIGS, name)
        config = znodes.ConfigNode(config=dict(deleted.content.config)).encode()
        path = znodes.deleted_topic_path(deleted.topic_id)
        operations: list[Operation] = [
            Delete(znodes.delete_topic_path(name)),
            SetData(config_path, config) if self._exists(config_path) else Create(config_path, config),
            *(Delete(f"{path}/{broker}") for broker in sorted(deleted.given_up)),
            Delete(path),
        ]
        outcome = self._fence.multi_many([operations])[0]
        if isinstance(outcome, MultiError):
            if isinstance(outcome.reason, NotEmptyError):
                log.warning("topic_not_undeleted", topic=name, reason="a broker has given up its replicas meanwhile")
            # Ends the term, as above.
            raise outcome.reason

    # Reading and forgetting

    def _exists(self, path: str) -> bool:
        return self._zookeeper.exists(path) is not None

    def _read(self, topic_id: bytes) -> DeletedTopic | None:
        path = znodes.deleted_topic_path(topic_id)
        node = self._zookeeper.read_or_none(path)
        if node is None:
            return None
        content = znodes.DeletedTopicNode.decode(node.data, path)
        given_up = frozenset(int(child) for child in self._zookeeper.children(path) if child.isdecimal())
        return DeletedTopic(topic_id, content, node.stat.version, given_up)

    def _forget_expired(self) -> None:
        now_ms = self._now_ms()
        for deleted in self.all():
            content = deleted.content
            if content.is_complete and content.kept_until_ms <= now_ms:
                path = znodes.deleted_topic_path(deleted.topic_id)
                self._fence.delete([*(f"{path}/{broker}" for broker in sorted(deleted.given_up)), path])
                log.info("deleted_topic_forgotten", topic=content.name)
        self._office.post_after(_LOOK_SECONDS, self._forget_expired)
