"""What a plan is made from: brokers with their racks, and partitions with their replicas, sizes and traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from ottla.protocol.identifiers import TopicPartition


class PartitionLoad(Struct, frozen=True):
    """A partition as it is. The first replica is the preferred leader."""

    replicas: tuple[int, ...]
    size_bytes: int = 0
    # What producers write to it.
    bytes_per_second: float = 0.0
    # None if it has no leader now.
    leader: int | None = None


class ClusterLoad(Struct, frozen=True):
    """A cluster as it is."""

    # Live brokers with their racks, which count only if all that may have replicas have one.
    racks: Mapping[int, str | None]
    partitions: Mapping[TopicPartition, PartitionLoad]
    # Brokers that give away their replicas, alive or not.
    drained: frozenset[int] = frozenset()

    @property
    def receivers(self) -> list[int]:
        """The brokers that may have replicas."""
        return sorted(broker for broker in self.racks if broker not in self.drained)


class BrokerLoad(Struct, frozen=True):
    """What one broker has."""

    replicas: int = 0
    leaders: int = 0
    size_bytes: int = 0
    # What is written to its replicas, and to those that it leads.
    bytes_per_second: float = 0.0
    leader_bytes_per_second: float = 0.0


def broker_loads(
    partitions: Mapping[TopicPartition, PartitionLoad], placed: Mapping[TopicPartition, Sequence[int]]
) -> dict[int, BrokerLoad]:
    """Return what each broker has if partitions are placed so, with their preferred leaders leading.

    `placed` has the partitions that are elsewhere than they are now.
    """
    found: dict[int, list[float]] = {}
    for partition, load in partitions.items():
        replicas = placed.get(partition, load.replicas)
        for place, broker in enumerate(replicas):
            sums = found.setdefault(broker, [0, 0, 0, 0.0, 0.0])
            sums[0] += 1
            sums[2] += load.size_bytes
            sums[3] += load.bytes_per_second
            if place == 0:
                sums[1] += 1
                sums[4] += load.bytes_per_second
    return {
        broker: BrokerLoad(int(sums[0]), int(sums[1]), int(sums[2]), sums[3], sums[4]) for broker, sums in found.items()
    }
