"""Where the replicas of new partitions go.

Leaders are assigned round robin over the brokers. The first follower of a partition comes a number of places after its
leader, the shift. The shift grows by one each time the leaders have gone round, which spreads a broker's followers over
all others. With racks, brokers are ordered so that racks alternate, and a rack gets a second replica of a partition
only when every rack has one.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from ottla.protocol.errors import ErrorCode, KafkaError

Assignment = dict[int, list[int]]


def placement(
    racks: Mapping[int, str | None],
    partition_count: int,
    replication_factor: int,
    *,
    first_partition: int = 0,
    start: int | None = None,
) -> Assignment:
    """Return the replicas of new partitions, by index; the first of each is the preferred leader.

    `racks` maps live brokers to their racks, which count only if all brokers have one. `start` is where the round
    starts, for leaders and for the shift; random by default.
    """
    if partition_count <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"a topic cannot have {partition_count} partitions")
    if not 0 < replication_factor <= len(racks):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{replication_factor} replicas were requested, but {len(racks)} brokers are alive and not drained",
        )
    known = {broker: rack for broker, rack in racks.items() if rack is not None}
    is_rack_aware = len(known) == len(racks)
    order = rack_alternating(known) if is_rack_aware else sorted(racks)
    start_index = random.randrange(len(order)) if start is None else start  # noqa: S311 - spreads replicas
    shift = random.randrange(len(order)) if start is None else start  # noqa: S311 - spreads replicas
    assignment: Assignment = {}
    for partition in range(first_partition, first_partition + partition_count):
        if partition > 0 and partition % len(order) == 0:
            shift += 1
        first = (partition + start_index) % len(order)
        if is_rack_aware:
            assignment[partition] = _over_racks(order, known, first, shift, replication_factor)
        else:
            assignment[partition] = _over_brokers(order, first, shift, replication_factor)
    return assignment


def start_of_added(brokers: Sequence[int], first_replica: int) -> int:
    """Return `start` for partitions added to a topic whose first partition has this preferred leader."""
    return next((index for index, broker in enumerate(brokers) if broker >= first_replica), 0)


def rack_alternating(racks: Mapping[int, str]) -> list[int]:
    """Order brokers so that neighbours are in different racks, as long as other racks are left."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    queues = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(map(len, queues), default=0)
    return [queue[turn] for turn in range(longest) for queue in queues if turn < len(queue)]


def _over_brokers(order: Sequence[int], first: int, shift: int, count: int) -> list[int]:
    return [order[first], *(order[_behind(first, shift + replica, len(order))] for replica in range(count - 1))]


def _over_racks(order: Sequence[int], racks: Mapping[int, str], first: int, shift: int, count: int) -> list[int]:
    rack_count = len(set(racks.values()))
    replicas = [order[first]]
    used_racks = {racks[order[first]]}
    step = 0
    while len(replicas) < count:
        # Two rounds are enough: the first fills the racks, the second the brokers that it skipped.
        assert step < 2 * len(order), "a replica has no broker left"
        candidate = order[_behind(first, shift * rack_count + step, len(order))]
        step += 1
        rack_is_taken = racks[candidate] in used_racks and len(used_racks) < rack_count
        if candidate in replicas or rack_is_taken:
            continue
        replicas.append(candidate)
        used_racks.add(racks[candidate])
    return replicas


def _behind(first: int, distance: int, count: int) -> int:
    """Return a place after `first` on the circle, never `first` itself."""
    return (first + 1 + distance % (count - 1)) % count
