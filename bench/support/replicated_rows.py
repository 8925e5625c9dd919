"""What is measured of a cluster in which every record goes to three brokers before it is acknowledged.

The producer is not idempotent, asks for acks=all, and has librdkafka's defaults otherwise. All loads go on for the same
time, whoever serves them, and what the brokers use is summed over all of them.
"""

from __future__ import annotations

from collections.abc import Callable

from bench.support.contender import Contender
from bench.support.rows import (
    Goal,
    Row,
    Values,
    at_least,
    at_most,
    latency,
    memory,
    requests,
    settings,
    throughput,
    topic_for,
)

BROKERS = 3
ACKS_ALL = settings("acks=all")
MANY_PARTITIONS = 12

IDLE = Row("memory idle, all brokers", lambda contender: memory(contender, "VmRSS"), {"resident MB": at_most(0.15)})
LOADED = Row(
    "memory under load, all brokers", lambda contender: memory(contender, "VmHWM"), {"resident MB": at_most(0.15)}
)

_PRODUCE_GOALS = {"MB/s": at_least(4.0), "CPU s/GB": at_most(0.5)}
_REQUEST_GOALS = {"requests/s": at_least(5.0)}


def replicated_rows(seconds: float) -> list[Row]:
    """The rows that need a running cluster; each load goes on for so many seconds."""
    for_seconds = ("--seconds", str(seconds), *ACKS_ALL)
    rows = []
    for partitions, where in ((1, ""), (MANY_PARTITIONS, f", {MANY_PARTITIONS} partitions")):
        for size, label in ((100, "100 B"), (1024, "1 KB")):
            # The goals are for one partition, which one broker leads; with more, all three lead some.
            goals = _PRODUCE_GOALS if partitions == 1 else {}
            rows.append(Row(f"produce {label}{where}", _produce(partitions, size, for_seconds), goals))
        goals = _REQUEST_GOALS if partitions == 1 else {}
        rows.append(Row(f"one record per request{where}", _requests(partitions, for_seconds), goals))
    rows.append(_latency_row(for_seconds))
    return rows


def _latency_row(for_seconds: tuple[str, ...]) -> Row:
    def measure(contender: Contender) -> Values:
        with topic_for(contender) as topic:
            return latency(contender, topic, *for_seconds)

    goals: dict[str, Goal] = {"p99 ms": at_most(1.0)}
    return Row("end to end, 500 records/s", measure, goals)


def _produce(partitions: int, size: int, for_seconds: tuple[str, ...]) -> Callable[[Contender], Values]:
    def measure(contender: Contender) -> Values:
        with topic_for(contender, partitions) as topic:
            return throughput(contender, "produce", topic, size, "--partitions", str(partitions), *for_seconds)

    return measure


def _requests(partitions: int, for_seconds: tuple[str, ...]) -> Callable[[Contender], Values]:
    def measure(contender: Contender) -> Values:
        with topic_for(contender, partitions) as topic:
            return requests(contender, topic, "--partitions", str(partitions), *for_seconds)

    return measure
