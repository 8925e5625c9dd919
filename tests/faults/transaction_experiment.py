"""An experiment with transactions, while their coordinators, or anybody else, come to harm:

experiment = TransactionExperiment(cluster, tmp_path)
experiment.start()                                                 all workers commit
with experiment.coordinator_fault("kill coordinator", broker) as fault:
    ...                                                            over when all workers have committed again
check_valid(experiment.finish())                                   nothing is left open, all is read and judged
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.faults.checker.history import EndTransaction, Event, TransactionEnded
from tests.faults.cluster import Cluster
from tests.faults.cluster_state import PartitionState
from tests.faults.experiment import FIGURES, Experiment, Fault
from tests.faults.progress import Progress
from tests.faults.workload.transactions import WORKERS
from tests.kit.waiting import until

from ottla.broker.coordination.placement import CONSUMER_OFFSETS, TRANSACTION_STATE

# A failover, a client that waits for nothing and is left to itself, and another one that takes over.
ACK_GAP_MAX_S = 60.0


class TransactionProgress(Progress):
    """How far the workers have come."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.commits: Counter[str] = Counter()
        self._asked: set[tuple[str, int]] = set()

    def _take(self, event: Event) -> None:
        match event:
            case EndTransaction(is_commit=True):
                self._asked.add((event.worker, event.transaction))
            case TransactionEnded(outcome="ok"):
                self.commits[event.worker] += (event.worker, event.transaction) in self._asked
            case _:
                super()._take(event)


class TransactionExperiment(Experiment):
    """Writers in transactions, workers that consume, transform and produce, and readers of both isolation levels.

    The first topic has the inputs, the second the outputs. All transactions have one coordinator, and the group has
    one.
    """

    workload = "tests.faults.workload.transactions"
    # Workers end what they have begun; those without a client wait for one.
    stop_timeout_s = 240

    def __init__(self, cluster: Cluster, folder: Path, seed: int = 1, *, are_answers_exact: bool = True) -> None:
        super().__init__(cluster, folder, topics=2, are_answers_exact=are_answers_exact)
        self._seed = seed
        self.progress: TransactionProgress = TransactionProgress(self._paths["clients"])

    def start(self, replicas: Sequence[Sequence[int]] = (), **configs: str) -> None:
        """Start the workload, and wait until every worker has committed something."""
        super().start(replicas, **configs)
        self.wait_for_commits(3)

    def coordinator(self, log: str = TRANSACTION_STATE) -> int:
        """Return the broker that coordinates the transactions, or that of the group, by the topic of its log."""
        return self.coordinator_state(log).leader

    def coordinator_state(self, log: str = TRANSACTION_STATE) -> PartitionState:
        """Return the state of the partition that a coordinator keeps its log in."""
        return self.cluster.state.partition(log, 0)

    def wait_for_coordinator_other_than(self, broker: int, log: str = TRANSACTION_STATE) -> int:
        """Wait until another broker leads a coordinator's log; return which."""
        return self.cluster.wait_for_partition(log, 0, lambda state: state.leader not in (-1, broker)).leader

    def wait_for_full_isr(self) -> None:
        """Wait until all replicas of all partitions are in sync, also of the coordinators' logs."""
        super().wait_for_full_isr()
        for log in (TRANSACTION_STATE, CONSUMER_OFFSETS):
            self.cluster.wait_for_full_isr(log, [list(self.cluster.brokers)])

    def wait_for_commits(self, count: int) -> None:
        """Wait for so many more commits of every worker."""
        self.progress.update()
        before = dict(self.progress.commits)

        def are_there() -> bool:
            self._check_alive()
            self.progress.update()
            return all(self.progress.commits[worker] >= before.get(worker, 0) + count for worker in WORKERS)

        until(are_there, lambda: f"{count} more commits than {before} of every worker: {self.progress.commits}")

    @contextmanager
    def coordinator_fault(self, name: str, broker: int) -> Iterator[Fault]:
        """Do harm to a coordinator; it is over when every worker has committed again."""
        began = time.monotonic()
        with self.fault(name, f"broker {broker}", ACK_GAP_MAX_S) as harm:
            yield harm
            self.wait_for_commits(2)
        FIGURES.append(
            f"{name} of broker {broker}: all workers had committed again after {time.monotonic() - began:.2f} s"
        )

    def _workload_options(self) -> list[str]:
        return ["--outputs", self.topics[1], "--seed", str(self._seed)]
