"""What ZooKeeper knows of a cluster: who is there, who is the controller, who leads and who is in sync."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.exceptions import KazooException, NoNodeError  # type: ignore[import-untyped]
from kazoo.handlers.threading import KazooTimeoutError  # type: ignore[import-untyped]
from tests.kit.hosts import Host

from ottla.broker.cluster.znodes import (
    BROKER_IDS,
    CONTROLLER,
    CONTROLLER_EPOCH,
    ControllerNode,
    PartitionStateNode,
    TopicNode,
    broker_path,
    decode_number,
    delete_topic_path,
    state_path,
    topic_path,
)

ANSWER_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 60.0


class StateUnknownError(Exception):
    """ZooKeeper does not answer now, or has no such node."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Leader and ISR of a partition, with the version of their node."""

    leader: int
    leader_epoch: int
    isr: frozenset[int]
    version: int


class ClusterState:
    """A ZooKeeper client that only asks; usable from any thread."""

    def __init__(self, connect: str, where: Host) -> None:
        self._client: Any = where.call(lambda: self._start(connect))

    def close(self) -> None:
        """End the session."""
        with suppress(KazooException, KazooTimeoutError):
            self._client.stop()
        self._client.close()

    def controller(self) -> int:
        """Return the broker that is the controller."""
        data, _ = self._get(CONTROLLER)
        return ControllerNode.decode(data, CONTROLLER).broker_id

    def controller_epoch(self) -> int:
        """Return how many controllers there have been."""
        data, _ = self._get(CONTROLLER_EPOCH)
        return decode_number(data, CONTROLLER_EPOCH)

    def brokers(self) -> set[int]:
        """Return who is registered."""
        return {int(name) for name in self._answer(self._client.get_children_async(BROKER_IDS))}

    def broker_epoch(self, broker: int) -> int:
        """Return the epoch of a registration; each session has a new one."""
        _, stat = self._get(broker_path(broker))
        return int(stat.czxid)

    def topic_id(self, topic: str) -> object:
        """Return the id of a topic, which its next namesake does not have."""
        data, _ = self._get(topic_path(topic))
        return TopicNode.decode(data, topic_path(topic)).topic_id

    def assignment(self, topic: str) -> dict[int, list[int]] | None:
        """Return the replicas of a topic's partitions; None while some of them are on the move."""
        data, _ = self._get(topic_path(topic))
        node = TopicNode.decode(data, topic_path(topic))
        return None if node.adding_replicas or node.removing_replicas else node.partitions

    def is_being_deleted(self, topic: str) -> bool:
        """Say whether somebody wants a topic deleted, and the controller is not done with it."""
        return self._answer(self._client.exists_async(delete_topic_path(topic))) is not None

    def has_topic(self, topic: str) -> bool:
        """Say whether there is such a topic."""
        return self._answer(self._client.exists_async(topic_path(topic))) is not None

    def partition(self, topic: str, partition: int) -> PartitionState:
        """Return the state of a partition."""
        path = state_path(topic, partition)
        data, stat = self._get(path)
        node = PartitionStateNode.decode(data, path)
        return PartitionState(node.leader, node.leader_epoch, frozenset(node.isr), stat.version)

    def _get(self, path: str) -> tuple[bytes, Any]:
        answer: tuple[bytes, Any] = self._answer(self._client.get_async(path))
        return answer

    def _answer(self, result: Any) -> Any:
        try:
            return result.get(timeout=ANSWER_TIMEOUT_S)
        except NoNodeError as error:
            raise StateUnknownError(f"no node: {error}") from error
        except (KazooException, KazooTimeoutError) as error:
            raise StateUnknownError(repr(error)) from error

    @staticmethod
    def _start(connect: str) -> Any:
        # A session that outlives every pause of the server which a test makes.
        client = KazooClient(hosts=connect, timeout=60.0)
        client.start(timeout=CONNECT_TIMEOUT_S)
        return client
