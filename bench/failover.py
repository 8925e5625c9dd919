"""Three brokers under load, and one of them killed: how long clients wait for an acknowledgement.

    python -m bench.failover [--partitions 18] [--written N] [--rounds 3] [--kafka] [--no-guardian] [--session-ms 6000]
                             [--json FILE]

Each round kills a broker with SIGKILL while producers write to every partition with acks=all and three replicas: once
a leader that is not the controller, then the controller. Then it starts the broker again and waits until all replicas
are in sync. Three kinds of producers measure by turns: librdkafka with its defaults, librdkafka with short backoffs,
and ours. The gap is the longest time in which some partition acknowledged nothing; the one before the kill is shown
beside it. With thousands of partitions, --written keeps that one short: else the load is what is measured.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import confluent_kafka
from bench.support.contender import ApacheKafka, Contender, Ottla
from bench.support.report import machine
from bench.support.scale_run import Clients
from tests.kit.waiting import until

import ottla.sync
from ottla.client.local_cluster.plan import SESSION_TIMEOUT_MS
from ottla.protocol.errors import KafkaError

_WARM_SECONDS: Final = 3.0
_WAIT_SECONDS_MAX: Final = 120.0
_PAUSE_SECONDS: Final = 0.02
# A broker that starts refuses connections, and one that changes its role does not know yet.
_NOT_YET: Final = (KafkaError, OSError)
_SHORT_BACKOFFS: Final = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 50,
}


class Gaps:
    """The longest time without an acknowledgement of each partition, between two moments."""

    def __init__(self, partitions: int) -> None:
        now = time.perf_counter()
        self._last = [now] * partitions
        self._longest = [0.0] * partitions

    def acknowledged(self, partition: int) -> None:
        """Note an acknowledgement; from any thread, one at a time for a partition."""
        now = time.perf_counter()
        self._longest[partition] = max(self._longest[partition], now - self._last[partition])
        self._last[partition] = now

    def all_since(self, moment: float) -> bool:
        """Whether every partition has acknowledged something since a moment."""
        return min(self._last) > moment

    def reset(self) -> None:
        """Forget the gaps so far."""
        self._longest = [0.0] * len(self._longest)

    @property
    def longest(self) -> float:
        """The longest gap of any partition, in seconds."""
        return max(self._longest)


# Sends to every partition again and again until it is told to stop.
Load = Callable[[str, str, int, Gaps, threading.Event], None]


def librdkafka(settings: dict[str, object]) -> Load:
    """Return a load of confluent-kafka with these settings."""

    def load(bootstrap: str, topic: str, partitions: int, gaps: Gaps, stopping: threading.Event) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0, **settings}
        )
        waiting = [0] * partitions

        def answered(error: object, message: confluent_kafka.Message) -> None:
            partition = message.partition()
            assert partition is not None
            waiting[partition] -= 1
            if error is None:
                gaps.acknowledged(partition)

        while not stopping.is_set():
            for partition in range(partitions):
                if waiting[partition] < 2:
                    waiting[partition] += 1
                    producer.produce(topic, b"x" * 100, partition=partition, on_delivery=answered)
            producer.poll(_PAUSE_SECONDS)
        producer.flush(_WAIT_SECONDS_MAX)

    return load


def own_client(bootstrap: str, topic: str, partitions: int, gaps: Gaps, stopping: threading.Event) -> None:
    """Load the cluster with our client."""
    with ottla.sync.Producer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True) as producer:
        waiting = [0] * partitions

        def sent(partition: int) -> Callable[[object], None]:
            def answered(_result: object) -> None:
                waiting[partition] -= 1
                gaps.acknowledged(partition)

            return answered

        while not stopping.is_set():
            for partition in range(partitions):
                if waiting[partition] < 2:
                    waiting[partition] += 1
                    producer.send(topic, b"x" * 100, partition=partition).add_done_callback(sent(partition))
            time.sleep(_PAUSE_SECONDS)


LOADS: Final[dict[str, Load]] = {
    "librdkafka": librdkafka({}),
    "librdkafka, short backoffs": librdkafka(dict(_SHORT_BACKOFFS)),
    "ottla": own_client,
}


def leaders(clients: Clients, topic: str) -> dict[int, int]:
    """Return the leader of each partition, -1 where there is none."""
    answer = clients.metadata(next(iter(clients.brokers)), [topic])
    return {partition.partition_index: partition.leader_id for each in answer.topics for partition in each.partitions}


def only_controller(clients: Clients) -> int | None:
    """Return the controller that all brokers know, None where they disagree or one of them knows too little."""
    found = clients.controllers()
    members = {len(clients.metadata(broker, []).brokers) for broker in clients.brokers}
    return found.pop() if len(found) == 1 and members == {len(clients.brokers)} else None


def is_in_sync(clients: Clients, topic: str, replicas: int) -> bool:
    """Whether all brokers know that all replicas are in sync."""
    return all(
        len(partition.isr_nodes) == replicas
        for broker in clients.brokers
        for each in clients.metadata(broker, [topic]).topics
        for partition in each.partitions
    )


def measure(
    contender: Contender, partitions: int, written: int, load: Load, kill_controller: bool
) -> tuple[float, float]:
    """Kill a broker under load; return the longest gap in seconds, and the longest before that.

    With thousands of partitions, a round of acknowledgements takes a while though nobody dies.
    """
    clients = Clients(contender.addresses)
    topic = f"failover-{uuid.uuid4().hex[:8]}"
    controller = until(lambda: only_controller(clients), seconds=_WAIT_SECONDS_MAX, not_yet=_NOT_YET)
    answer = clients.create(controller, {topic: partitions})
    assert not any(each.error_code for each in answer.topics), answer
    until(lambda: is_in_sync(clients, topic, contender.broker_count), seconds=_WAIT_SECONDS_MAX, not_yet=_NOT_YET)
    gaps, stopping = Gaps(written), threading.Event()
    thread = threading.Thread(target=load, args=(contender.bootstrap, topic, written, gaps, stopping))
    thread.start()
    try:
        until(lambda: gaps.all_since(0), seconds=_WAIT_SECONDS_MAX)
        gaps.reset()
        time.sleep(_WARM_SECONDS)
        before = gaps.longest
        led = set(leaders(clients, topic).values())
        victim = controller if kill_controller else min(led - {controller})
        gaps.reset()
        contender.kill_broker(victim)
        killed = time.perf_counter()
        clients.forget(victim)
        until(lambda: gaps.all_since(killed + 1), seconds=_WAIT_SECONDS_MAX)
        return gaps.longest, before
    finally:
        stopping.set()
        thread.join()
        contender.restart_broker(victim)
        # The next round has its own topic, and no more partitions than this one.
        with ottla.sync.Admin(bootstrap_servers=contender.bootstrap) as admin:
            admin.delete_topics([topic])


def main() -> None:
    """Read the command line, measure, and print every round and the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=18)
    parser.add_argument("--written", type=int, help="partitions that producers write to; all by default")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kafka", action="store_true", help="measure Apache Kafka, too")
    parser.add_argument("--no-guardian", action="store_true", help="without ottla.guardian.enable")
    parser.add_argument("--session-ms", type=int, default=SESSION_TIMEOUT_MS, help="zookeeper.session.timeout.ms")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values to a file, too")
    options = parser.parse_args()
    # Ended from outside, everything that was started is stopped as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    print("  ".join(f"{key}: {value}" for key, value in machine().items()), flush=True)
    measured: dict[str, dict[str, list[float]]] = {}
    for kind in [Ottla, *([ApacheKafka] if options.kafka else [])]:
        properties = {"zookeeper.session.timeout.ms": str(options.session_ms)}
        if options.no_guardian and kind is Ottla:
            properties["ottla.guardian.enable"] = "false"
        with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
            contender = kind(Path(folder) / kind.name, 3, properties)
            try:
                contender.start()
                measured[kind.name] = _rounds(
                    contender, options.partitions, options.written or options.partitions, options.rounds
                )
            finally:
                contender.stop()
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "gaps_s": measured}, indent=2) + "\n")


def _rounds(contender: Contender, partitions: int, written: int, rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, load in LOADS.items():
            for victim in ("leader", "controller"):
                gap, before = measure(contender, partitions, written, load, victim == "controller")
                found.setdefault(f"{victim} killed, {name}", []).append(gap)
                print(
                    f"  {contender.name:8} {victim:10} {name:28} {gap * 1000:8.0f} ms, before {before * 1000:.0f} ms",
                    flush=True,
                )
    print(_table(contender.name, partitions, found), flush=True)
    return found


def _table(name: str, partitions: int, found: dict[str, Sequence[float]] | dict[str, list[float]]) -> str:
    lines = [f"\n{name}, {partitions} partitions: longest time without an acknowledgement, median (largest), ms"]
    for row, gaps in found.items():
        lines.append(f"  {row:48} {statistics.median(gaps) * 1000:8.0f} ({max(gaps) * 1000:.0f})")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
