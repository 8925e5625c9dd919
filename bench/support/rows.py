"""What is measured, in which amounts, and how good it has to be beside Apache Kafka."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from bench.support.contender import Contender
from bench.support.usage import cpu_seconds, memory_mb
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

LOAD_SECONDS_MAX = 400
ADMIN_SECONDS_MAX = 60
GB = 1e9
MB = 1e6


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on our value divided by Kafka's."""

    ratio: float
    is_least: bool = False

    def is_met(self, ratio: float) -> bool:
        """Say whether a ratio is good enough."""
        return ratio >= self.ratio if self.is_least else ratio <= self.ratio

    def __str__(self) -> str:
        return f"{'>=' if self.is_least else '<='} {self.ratio:g}"


def at_least(ratio: float) -> Goal:
    """More is better."""
    return Goal(ratio, is_least=True)


def at_most(ratio: float) -> Goal:
    """Less is better."""
    return Goal(ratio)


class Target(Protocol):
    """What a load is sent to: a contender, or one of its listeners."""

    @property
    def bootstrap(self) -> str:
        """Where clients begin."""

    @property
    def client_settings(self) -> dict[str, str]:
        """What they need to be let in: options of librdkafka."""

    @property
    def broker_count(self) -> int:
        """How many brokers there are."""

    @property
    def pids(self) -> list[int]:
        """Their processes."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything; records in thousands, for that many are handed to the client at once."""

    rounds: int
    records_100: int
    records_1k: int
    requests: int
    latency_records: int
    starts: int
    # How often a row may be measured until two values agree.
    warm_ups_max: int


FULL = Scale(
    rounds=5,
    records_100=5_000_000,
    records_1k=1_000_000,
    requests=30_000,
    latency_records=10_000,
    starts=3,
    warm_ups_max=8,
)
QUICK = Scale(
    rounds=1,
    records_100=300_000,
    records_1k=60_000,
    requests=3_000,
    latency_records=1_000,
    starts=1,
    warm_ups_max=1,
)

Values = dict[str, float]


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement; its values are named with their units."""

    name: str
    measure: Callable[[Contender], Values]
    goals: dict[str, Goal]


BATCHES: dict[str, list[str]] = {
    # What librdkafka does by itself: up to a megabyte, as many records as five milliseconds bring.
    "default batches": [],
    "16 KB batches": ["batch.size=16384"],
    "large batches": ["linger.ms=50", "batch.num.messages=100000"],
}
_PRODUCE_GOALS = {"MB/s": at_least(1.2), "CPU s/GB": at_most(0.5)}
_CONSUME_GOALS = {
    100: {"MB/s": at_least(1.1), "CPU s/GB": at_most(0.8)},
    1024: {"MB/s": at_least(1.1), "CPU s/GB": at_most(1.0)},
}


def load_rows(scale: Scale) -> list[Row]:
    """The rows that need a running broker."""
    rows = []
    for size, label, count in ((100, "100 B", scale.records_100), (1024, "1 KB", scale.records_1k)):
        for batches, options in BATCHES.items():
            # The goals are for batches that are not made small on purpose.
            goals = {} if batches.startswith("16") else _PRODUCE_GOALS
            rows.append(Row(f"produce {label}, {batches}", _produce(count, size, options), goals))
        rows.append(Row(f"consume {label}", _consume(count, size), _CONSUME_GOALS[size]))
    rows.append(
        Row(
            "one record per request, five in flight",
            _requests(scale.requests),
            {"requests/s": at_least(2.0), "CPU us/request": at_most(0.5)},
        )
    )
    rows.append(
        Row(
            "end to end, 500 records/s",
            _latency(scale.latency_records),
            {"p50 ms": at_most(0.7), "p99 ms": at_most(0.4)},
        )
    )
    return rows


def start_rows() -> list[Row]:
    """The rows that start brokers of their own."""
    return [
        Row("start to first record, ZooKeeper up", _start, {"s": at_most(0.3)}),
        Row("start to first record, with ZooKeeper", _start_with_zookeeper, {"s": at_most(0.5)}),
    ]


IDLE = Row("memory idle", lambda contender: memory(contender, "VmRSS"), {"resident MB": at_most(0.2)})
LOADED = Row("memory under load", lambda contender: memory(contender, "VmHWM"), {"resident MB": at_most(0.15)})


def _produce(count: int, size: int, options: list[str]) -> Callable[[Contender], Values]:
    def measure(contender: Contender) -> Values:
        with topic_for(contender) as topic:
            return throughput(contender, "produce", topic, size, "--count", str(count), *settings(*options))

    return measure


def _consume(count: int, size: int) -> Callable[[Contender], Values]:
    def measure(contender: Contender) -> Values:
        with topic_for(contender) as topic:
            load(contender, "produce", topic, size, "--count", str(count))
            return throughput(contender, "consume", topic, size, "--count", str(count))

    return measure


def _requests(count: int) -> Callable[[Contender], Values]:
    def measure(contender: Contender) -> Values:
        with topic_for(contender) as topic:
            return requests(contender, topic, "--count", str(count))

    return measure


def _latency(count: int) -> Callable[[Contender], Values]:
    def measure(contender: Contender) -> Values:
        with topic_for(contender) as topic:
            return latency(contender, topic, "--count", str(count))

    return measure


def _start(contender: Contender) -> Values:
    contender.start_zookeeper()
    try:
        return {"s": contender.start_brokers()}
    finally:
        contender.stop_brokers()
        contender.stop_zookeeper()


def _start_with_zookeeper(contender: Contender) -> Values:
    seconds = contender.start_zookeeper()
    try:
        return {"s": seconds + contender.start_brokers()}
    finally:
        contender.stop_brokers()
        contender.stop_zookeeper()


@contextmanager
def topic_for(contender: Target, partitions: int = 1) -> Iterator[str]:
    """A topic for one measurement, with a replica on every broker."""
    name = f"bench-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": contender.bootstrap, "log_level": 0, **contender.client_settings})
    admin.create_topics([NewTopic(name, partitions, contender.broker_count)])[name].result(ADMIN_SECONDS_MAX)
    try:
        yield name
    finally:
        admin.delete_topics([name])[name].result(ADMIN_SECONDS_MAX)


def load(contender: Target, kind: str, topic: str, size: int, *arguments: str) -> Values:
    """Run a load in a process of its own; return what it says."""
    command = [sys.executable, "-m", "bench.support.load", kind, "--bootstrap", contender.bootstrap, "--topic", topic]
    command += ["--record-bytes", str(size), *settings(*map("=".join, contender.client_settings.items())), *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=LOAD_SECONDS_MAX)
    values: Values = json.loads(done.stdout)
    return values


def settings(*pairs: str) -> list[str]:
    """Return arguments of a load that set options of librdkafka."""
    return [argument for pair in pairs for argument in ("--set", pair)]


def throughput(contender: Target, kind: str, topic: str, size: int, *arguments: str) -> Values:
    """Run a load, and count bytes and what the brokers use for them."""
    return counted(contender, kind, topic, size, *arguments)[1]


def counted(contender: Target, kind: str, topic: str, size: int, *arguments: str) -> tuple[int, Values]:
    """As `throughput`; return how many records there were as well."""
    before = cpu_seconds(contender.pids)
    result = load(contender, kind, topic, size, *arguments)
    used = cpu_seconds(contender.pids) - before
    return int(result["records"]), {
        "MB/s": result["bytes"] / MB / result["seconds"],
        "records/s": result["records"] / result["seconds"],
        "CPU s/GB": used / (result["bytes"] / GB),
        "client's CPU s/GB": result["cpu_seconds"] / (result["bytes"] / GB),
    }


def requests(contender: Contender, topic: str, *arguments: str) -> Values:
    """Run a load of one record in each request, and count requests and what the brokers use for them."""
    before = cpu_seconds(contender.pids)
    result = load(contender, "requests", topic, 100, *arguments)
    used = cpu_seconds(contender.pids) - before
    return {
        "requests/s": result["records"] / result["seconds"],
        "CPU us/request": used / result["records"] * 1e6,
    }


def latency(contender: Contender, topic: str, *arguments: str) -> Values:
    """Run a load at an even pace, and measure from send to receive."""
    result = load(contender, "latency", topic, 100, *arguments)
    return {"p50 ms": result["p50_ms"], "p99 ms": result["p99_ms"], "max ms": result["max_ms"]}


def memory(contender: Contender, field: str) -> Values:
    """Return the memory of all brokers; a line of /proc/PID/status."""
    # Pages of files that are mapped are the system's cache as much as the process's own; hence both.
    return {"resident MB": memory_mb(contender.pids, field), "without files MB": memory_mb(contender.pids, "RssAnon")}
