"""Plans which replicas and leaders to move so that brokers have about the same load. Plain functions over values.

    A. Replicas leave drained brokers, and racks that have more replicas of a partition than they need to.
    B. While a broker is further from the mean than the tolerance, in replicas, bytes or traffic, a replica moves from
       a broker above the mean to one below it; or two replicas change places. Of all such steps, the one is taken that
       evens out most for each byte that it copies.
    C. What has moved without need goes back, the largest first.
    D. The same for leaders, in number and traffic. Leaders only change among the replicas that there are, so this
       copies nothing.

Every step of B and D lowers the sum of squared deviations from the mean, so planning ends. It is repeated, without C,
until nothing moves, so the plan of a cluster that has carried out its plan is empty. A partition always keeps its
number of replicas, and no step puts more of them into one rack than before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import ceil
from typing import Final, NamedTuple

from msgspec.structs import replace

from ottla.balance.load import ClusterLoad
from ottla.balance.plan import BalancePlan, moves_between
from ottla.protocol.identifiers import TopicPartition

# How far from the mean a broker may be, as a share of it. Traffic comes and goes, so copying for its sake needs more.
TOLERANCE: Final = 0.1
TRAFFIC_TOLERANCE: Final = 0.3
# Less traffic than this, in bytes per second for each broker, is not worth a move.
TRAFFIC_MIN: Final = 64 * 1024
# Swaps are tried with this many of the smallest replicas of the other broker.
_SWAPS_MAX: Final = 12
# Steps of planning for each replica; a bound, which sane clusters never reach.
_STEPS_MAX: Final = 4
_GAIN_MIN: Final = 1e-9
# Nearly always the second round finds nothing to do.
_ROUNDS_MAX: Final = 20


class NotEnoughBrokersError(ValueError):
    """A partition has more replicas than there are brokers left for them."""


class _Measure(NamedTuple):
    """One thing to even out: how much of it each partition has, how much each broker should, and how exactly."""

    of: Callable[[TopicPartition], float]
    mean: float
    slack: float


class _Even:
    """The sums of some measures by broker, and how far they are from even."""

    def __init__(self, brokers: Sequence[int], measures: Sequence[_Measure]) -> None:
        self.measures = [measure for measure in measures if measure.mean > 0]
        self.sums = {broker: [0.0] * len(self.measures) for broker in brokers}
        self._amounts: dict[TopicPartition, list[float]] = {}

    def amounts(self, partition: TopicPartition) -> list[float]:
        """Return what a partition has of each measure."""
        known = self._amounts.get(partition)
        if known is None:
            known = self._amounts[partition] = [measure.of(partition) for measure in self.measures]
        return known

    def add(self, broker: int, partition: TopicPartition, sign: int = 1) -> None:
        """Count a partition for a broker, or no longer. Brokers that do not take part are ignored."""
        sums = self.sums.get(broker)
        if sums is not None:
            for index, amount in enumerate(self.amounts(partition)):
                sums[index] += sign * amount

    def gain(self, source: int, target: int, given: TopicPartition, taken: TopicPartition | None = None) -> float:
        """Return how much more even it gets if `source` gives a partition to `target`, and takes one in return."""
        taken_amounts = None if taken is None else self.amounts(taken)
        at_source, at_target = self.sums[source], self.sums[target]
        gain = 0.0
        for index, amount in enumerate(self.amounts(given)):
            net = amount if taken_amounts is None else amount - taken_amounts[index]
            # (s-m)² + (t-m)² - (s-n-m)² - (t+n-m)², over m²
            mean = self.measures[index].mean
            gain += 2 * net * (at_source[index] - at_target[index] - net) / (mean * mean)
        return gain

    def distance(self, brokers: Iterable[int]) -> float:
        """Return how far some brokers are from even: the sum of squared deviations from the means."""
        return sum(
            (self.sums[broker][index] / measure.mean - 1) ** 2
            for broker in brokers
            for index, measure in enumerate(self.measures)
        )

    def excess(self, broker: int) -> float:
        """Return by how many slacks a broker is outside the tolerance, over all measures."""
        sums = self.sums[broker]
        return sum(
            max(0.0, abs(sums[index] - measure.mean) / measure.slack - 1) for index, measure in enumerate(self.measures)
        )

    def outliers(self) -> list[tuple[int, int, bool]]:
        """Return measure, broker and whether it has too much, for all outside the tolerance; the worst ones first."""
        found = []
        for index, measure in enumerate(self.measures):
            for broker, sums in self.sums.items():
                distance = sums[index] - measure.mean
                if abs(distance) > measure.slack * (1 + 1e-6):
                    found.append((-abs(distance) / measure.slack, index, broker, distance > 0))
        return [(index, broker, is_over) for _, index, broker, is_over in sorted(found)]

    def partners(self, index: int, broker: int, *, is_over: bool) -> list[int]:
        """Return the brokers on the other side of the mean, the furthest first."""
        mean = self.measures[index].mean
        others = [
            other
            for other, sums in self.sums.items()
            if other != broker and (sums[index] < mean if is_over else sums[index] > mean)
        ]
        return sorted(others, key=lambda other: self.sums[other][index], reverse=not is_over)


class _Layout:
    """Where replicas are while a plan is made."""

    def __init__(self, load: ClusterLoad) -> None:
        self._load = load
        self.receivers = load.receivers
        self.replicas = {partition: list(each.replicas) for partition, each in load.partitions.items()}
        self.on: dict[int, set[TopicPartition]] = {broker: set() for broker in self.receivers}
        racks = {broker: rack for broker in self.receivers if (rack := load.racks[broker]) is not None}
        self._racks = racks if len(racks) == len(self.receivers) else {}
        self._rack_count = len(set(racks.values()))
        # What a move costs beside its bytes, in bytes. It makes a few moves better than many tiny ones.
        total = sum(each.size_bytes for each in load.partitions.values())
        self.cost_bytes = 1 + total / max(1, len(load.partitions)) / 4
        self.even = self._replica_measures()
        for partition, replicas in self.replicas.items():
            for broker in replicas:
                self._count(partition, broker, 1)

    def _replica_measures(self) -> _Even:
        """What is evened out by moving replicas. The means are those of the finished plan."""
        partitions = self._load.partitions
        count = max(1, len(self.receivers))
        replicas = size = traffic = 0.0
        for each in partitions.values():
            # Replicas on dead brokers stay there, unless these are drained.
            movable = sum(broker in self._load.racks or broker in self._load.drained for broker in each.replicas)
            replicas += movable
            size += movable * each.size_bytes
            traffic += movable * each.bytes_per_second
        traffic_mean = traffic / count if traffic / count >= TRAFFIC_MIN else 0.0
        return _Even(
            self.receivers,
            [
                _Measure(lambda _: 1.0, replicas / count, max(1.0, TOLERANCE * replicas / count)),
                _Measure(lambda each: partitions[each].size_bytes, size / count, TOLERANCE * size / count),
                _Measure(
                    lambda each: partitions[each].bytes_per_second, traffic_mean, TRAFFIC_TOLERANCE * traffic_mean
                ),
            ],
        )

    def size(self, partition: TopicPartition) -> int:
        """Return the bytes of a partition."""
        return self._load.partitions[partition].size_bytes

    def move(self, partition: TopicPartition, source: int, target: int) -> None:
        """Put the replica of one broker on another one."""
        replicas = self.replicas[partition]
        replicas[replicas.index(source)] = target
        self._count(partition, source, -1)
        self._count(partition, target, 1)

    def _count(self, partition: TopicPartition, broker: int, sign: int) -> None:
        if broker in self.on:
            (self.on[broker].add if sign > 0 else self.on[broker].discard)(partition)
            self.even.add(broker, partition, sign)

    def may_move(self, partition: TopicPartition, source: int, target: int) -> bool:
        """Return whether a replica may move without two on one broker, and without crowding a rack."""
        replicas = self.replicas[partition]
        if target in replicas:
            return False
        if not self._racks or self._racks.get(source) == self._racks[target]:
            return True
        moved = [target if broker == source else broker for broker in replicas]
        return self.crowding(moved) <= self.crowding(replicas)

    def crowding(self, replicas: Iterable[int]) -> int:
        """Return how many replicas are in racks that have more than their share."""
        if not self._racks:
            return 0
        counts: dict[str, int] = {}
        total = 0
        for broker in replicas:
            total += 1
            rack = self._racks.get(broker)
            if rack is not None:
                counts[rack] = counts.get(rack, 0) + 1
        share = ceil(total / self._rack_count)
        return sum(max(0, count - share) for count in counts.values())


def plan(load: ClusterLoad, *, even_out: bool = True) -> BalancePlan:
    """Return the plan for a cluster; without `even_out`, only what has to leave drained brokers and crowded racks.

    Raises NotEnoughBrokersError if drained brokers leave too few others for some partition.
    """
    current = load
    for turn in range(_ROUNDS_MAX):
        placed = _placed(current, even_out=even_out, put_back=turn == 0)
        changed = {each: replicas for each, replicas in placed.items() if replicas != current.partitions[each].replicas}
        if not changed:
            break
        current = replace(
            current,
            partitions={
                partition: replace(each, replicas=changed.get(partition, each.replicas))
                for partition, each in current.partitions.items()
            },
        )
    return BalancePlan(load, moves_between(load.partitions, placed))


def _placed(load: ClusterLoad, *, even_out: bool, put_back: bool) -> dict[TopicPartition, tuple[int, ...]]:
    """Return where all partitions should be. Repeated without `put_back`, it comes to an end, where nothing moves."""
    layout = _Layout(load)
    _vacate(load, layout)
    if even_out:
        _even_out(layout)
        if put_back:
            _put_back(load, layout)
    _spread_leaders(load, layout)
    return {partition: tuple(replicas) for partition, replicas in layout.replicas.items()}


# A: replicas that cannot stay


def _vacate(load: ClusterLoad, layout: _Layout) -> None:
    leaving = [
        (partition, broker)
        for partition, each in load.partitions.items()
        for broker in each.replicas
        if broker in load.drained
    ]
    # The largest first: the smaller ones fill the gaps.
    for partition, broker in sorted(leaving, key=lambda each: (-layout.size(each[0]), each)):
        free = [each for each in layout.receivers if each not in layout.replicas[partition]]
        if not free:
            raise NotEnoughBrokersError(
                f"{partition} needs {len(load.partitions[partition].replicas)} brokers for its replicas; "
                f"{len(layout.receivers)} would be left"
            )
        apart = [each for each in free if layout.may_move(partition, broker, each)]
        layout.move(partition, broker, _emptiest(layout, partition, apart or free))
    for partition, replicas in layout.replicas.items():
        while crowding := layout.crowding(replicas):
            choices = [
                (source, target)
                for source in replicas
                for target in layout.receivers
                if target not in replicas
                and source in layout.on
                and layout.crowding([target if broker == source else broker for broker in replicas]) < crowding
            ]
            if not choices:
                break
            source, target = max(choices, key=lambda each: (layout.even.gain(each[0], each[1], partition), each))
            layout.move(partition, source, target)


def _emptiest(layout: _Layout, partition: TopicPartition, brokers: Iterable[int]) -> int:
    """Return the broker for which another replica is the least burden."""
    even = layout.even
    amounts = even.amounts(partition)

    def burden(broker: int) -> float:
        sums = even.sums[broker]
        return sum(
            amount * (2 * sums[index] + amount) / even.measures[index].mean ** 2 for index, amount in enumerate(amounts)
        )

    return min(brokers, key=lambda broker: (burden(broker), broker))


# B: replicas of brokers that have too much


def _even_out(layout: _Layout) -> None:
    steps = _STEPS_MAX * sum(map(len, layout.replicas.values()))
    for _ in range(steps):
        outliers = layout.even.outliers()
        if not any(_improve(layout, *outlier) for outlier in outliers):
            return


def _improve(layout: _Layout, index: int, broker: int, is_over: bool) -> bool:
    """Take the best step for one broker that has too much or too little; return False if there is none."""
    for partner in layout.even.partners(index, broker, is_over=is_over):
        source, target = (broker, partner) if is_over else (partner, broker)
        if _move_best(layout, index, source, target) or _swap_best(layout, index, source, target):
            return True
    return False


def _move_best(layout: _Layout, index: int, source: int, target: int) -> bool:
    even = layout.even
    best: TopicPartition | None = None
    best_score = 0.0
    for partition in layout.on[source]:
        if even.amounts(partition)[index] <= 0:
            continue
        gain = even.gain(source, target, partition)
        if gain <= _GAIN_MIN:
            continue
        score = gain / (layout.size(partition) + layout.cost_bytes)
        if (score, partition) > (best_score, best or partition) and layout.may_move(partition, source, target):
            best, best_score = partition, score
    if best is None:
        return False
    layout.move(best, source, target)
    return True


def _swap_best(layout: _Layout, index: int, source: int, target: int) -> bool:
    even = layout.even
    best: tuple[TopicPartition, TopicPartition] | None = None
    best_score = 0.0
    small = sorted(layout.on[target] - layout.on[source], key=lambda each: (layout.size(each), each))[:_SWAPS_MAX]
    for given in layout.on[source]:
        for taken in small:
            if even.amounts(given)[index] <= even.amounts(taken)[index]:
                continue
            gain = even.gain(source, target, given, taken)
            if gain <= _GAIN_MIN:
                continue
            score = gain / (layout.size(given) + layout.size(taken) + layout.cost_bytes)
            if (
                (score, (given, taken)) > (best_score, best or (given, taken))
                and layout.may_move(given, source, target)
                and layout.may_move(taken, target, source)
            ):
                best, best_score = (given, taken), score
    if best is None:
        return False
    layout.move(best[0], source, target)
    layout.move(best[1], target, source)
    return True


# C: replicas that moved without need


def _put_back(load: ClusterLoad, layout: _Layout) -> None:
    moved = [each for each, replicas in layout.replicas.items() if replicas != list(load.partitions[each].replicas)]
    for partition in sorted(moved, key=lambda each: (-layout.size(each), each)):
        for place, origin in enumerate(load.partitions[partition].replicas):
            broker = layout.replicas[partition][place]
            if origin == broker or origin not in layout.on or not layout.may_move(partition, broker, origin):
                continue
            before = layout.even.excess(broker) + layout.even.excess(origin)
            layout.move(partition, broker, origin)
            if layout.even.excess(broker) + layout.even.excess(origin) > before:
                layout.move(partition, origin, broker)


# D: leaders


def _spread_leaders(load: ClusterLoad, layout: _Layout) -> None:
    partitions = load.partitions
    leaders: dict[TopicPartition, int] = {}
    for partition, replicas in layout.replicas.items():
        eligible = [broker for broker in replicas if broker in layout.on]
        if eligible:
            kept = next((each for each in (partitions[partition].replicas[0],) if each in eligible), None)
            leaders[partition] = eligible[0] if kept is None else kept
    count = max(1, len(layout.receivers))
    mean = len(leaders) / count
    traffic_mean = sum(partitions[each].bytes_per_second for each in leaders) / count
    if traffic_mean < TRAFFIC_MIN:
        traffic_mean = 0.0
    even = _Even(
        layout.receivers,
        [
            _Measure(lambda _: 1.0, mean, max(1.0, TOLERANCE * mean)),
            _Measure(lambda each: partitions[each].bytes_per_second, traffic_mean, TOLERANCE * traffic_mean),
        ],
    )
    led: dict[int, set[TopicPartition]] = {broker: set() for broker in layout.receivers}
    for partition, leader in leaders.items():
        led[leader].add(partition)
        even.add(leader, partition)

    def hand_over(partition: TopicPartition, source: int, target: int) -> None:
        led[source].discard(partition)
        led[target].add(partition)
        even.add(source, partition, -1)
        even.add(target, partition)
        leaders[partition] = target

    def improve(index: int, broker: int, is_over: bool) -> bool:
        for partner in even.partners(index, broker, is_over=is_over):
            source, target = (broker, partner) if is_over else (partner, broker)
            gains = [
                (gain, partition)
                for partition in led[source]
                if target in layout.replicas[partition] and (gain := even.gain(source, target, partition)) > _GAIN_MIN
            ]
            if gains:
                hand_over(max(gains)[1], source, target)
                return True
            if hand_on(source, target):
                return True
        return False

    def hand_on(source: int, target: int) -> bool:
        """Move one leadership over brokers in between, where no partition of the first has a replica on the last."""
        path = _path(led, layout.replicas, source, target)
        brokers = {source, *(end for _, _, end in path)}
        before = even.distance(brokers)
        for partition, start, end in path:
            hand_over(partition, start, end)
        if even.distance(brokers) < before - _GAIN_MIN:
            return True
        for partition, start, end in path:
            hand_over(partition, end, start)
        return False

    for _ in range(_STEPS_MAX * max(1, len(leaders))):
        if not any(improve(*outlier) for outlier in even.outliers()):
            break
    for partition, leader in leaders.items():
        replicas = layout.replicas[partition]
        if replicas[0] != leader:
            replicas.remove(leader)
            replicas.insert(0, leader)


def _path(
    led: dict[int, set[TopicPartition]], replicas: dict[TopicPartition, list[int]], source: int, target: int
) -> list[tuple[TopicPartition, int, int]]:
    """Return the shortest chain of partitions by which leadership gets from one broker to another."""
    reached: dict[int, tuple[TopicPartition, int] | None] = {source: None}
    waiting = deque([source])
    while waiting and target not in reached:
        broker = waiting.popleft()
        for partition in sorted(led[broker]):
            for other in replicas[partition]:
                if other in led and other not in reached:
                    reached[other] = (partition, broker)
                    waiting.append(other)
    path: list[tuple[TopicPartition, int, int]] = []
    end = target
    while (step := reached.get(end)) is not None:
        path.append((step[0], step[1], end))
        end = step[1]
    return path
