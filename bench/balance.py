"""Balancing a skewed cluster: bytes that plans copy beside the least possible, and what producers notice of the moves.

    python -m bench.balance                                   plans only: nothing is started, a few seconds
    python -m bench.balance --cluster [--partitions 600] [--megabytes 300] [--throttle-mib 10] [--seconds 10]

The first prints plans for clusters of five brokers with 600 partitions. The least that any plan within the tolerance
must copy is what brokers have above it, or lack below it, whichever is more; or what drained brokers have.

The second starts five brokers, of which two are empty, with three replicas of each partition on the others. Two
producers write one record after the other with acks=all; the time to each acknowledgement is taken before the balance,
during it, and after it.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.support.report import machine
from tests.kit.broker_process import BrokerProcess
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

import ottla.sync
from ottla.balance.load import BrokerLoad, ClusterLoad, PartitionLoad
from ottla.balance.plan import BalancePlan, unevenness
from ottla.balance.planner import TOLERANCE, plan
from ottla.client.admin.topic_results import NewTopic
from ottla.protocol.identifiers import TopicPartition

_BROKERS: Final = 5
_REPLICAS: Final = 3
_SEED: Final = 7
_TOPIC: Final = "orders"
_RECORD_BYTES: Final = 10_000
_PAUSE_SECONDS: Final = 0.01
_MiB: Final = 1 << 20
_GiB: Final = 1 << 30


def skewed(weights: Sequence[float], partitions: int = 600, drained: frozenset[int] = frozenset()) -> ClusterLoad:
    """Return a cluster whose brokers have replicas by their weights; a few partitions are large, and a few busy."""
    chance = random.Random(_SEED)
    brokers = list(range(1, len(weights) + 1))
    loads = {}
    for number in range(partitions):
        replicas: list[int] = []
        while len(replicas) < _REPLICAS:
            broker = chance.choices(brokers, weights)[0]
            if broker not in replicas:
                replicas.append(broker)
        size, traffic = int(chance.lognormvariate(19, 1.2)), chance.lognormvariate(10, 1.5)
        loads[TopicPartition(f"t{number % 20}", number // 20)] = PartitionLoad(tuple(replicas), size, traffic)
    return ClusterLoad(dict.fromkeys(brokers), loads, drained)


def least_bytes(made: BalancePlan) -> float:
    """Return what every plan must copy that leaves all brokers within the tolerance."""
    before = made.before()
    receivers = [before[broker].size_bytes for broker in made.load.receivers]
    drained = sum(load.size_bytes for broker, load in before.items() if broker in made.load.drained)
    mean = (sum(receivers) + drained) / len(receivers)
    above = sum(max(0.0, size - mean * (1 + TOLERANCE)) for size in receivers) + drained
    below = sum(max(0.0, mean * (1 - TOLERANCE) - size) for size in receivers)
    return max(above, below)


def spread(made: BalancePlan) -> str:
    """Return how far the fullest broker is above the mean, before and after: leaders, replicas, bytes, writes."""
    parts = []
    for name in ("leaders", "replicas", "size_bytes", "bytes_per_second"):
        shares = [
            unevenness(float(getattr(loads.get(broker, BrokerLoad()), name)) for broker in made.load.receivers)
            for loads in (made.before(), made.after())
        ]
        parts.append(f"{name} +{shares[0]:.0%} → +{shares[1]:.0%}")
    return ", ".join(parts)


def print_plans() -> None:
    """Plan for some clusters, and compare."""
    clusters = {
        "a new broker": skewed([1, 1, 1, 1, 0]),
        "skewed": skewed([8, 4, 2, 1, 1]),
        "even": skewed([1, 1, 1, 1, 1]),
        "drain one": skewed([1, 1, 1, 1, 1], drained=frozenset({2})),
    }
    for name, load in clusters.items():
        begun = time.perf_counter()
        made = plan(load)
        seconds = time.perf_counter() - begun
        copied, least = made.copied_bytes / _GiB, least_bytes(made) / _GiB
        total = sum(each.size_bytes for each in made.before().values()) / _GiB
        print(
            f"{name}: {copied:.1f} GiB copied of {total:.1f} GiB, least {least:.1f} GiB; "
            f"{made.copied_replicas} copies, {made.leader_changes} leaders; planned in {seconds:.2f} s"
        )
        print(f"    {spread(made)}")


class Load:
    """A producer that sends one record after the other, and how long each waits for its acknowledgement."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._ends = threading.Event()
        self._latencies: list[tuple[float, float]] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it."""
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        with ottla.sync.Producer(bootstrap_servers=self._bootstrap, acks="all", linger_ms=0) as producer:
            while not self._ends.wait(_PAUSE_SECONDS):
                begun = time.perf_counter()
                producer.send(_TOPIC, b"x" * 100).result()
                self._latencies.append((begun, time.perf_counter() - begun))

    def between(self, begun: float, ended: float) -> list[float]:
        """Return the latencies of records that were sent in some time."""
        return [seconds for at, seconds in self._latencies if begun <= at < ended]


def quantiles(loads: Sequence[Load], begun: float, ended: float) -> str:
    """Return the latencies in some time, in milliseconds."""
    found = sorted(seconds * 1000 for load in loads for seconds in load.between(begun, ended))
    if len(found) < 2:
        return "too few records"
    p99 = found[min(len(found) - 1, int(len(found) * 0.99))]
    return f"p50 {statistics.median(found):.1f} ms, p99 {p99:.1f} ms, max {found[-1]:.1f} ms ({len(found)} records)"


def fill(bootstrap: str, megabytes: int) -> None:
    """Write some data."""
    with ottla.sync.Producer(bootstrap_servers=bootstrap, linger_ms=20, max_batch_size=200_000) as producer:
        for _ in range(megabytes * 1_000_000 // _RECORD_BYTES):
            producer.send(_TOPIC, random.randbytes(_RECORD_BYTES))
        producer.flush()


def measure_cluster(partitions: int, megabytes: int, throttle_mib: int, seconds: float, folder: Path) -> None:
    """Start a skewed cluster, balance it under load, and print what happened."""
    with ExitStack() as ends:
        zookeeper = ends.enter_context(ZooKeeperServer(folder / "zookeeper"))
        connect = ZooKeeper(zookeeper).connect
        options = ("default.replication.factor=3", "min.insync.replicas=2", "offsets.topic.replication.factor=1")
        brokers = [
            ends.enter_context(BrokerProcess(folder / f"broker-{number}", connect, *options, broker_id=number))
            for number in range(1, _BROKERS + 1)
        ]
        bootstrap = ",".join(each.bootstrap for each in brokers)
        with ottla.sync.Admin(bootstrap_servers=bootstrap) as admin:
            until(lambda: len(admin.describe_cluster().brokers) == _BROKERS, "all brokers are known")
            assignment = {each: [(each + turn) % 3 + 1 for turn in range(_REPLICAS)] for each in range(partitions)}
            admin.create_topics([NewTopic(_TOPIC, replica_assignments=assignment)])
        fill(bootstrap, megabytes)
        loads = [Load(bootstrap) for _ in range(2)]
        begun = time.perf_counter()
        time.sleep(seconds)
        started = time.perf_counter()
        command = [sys.executable, "-m", "ottla.client.cli", "cluster", "balance", "--yes", "-b", bootstrap]
        throttle = ("--throttle", f"{throttle_mib}MiB") if throttle_mib else ()
        done = subprocess.run([*command, *throttle, "--timeout", "120"], capture_output=True, text=True, check=False)
        ended = time.perf_counter()
        time.sleep(seconds)
        for load in loads:
            load.stop()
        lines = done.stdout.splitlines()
        table = next((number for number, line in enumerate(lines) if line.startswith("BROKER")), 0)
        print("\n".join(lines[table:]))
        print(done.stderr.strip())
        print(f"before:  {quantiles(loads, begun, started)}")
        print(f"during:  {quantiles(loads, started, ended)}; throttle {throttle_mib or 'none'} MiB/s")
        print(f"after:   {quantiles(loads, ended, time.perf_counter())}")


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", action="store_true", help="balance a real cluster")
    parser.add_argument("--partitions", type=int, default=600)
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--throttle-mib", type=int, default=10, help="per second and broker; 0 for none")
    parser.add_argument("--seconds", type=float, default=10.0, help="of load before and after")
    arguments = parser.parse_args()
    print(", ".join(f"{name}: {value}" for name, value in machine().items()))
    print_plans()
    if arguments.cluster:
        with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
            measure_cluster(
                arguments.partitions, arguments.megabytes, arguments.throttle_mib, arguments.seconds, Path(folder)
            )


if __name__ == "__main__":
    main()
