"""The results as a table, with ratios, and as JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import confluent_kafka
from bench.support.rows import Goal, Row, Values

NOTE = (
    "Medians over the rounds after the warm-up, in which every row was measured until two values agreed within 10 %. "
    "Those marked ~ never did. The load is librdkafka's C interface. The amounts of --quick are too small for a JVM to "
    "be warm: they show that it runs, not how fast anything is."
)


MET: Final = "met"
SHORT: Final = "SHORT"
OUT_OF_REACH: Final = "OUT OF REACH"


class Results:
    """What every contender reached in every round.

    Two of them are compared, and the first is held against its goals. The one named `limit` is no rival: it shows what
    client and machine allow. A goal that it misses, too, is out of reach.
    """

    def __init__(self, contenders: Sequence[str], limit: str | None = None) -> None:
        self._contenders = contenders
        self._limit = limit
        self._compared = [contender for contender in contenders if contender != limit]
        # By row, then by contender.
        self._values: dict[str, dict[str, list[Values]]] = {}
        self._goals: dict[str, dict[str, Goal]] = {}
        # Rows and contenders that did not become steady before they were measured.
        self._unsteady: set[tuple[str, str]] = set()

    def add(self, row: Row, contender: str, values: Values) -> None:
        """Note one measurement."""
        self._goals[row.name] = row.goals
        self._values.setdefault(row.name, {}).setdefault(contender, []).append(values)

    def note_unsteady(self, row: Row, contender: str) -> None:
        """Note that a contender may get faster still."""
        self._unsteady.add((row.name, contender))

    def median(self, row: str, contender: str, metric: str) -> float:
        """Return the median over the rounds."""
        return statistics.median(values[metric] for values in self._values[row][contender])

    def table(self) -> str:
        """Return the table for people."""
        compares = len(self._compared) == 2
        to_limit = [] if self._limit is None else [f"{contender}/{self._limit}" for contender in self._compared]
        headings = ["row", "", *self._contenders, *to_limit, *(["ratio", "goal", ""] if compares else [])]
        lines = [headings]
        for row, by_contender in self._values.items():
            for metric in next(iter(by_contender.values()))[0]:
                medians = {contender: self.median(row, contender, metric) for contender in self._contenders}
                line = [row, metric]
                for contender, median in medians.items():
                    line.append(_number(median) + " ~" * ((row, contender) in self._unsteady))
                if self._limit is not None:
                    limit = medians[self._limit]
                    line += [f"{_ratio(medians[contender], limit):.2f}" for contender in self._compared]
                if compares:
                    line += self._judged(self._goals[row].get(metric), medians)
                lines.append(line)
        widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines
        )

    def _judged(self, goal: Goal | None, medians: Mapping[str, float]) -> tuple[str, str, str]:
        """Return the ratio of those compared, the goal, and whether it is met."""
        ours, theirs = (medians[contender] for contender in self._compared)
        ratio = _ratio(ours, theirs)
        if goal is None:
            return f"{ratio:.2f}", "", ""
        if goal.is_met(ratio):
            verdict = MET
        elif self._limit is not None and not goal.is_met(_ratio(medians[self._limit], theirs)):
            verdict = OUT_OF_REACH
        else:
            verdict = SHORT
        return f"{ratio:.2f}", str(goal), verdict

    def write_json(self, path: Path) -> None:
        """Write everything for machines."""
        content: dict[str, Any] = {
            "machine": machine(),
            "rows": [
                {
                    "row": row,
                    "goals": {metric: str(goal) for metric, goal in self._goals[row].items()},
                    "rounds": by_contender,
                }
                for row, by_contender in self._values.items()
            ],
        }
        path.write_text(json.dumps(content, indent=2) + "\n")


def machine() -> dict[str, str]:
    """Say where and when this was measured."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processors": str(os.cpu_count()),
        "load": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        # How it was built makes a tenth of difference (docs/adr/0017).
        "python": f"{platform.python_version()} ({platform.python_compiler()}, {platform.python_build()[1]})",
        "librdkafka": confluent_kafka.libversion()[0],
    }


def _ratio(value: float, other: float) -> float:
    return value / other if other else float("nan")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
