"""When a cluster should be balanced without anybody asking: not for every small difference, and not again and again.

Planning starts when a broker is twice as far from the mean as plans leave it, so a cluster that was just balanced has
room to change before anything moves again. And a plan must be worth it: if data cannot be spread better, because one
partition is larger than all others for example, nothing moves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ottla.balance.load import BrokerLoad, ClusterLoad, broker_loads
from ottla.balance.plan import BalancePlan
from ottla.balance.planner import TOLERANCE, TRAFFIC_MIN, TRAFFIC_TOLERANCE, plan

# How many tolerances a broker may be from the mean.
_TRIGGER: Final = 2.0
# By how many tolerances the worst broker must get better.
_IMPROVEMENT_MIN: Final = 0.5

Measure = Callable[[BrokerLoad], float]


def plan_if_needed(load: ClusterLoad) -> BalancePlan | None:
    """Return a plan if brokers must be emptied, or if the cluster is so uneven that a plan is worth it."""
    if any(not load.drained.isdisjoint(each.replicas) for each in load.partitions.values()):
        return plan(load)
    before = distance(load, broker_loads(load.partitions, {}))
    if before <= _TRIGGER:
        return None
    made = plan(load)
    return made if before - distance(load, made.after()) >= _IMPROVEMENT_MIN else None


def distance(load: ClusterLoad, loads: Mapping[int, BrokerLoad]) -> float:
    """Return how many tolerances the worst broker is from the mean, in its worst measure."""
    worst = 0.0
    for measure, tolerance, least in _MEASURES:
        values = [measure(loads.get(broker, BrokerLoad())) for broker in load.receivers]
        mean = sum(values) / max(1, len(values))
        slack = max(least, tolerance * mean)
        if slack and mean >= (TRAFFIC_MIN if measure in _TRAFFIC else 0):
            worst = max([worst, *(abs(value - mean) / slack for value in values)])
    return worst


def _replicas(load: BrokerLoad) -> float:
    return load.replicas


def _leaders(load: BrokerLoad) -> float:
    return load.leaders


def _size(load: BrokerLoad) -> float:
    return load.size_bytes


def _traffic(load: BrokerLoad) -> float:
    return load.bytes_per_second


def _leader_traffic(load: BrokerLoad) -> float:
    return load.leader_bytes_per_second


_TRAFFIC: Final = (_traffic, _leader_traffic)
# Each with its tolerance, and with the least difference that counts.
_MEASURES: Final[tuple[tuple[Measure, float, float], ...]] = (
    (_replicas, TOLERANCE, 1.0),
    (_leaders, TOLERANCE, 1.0),
    (_size, TOLERANCE, 0.0),
    (_traffic, TRAFFIC_TOLERANCE, 0.0),
    (_leader_traffic, TOLERANCE, 0.0),
)
