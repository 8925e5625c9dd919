"""How long nothing was acknowledged around each fault: liveness, judged apart from safety."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from tests.faults.checker.history import FaultStart, FaultStop
from tests.faults.checker.truth import Truth

NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class FaultReport:
    """One fault: how we know of it, and the longest time between two acknowledgements that touches it.

    `gap_s` is for sends to any partition, `partition_gap_s` for the partition that suffered most. A partition without
    acknowledgements after the fault has a gap until the end of the run.
    """

    name: str
    target: str
    proof: str
    gap_s: float
    partition_gap_s: float
    worst_partition: str
    gap_max_s: float | None

    @property
    def is_stuck(self) -> bool:
        """Whether it took longer than it may."""
        return self.gap_max_s is not None and self.partition_gap_s > self.gap_max_s

    def __str__(self) -> str:
        bound = "" if self.gap_max_s is None else f" (bound {self.gap_max_s:.1f} s)"
        return (
            f"{self.name} of {self.target}: longest gap between acks {self.gap_s:.2f} s, "
            f"in one partition {self.partition_gap_s:.2f} s ({self.worst_partition}){bound}; "
            f"proof: {self.proof or 'NONE'}"
        )


def fault_reports(truth: Truth) -> list[FaultReport]:
    """Measure each fault of a run; one that never stops lasts until the last event."""
    acks = {
        name: sorted(
            send.completed_ns for send in partition.sends if send.was_acknowledged and send.completed_ns is not None
        )
        for name, partition in truth.partitions.items()
        if partition.sends
    }
    end_ns = max((send.completed_ns or send.invoked.time_ns for send in truth.sends()), default=0)
    reports = []
    for start, stop in _pairs(truth):
        stop_ns = stop.time_ns if stop else end_ns
        gaps = {name: _longest_gap_s(times, start.time_ns, stop_ns, end_ns) for name, times in acks.items()}
        worst = max(gaps, key=lambda name: gaps[name], default="")
        every = sorted(time for times in acks.values() for time in times)
        reports.append(
            FaultReport(
                name=start.name,
                target=start.target,
                proof=stop.proof if stop else "",
                gap_s=_longest_gap_s(every, start.time_ns, stop_ns, end_ns),
                partition_gap_s=gaps.get(worst, 0.0),
                worst_partition=worst,
                gap_max_s=start.ack_gap_max_s,
            )
        )
    return reports


def _pairs(truth: Truth) -> list[tuple[FaultStart, FaultStop | None]]:
    """Give each fault the first stop of its name that comes after it."""
    stops = list(truth.fault_stops)
    pairs: list[tuple[FaultStart, FaultStop | None]] = []
    for start in truth.fault_starts:
        stop = next((one for one in stops if one.name == start.name and one.time_ns >= start.time_ns), None)
        if stop is not None:
            stops.remove(stop)
        pairs.append((start, stop))
    return pairs


def _longest_gap_s(acks: list[int], start_ns: int, stop_ns: int, end_ns: int) -> float:
    bounds = [*acks, max(end_ns, acks[-1])] if acks else [start_ns, max(stop_ns, end_ns)]
    touching = (after - before for before, after in pairwise(bounds) if after >= start_ns and before <= stop_ns)
    return max(touching, default=0) / NS_PER_S
