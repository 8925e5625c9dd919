"""A plan: where partitions go, what that costs, and how even the cluster is before and after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from ottla.balance.load import BrokerLoad, ClusterLoad, PartitionLoad, broker_loads
from ottla.protocol.identifiers import TopicPartition


class Move(Struct, frozen=True):
    """One partition that gets other replicas, or the same ones with another preferred leader."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    target: tuple[int, ...]
    # Of one replica: each added one copies so much.
    size_bytes: int

    @property
    def added(self) -> tuple[int, ...]:
        """The brokers that get a replica."""
        return tuple(broker for broker in self.target if broker not in self.replicas)

    @property
    def copied_bytes(self) -> int:
        """What is copied between brokers."""
        return self.size_bytes * len(self.added)


class BalancePlan(Struct, frozen=True):
    """The moves in the order in which they should start: leaders first, because they cost nothing."""

    load: ClusterLoad
    moves: tuple[Move, ...]

    @property
    def targets(self) -> dict[TopicPartition, tuple[int, ...]]:
        """Where the partitions go."""
        return {move.partition: move.target for move in self.moves}

    @property
    def copied_bytes(self) -> int:
        """What is copied between brokers."""
        return sum(move.copied_bytes for move in self.moves)

    @property
    def copied_replicas(self) -> int:
        """How many replicas are copied."""
        return sum(len(move.added) for move in self.moves)

    @property
    def leader_changes(self) -> int:
        """How many partitions get another preferred leader."""
        return sum(move.target[0] != move.replicas[0] for move in self.moves)

    @property
    def traffic_to_receivers(self) -> float:
        """What producers write, in bytes per second, to the partitions that the busiest receiver gets.

        If copies are limited to less, they never catch up.
        """
        received: dict[int, float] = {}
        for move in self.moves:
            for broker in move.added:
                traffic = self.load.partitions[move.partition].bytes_per_second
                received[broker] = received.get(broker, 0.0) + traffic
        return max(received.values(), default=0.0)

    def before(self) -> dict[int, BrokerLoad]:
        """What each broker has now."""
        return self._loads({})

    def after(self) -> dict[int, BrokerLoad]:
        """What each broker has when the plan is done."""
        return self._loads(self.targets)

    def _loads(self, placed: Mapping[TopicPartition, tuple[int, ...]]) -> dict[int, BrokerLoad]:
        found = broker_loads(self.load.partitions, placed)
        brokers = sorted({*found, *self.load.racks})
        return {broker: found.get(broker, BrokerLoad()) for broker in brokers}


def moves_between(
    partitions: Mapping[TopicPartition, PartitionLoad], placed: Mapping[TopicPartition, tuple[int, ...]]
) -> tuple[Move, ...]:
    """Return the moves that lead to a placement: changes of leaders first, and the busiest partitions first."""
    moves = [
        Move(partition, partitions[partition].replicas, target, partitions[partition].size_bytes)
        for partition, target in placed.items()
        if target != partitions[partition].replicas
    ]
    return tuple(
        sorted(
            moves,
            key=lambda move: (bool(move.added), -partitions[move.partition].bytes_per_second, move.partition),
        )
    )


def unevenness(loads: Iterable[float]) -> float:
    """Return how far the fullest of some brokers is above their mean, as a share of the mean."""
    values = list(loads)
    mean = sum(values) / len(values) if values else 0.0
    return max(values) / mean - 1 if mean else 0.0
