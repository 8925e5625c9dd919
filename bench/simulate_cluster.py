"""The controller of a large cluster, simulated in one process: what creation, failover and memory cost as it grows.

    python -m bench.simulate_cluster [--brokers 10,30,100] [--partitions 100000] [--topic-partitions 100] [--json FILE]

The controller's code is the real one. ZooKeeper and the brokers are simulated (bench/support/simulated_*.py), so 100
brokers need no more than one machine. Each number of brokers runs in a process of its own, on which these are measured:

    create      all topics are created, one after the other
    failover    a broker dies; others lead its partitions and have been told
    return      the broker comes back, and is told all that it must know
    in sync     the broker has caught up; the leaders of its partitions put it back into their ISRs
    controller  the controller's broker dies; the next controller reads everything, elects, and tells all brokers
    delete      a tenth of the topics is deleted

`cpu` is the processor time of the process until all brokers have answered, and `zk wait` the time that the controller
would have waited for ZooKeeper: 0.5 ms a read and 2 ms a write, ten at a time. Their sum is the time that a cluster
with these latencies would take. The processor time of the real ZooKeeper client comes on top; --client-cost measures
it on a real server, for a read and for a node that is written.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import structlog
from bench.support.object_size import object_bytes
from bench.support.report import machine
from bench.support.simulated_cluster import SimulatedCluster
from bench.support.usage import forget_peak, memory_mb

from ottla.broker.cluster.metadata import MetadataCache
from ottla.broker.controller.messages.shared_metadata import UPDATE_METADATA_VERSION
from ottla.protocol.codec import decode
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest

_COLUMNS = ("step", "cpu s", "zk wait s", "zk reads", "zk writes", "zk MB", "requests", "MB sent", "peak MB")


def measure(brokers: int, partitions: int, topic_partitions: int, replication_factor: int) -> dict[str, Any]:
    """Simulate one cluster, and return what it took."""
    steps: list[dict[str, Any]] = []
    cluster = SimulatedCluster(brokers)

    def step(name: str, work: Callable[[], None]) -> None:
        forget_peak([os.getpid()])
        zookeeper, requests, sent = replace(cluster.ensemble.work), cluster.requests, cluster.request_bytes
        started = time.process_time()
        work()
        cluster.settle()
        after = cluster.ensemble.work
        steps.append(
            {
                "step": name,
                "cpu_s": time.process_time() - started,
                "zookeeper_wait_s": after.wait_s - zookeeper.wait_s,
                "zookeeper_reads": after.reads - zookeeper.reads,
                "zookeeper_writes": after.writes - zookeeper.writes,
                "zookeeper_nodes_written": after.node_writes - zookeeper.node_writes,
                "zookeeper_mb": (
                    after.bytes_read + after.bytes_written - zookeeper.bytes_read - zookeeper.bytes_written
                )
                / 1e6,
                "requests": cluster.requests - requests,
                "sent_mb": (cluster.request_bytes - sent) / 1e6,
                "peak_mb": memory_mb([os.getpid()], "VmHWM"),
            }
        )

    def create() -> None:
        for first in range(0, partitions, topic_partitions):
            count = min(topic_partitions, partitions - first)
            cluster.create_topic(f"topic-{first // topic_partitions:05}", count, replication_factor)

    def delete() -> None:
        cluster.delete_topics(f"topic-{number:05}" for number in range(0, -(-partitions // topic_partitions), 10))

    try:
        step("create", create)
        step("failover", lambda: cluster.kill_broker(brokers))
        step("return", lambda: cluster.start_broker(brokers))
        step("in sync", lambda: cluster.catch_up(brokers))
        step("controller", lambda: cluster.kill_broker(1))
        controller_mb = object_bytes(cluster.submit(lambda term: term.context)) / 1e6
        zookeeper = {**cluster.ensemble.sizes(), "watches": cluster.ensemble.watch_count}
        cluster.start_broker(1)
        cluster.settle()
        cluster.catch_up(1)
        step("delete", delete)
        return {
            "brokers": brokers,
            "partitions": partitions,
            "topic_partitions": topic_partitions,
            "replication_factor": replication_factor,
            "steps": steps,
            "controller_mb": controller_mb,
            "zookeeper": zookeeper,
            "one_broker": _taken_metadata(cluster.largest_metadata),
            "work": asdict(cluster.ensemble.work),
        }
    finally:
        cluster.close()


def _taken_metadata(body: bytes) -> dict[str, float]:
    """Return what it takes a broker to decode and keep the metadata of all partitions."""
    cache = MetadataCache()
    started = time.process_time()
    cache.update(decode(UpdateMetadataRequest, UPDATE_METADATA_VERSION, body))
    cpu_s = time.process_time() - started
    return {"request_mb": len(body) / 1e6, "cpu_s": cpu_s, "metadata_mb": object_bytes(cache.snapshot) / 1e6}


def _table(measured: dict[str, Any]) -> str:
    rows = [list(_COLUMNS)]
    for each in measured["steps"]:
        rows.append(
            [
                each["step"],
                f"{each['cpu_s']:.2f}",
                f"{each['zookeeper_wait_s']:.2f}",
                str(each["zookeeper_reads"]),
                str(each["zookeeper_writes"]),
                f"{each['zookeeper_mb']:.1f}",
                str(each["requests"]),
                f"{each['sent_mb']:.1f}",
                f"{each['peak_mb']:.0f}",
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    zookeeper = measured["zookeeper"]
    lines.append(
        f"the controller holds {measured['controller_mb']:.0f} MB; ZooKeeper {zookeeper['nodes']} nodes with "
        f"{zookeeper['data_bytes'] / 1e6:.1f} MB of data and {zookeeper['path_bytes'] / 1e6:.1f} MB of paths, and "
        f"{zookeeper['watches']} watches"
    )
    broker = measured["one_broker"]
    lines.append(
        f"a broker takes the metadata of all partitions, {broker['request_mb']:.1f} MB, in {broker['cpu_s']:.2f} s of "
        f"processor time, and holds it in {broker['metadata_mb']:.0f} MB"
    )
    return "\n".join(lines)


def main() -> None:
    """Read the command line, measure, and print a table for each number of brokers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", default="10,30,100", help="numbers of brokers, separated by commas")
    parser.add_argument("--partitions", type=int, default=100_000, help="in all topics together")
    parser.add_argument("--topic-partitions", type=int, default=100, help="in each topic")
    parser.add_argument("--replication-factor", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values to a file, too")
    parser.add_argument("--client-cost", action="store_true", help="measure only what the ZooKeeper client costs")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    counts = [int(each) for each in options.brokers.split(",")]
    if min(counts) < max(3, options.replication_factor) or min(options.partitions, options.topic_partitions) < 1:
        parser.error("it takes at least 3 brokers, as many as replicas, and one partition")
    if options.one:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
        json.dump(
            measure(counts[0], options.partitions, options.topic_partitions, options.replication_factor), sys.stdout
        )
        return
    print("  ".join(f"{key}: {value}" for key, value in machine().items()), flush=True)
    if options.client_cost:
        from bench.support.zookeeper_client_cost import client_cost

        print("  ".join(f"{name}: {value:.0f}" for name, value in client_cost().items()))
        return
    results = []
    for count in counts:
        print(f"\n{count} brokers, {options.partitions} partitions in topics of {options.topic_partitions}", flush=True)
        # A process of its own: what one run leaves behind does not count for the next.
        done = subprocess.run(
            [
                *(sys.executable, "-m", "bench.simulate_cluster", "--one"),
                *("--brokers", str(count)),
                *("--partitions", str(options.partitions)),
                *("--topic-partitions", str(options.topic_partitions)),
                *("--replication-factor", str(options.replication_factor)),
            ],
            stdout=subprocess.PIPE,
            check=True,
        )
        results.append(json.loads(done.stdout))
        print(_table(results[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "runs": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
