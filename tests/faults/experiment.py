"""A workload on a cluster, faults, and the verdict:

    experiment = Experiment(cluster, tmp_path, partitions=3)
    experiment.start()                                            clients send and read, and both get something done
    with experiment.fault("kill leader", "broker 1") as fault:
        ...
        fault.proof = "its registration is gone"
    report = experiment.finish()                                  heal, drain, stop, compare, judge

Everything is kept in the test's folder.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.faults.checker.check import Report, Verdict, check
from tests.faults.checker.history import (
    Event,
    FaultStart,
    FaultStop,
    HistoryWriter,
    IsrChange,
    LeaderStart,
    TailLost,
    read_history,
)
from tests.faults.cluster import BROKER_IDS, Cluster
from tests.faults.cluster_state import PartitionState, StateUnknownError
from tests.faults.progress import Progress
from tests.faults.replica_logs import replica_log
from tests.kit.broker_process import topic_name
from tests.kit.guarded_process import STOP_TIMEOUT_S, GuardedProcess
from tests.kit.waiting import until

ROOT = Path(__file__).parents[2]
DRAIN_TIMEOUT_S = 60.0
WATCH_INTERVAL_S = 0.1
# A line for each fault of the test that runs now; they are shown at the end of all.
FIGURES: list[str] = []


@dataclass(slots=True)
class Fault:
    """Harm under way; whoever does it says how we know."""

    proof: str = ""


class Experiment:
    """One topic, or several that are alike, and one workload.

    Answers of Apache Kafka are not exact: the high watermark in one is from just before the read.
    """

    # What runs in the clients' process, and how long it may take to end.
    workload = "tests.faults.workload"
    stop_timeout_s = STOP_TIMEOUT_S

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        partitions: int = 3,
        rate: float = 60,
        topics: int = 1,
        *,
        are_answers_exact: bool = True,
    ) -> None:
        self.cluster = cluster
        self.topics = [topic_name() for _ in range(topics)]
        self.topic = self.topics[0]
        # Of each topic.
        self.partitions = partitions
        self.names = [name for _, _, name in self._partitions()]
        self._are_answers_exact = are_answers_exact
        # The replicas of each partition, the preferred leader first.
        self.replicas: Sequence[Sequence[int]] = [
            BROKER_IDS[number % 3 :] + BROKER_IDS[: number % 3] for number in range(partitions)
        ]
        self._rate = rate
        # The clients end by themselves after this long, should nobody end them.
        self.seconds_max = 600.0
        self._folder = folder
        self._paths = {name: folder / f"history-{name}.jsonl" for name in ("clients", "drain", "cluster")}
        self._writer = HistoryWriter(self._paths["cluster"])
        self._workload: GuardedProcess | None = None
        self._has_lost_tails = False
        self._watching = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self.progress = Progress(self._paths["clients"])

    def start(self, replicas: Sequence[Sequence[int]] = (), **configs: str) -> None:
        """Create the topics, start the workload, and wait until it gets something done."""
        self.replicas = replicas or self.replicas
        for topic in self.topics:
            self.cluster.create_topic(topic, self.replicas, **configs)
        self._watcher.start()
        self._workload = self._process("clients", "--seconds-max", str(self.seconds_max))
        self.wait_for_acks(20)
        until(self._all_have_read, "every partition was read")

    def state(self, partition: int = 0) -> PartitionState:
        """Return the state of a partition."""
        return self.cluster.state.partition(self.topic, partition)

    def wait_for(self, holds: Callable[[PartitionState], bool], partition: int = 0) -> PartitionState:
        """Wait until something holds for a partition in ZooKeeper."""
        return self.cluster.wait_for_partition(self.topic, partition, holds)

    def wait_for_acks(self, count: int, *partitions: int) -> None:
        """Wait for so many more acknowledgements in each of some partitions, or of all."""
        self.progress.update()
        names = [self.names[number] for number in partitions or range(len(self.names))]
        before = dict(self.progress.acks)

        def are_there() -> bool:
            self._check_alive()
            self.progress.update()
            return all(self.progress.acks[name] >= before.get(name, 0) + count for name in names)

        until(are_there, f"{count} more acks in each of {names}")

    def wait_for_full_isr(self) -> None:
        """Wait until all replicas of all partitions are in sync."""
        for topic in self.topics:
            self.cluster.wait_for_full_isr(topic, self.replicas)

    @contextmanager
    def fault(self, name: str, target: str, ack_gap_max_s: float | None = None) -> Iterator[Fault]:
        """Write down when harm begins and ends."""
        self._writer.write(FaultStart(name=name, target=target, ack_gap_max_s=ack_gap_max_s))
        harm = Fault()
        yield harm
        self._writer.write(FaultStop(name=name, proof=harm.proof))

    def record(self, event: Event) -> None:
        """Add to the history what the test itself did or saw."""
        self._writer.write(event)

    def record_lost_tails(self, ends: Sequence[int]) -> None:
        """Say what is left of each partition after all brokers lost power, before one of them runs again."""
        self._has_lost_tails = True
        for name, end in zip(self.names, ends, strict=True):
            self._writer.write(TailLost(partition=name, offset=end))

    def finish(self) -> Report:
        """Stop the workload, wait for all replicas, read everything, compare the files, judge; print the verdict."""
        self.stop_workload()
        self.wait_for_full_isr()
        self.drain(up_to_known_offsets=not self._has_lost_tails)
        self._watching.set()
        self._watcher.join()
        self._compare_replicas()
        self._writer.close()
        history = read_history(*(path for path in self._paths.values() if path.exists()))
        report = check(history, are_answers_exact=self._are_answers_exact)
        sys.stdout.write(f"{report}\n")
        FIGURES.extend(map(str, report.faults))
        return report

    def stop_workload(self) -> None:
        """Let producers wait for what is under way, then end all clients."""
        assert self._workload is not None
        workload, self._workload = self._workload, None
        exit_code = workload.end(signal.SIGTERM, self.stop_timeout_s)
        assert exit_code == 0, (self._folder / "clients.log").read_text()
        self.progress.update()

    def drain(self, *, up_to_known_offsets: bool = True) -> None:
        """Read everything from the beginning, in a process of its own, at least up to what is known to be there."""
        known = self.progress.ends if up_to_known_offsets else {}
        drain = self._process("drain", "--drain", json.dumps(known), "--seconds-max", str(DRAIN_TIMEOUT_S))
        drain.wait(DRAIN_TIMEOUT_S + 60)

    def close(self) -> None:
        """End what still runs."""
        self._watching.set()
        if self._watcher.is_alive():
            self._watcher.join()
        self._writer.close()
        if self._workload is not None:
            self._workload.end(signal.SIGKILL)

    def _all_have_read(self) -> bool:
        self._check_alive()
        self.progress.update()
        return all(self.progress.reads[name] for name in self.names)

    def _check_alive(self) -> None:
        assert self._workload is not None
        assert self._workload.poll() is None, (self._folder / "clients.log").read_text()

    def _compare_replicas(self) -> None:
        drained = Progress(self._paths["drain"])
        drained.update()
        for topic, number, name in self._partitions():
            for broker in self.replicas[number]:
                folder = self.cluster.brokers[broker].partition_dir(topic, number)
                self._writer.write(replica_log(name, broker, folder, drained.ends.get(name, 0)))

    def _partitions(self) -> list[tuple[str, int, str]]:
        """Return topic, number and name of all partitions."""
        return [(topic, number, f"{topic}-{number}") for topic in self.topics for number in range(self.partitions)]

    def _process(self, name: str, *options: str) -> GuardedProcess:
        return self._client(
            name, self.workload, "--partitions", str(self.partitions), *self._workload_options(), *options
        )

    def _workload_options(self) -> list[str]:
        return ["--rate", str(self._rate)]

    def _client(self, name: str, module: str, *options: str) -> GuardedProcess:
        command = [
            *(sys.executable, "-m", module, "--bootstrap", self.cluster.bootstrap, "--topic", self.topic),
            *("--access", self.cluster.access.to_json(), "--history", str(self._paths[name]), *options),
        ]
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        return GuardedProcess(
            self.cluster.client_host.command(command), self._folder / f"{name}.log", {**os.environ, "PYTHONPATH": path}
        )

    def _watch(self) -> None:
        """Write down every change of leaders and ISRs that ZooKeeper shows."""
        seen: dict[str, PartitionState] = {}
        while not self._watching.wait(WATCH_INTERVAL_S):
            for topic, number, name in self._partitions():
                try:
                    now = self.cluster.state.partition(topic, number)
                except StateUnknownError:
                    continue
                if now == seen.get(name):
                    continue
                seen[name] = now
                self._writer.write(
                    IsrChange(
                        partition=name, leader_epoch=now.leader_epoch, isr=tuple(sorted(now.isr)), version=now.version
                    )
                )
                if now.leader >= 0:
                    self._writer.write(LeaderStart(partition=name, leader_epoch=now.leader_epoch, broker=now.leader))


def check_valid(report: Report) -> None:
    """Fail unless a run was safe, went on, and showed enough."""
    assert report.verdict is Verdict.VALID, str(report)
    assert not report.stuck, str(report)


def wait_seconds(seconds: float) -> None:
    """Let a fault last; nothing is checked by how long this takes."""
    time.sleep(seconds)
