"""`python -m tests.faults.workload.transactions`: transactions until SIGTERM, or `--drain` what is there; a history.

Or as an object in the process of a test, where a client that librdkafka leaves hanging stays until the end of it:

    workload = TransactionWorkload(bootstrap, OPEN, topics=("in", "out"), partitions=3, history=HistoryWriter(path))
    workload.start()
    ...                               kill a broker, and start it again
    workload.stop()                   nothing is left open
    workload.drain(timeout_s=60)
    check(read_history(path))

The topics are there already. Writers send to the first, in transactions; so does a producer without transactions.
Transformers read the first and write to the second. Readers of both isolation levels follow both topics.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from tests.faults.access import OPEN, Access
from tests.faults.checker.history import HistoryWriter
from tests.faults.workload.consumer import ConsumerWorker
from tests.faults.workload.crew import Crew
from tests.faults.workload.drain import drain
from tests.faults.workload.group_offsets import INTERVAL_S, GroupOffsets
from tests.faults.workload.observer import Observer
from tests.faults.workload.producer import ProducerWorker
from tests.faults.workload.settings import Settings
from tests.faults.workload.stop_signal import StopSignal
from tests.faults.workload.transactional_writer import TransactionalWriter
from tests.faults.workload.transformer import Transformer

WRITERS = ("w0", "w1", "w2")
TRANSFORMERS = ("t0", "t1")
# All that commit transactions.
WORKERS = WRITERS + TRANSFORMERS
# Of one writer, on average, from the end of one transaction to the beginning of the next.
INTERVAL_OF_WRITERS_S = 0.05
PLAIN_RATE = 10.0


class TransactionWorkload:
    """Workers in threads, from `start` to `stop`; `drain` reads what they have left."""

    def __init__(
        self,
        bootstrap: str,
        access: Access,
        topics: tuple[str, str],
        partitions: int,
        history: HistoryWriter,
        seed: int = 1,
    ) -> None:
        stop_working, stop_reading = threading.Event(), threading.Event()
        self._working = [Settings(bootstrap, access, topic, partitions, history, stop_working) for topic in topics]
        # Readers go on until all workers have ended.
        self._reading = [Settings(bootstrap, access, topic, partitions, history, stop_reading) for topic in topics]
        self._group = f"{topics[0]}-transformers"
        self._seed = seed
        self._workers, self._readers = Crew(), Crew()

    def start(self) -> None:
        """Let all begin."""
        inputs, outputs = self._working
        self._workers.start(ProducerWorker(inputs, "plain", PLAIN_RATE).run)
        for name in WRITERS:
            self._workers.start(TransactionalWriter(inputs, name, self._seed, INTERVAL_OF_WRITERS_S).run)
        for name in TRANSFORMERS:
            self._workers.start(Transformer(inputs, outputs, self._group, name, self._seed).run)
        for topic, settings in zip(("in", "out"), self._reading, strict=True):
            self._readers.start(Observer(settings, f"observer-{topic}").run)
            self._readers.start(Observer(settings, f"committed-observer-{topic}", is_committed=True).run)
            self._readers.start(ConsumerWorker(settings, f"committed-{topic}", is_committed=True).run)
        self._readers.start(GroupOffsets(self._reading[0], self._group).run)

    def stop(self) -> list[str]:
        """End all transactions, then all readers; return the errors that workers could not overcome."""
        self._working[0].stopping.set()
        self._workers.join()
        self._reading[0].stopping.set()
        self._readers.join()
        return self._workers.failures + self._readers.failures

    def drain(self, timeout_s: float, known: Mapping[str, int] | None = None) -> bool:
        """Ask for the group's positions, and read everything with both isolation levels, at least up to `known`.

        Returns whether all of that was done in time. `known` has the ends of partitions by their names.
        """
        deadline = time.monotonic() + timeout_s
        offsets = GroupOffsets(self._reading[0], self._group)
        try:
            while not (is_complete := offsets.ask()) and time.monotonic() < deadline:
                time.sleep(INTERVAL_S)
        finally:
            offsets.close()
        for settings in self._reading:
            left_s = max(1.0, deadline - time.monotonic())
            is_complete &= drain(settings, known or {}, left_s, has_transactions=True)
        return is_complete


def main() -> int:
    """Run the workers until a signal comes, or drain; exit code 0 if all ended as they should."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.workload.transactions")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--access", type=Access.from_json, default=OPEN, help="JSON: how clients get in")
    parser.add_argument("--topic", required=True, help="what writers send to")
    parser.add_argument("--outputs", required=True, help="what transformers send to")
    parser.add_argument("--partitions", type=int, default=3, help="of each topic")
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds-max", type=float, default=240)
    parser.add_argument("--drain", metavar="OFFSETS", help="JSON: up to which offset to read each partition at least")
    options = parser.parse_args()
    workload = TransactionWorkload(
        options.bootstrap,
        options.access,
        (options.topic, options.outputs),
        options.partitions,
        HistoryWriter(options.history),
        options.seed,
    )
    if options.drain is not None:
        return 0 if workload.drain(options.seconds_max, json.loads(options.drain)) else 1
    stop_signal = StopSignal()
    workload.start()
    stop_signal.wait(options.seconds_max)
    return 1 if workload.stop() else 0


if __name__ == "__main__":
    sys.exit(main())
