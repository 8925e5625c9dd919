"""`python -m tests.faults.workload`: produce and consume until SIGTERM, or `--drain` what is there; write a history."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from tests.faults.access import OPEN, Access
from tests.faults.checker.history import HistoryWriter
from tests.faults.workload.consumer import ConsumerWorker
from tests.faults.workload.drain import drain
from tests.faults.workload.observer import Observer
from tests.faults.workload.producer import ProducerWorker
from tests.faults.workload.settings import Settings


def main() -> int:
    """Run the workers; exit code 0 if all ended as they should."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.workload")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--access", type=Access.from_json, default=OPEN, help="JSON: how clients get in")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--producers", type=int, default=2)
    parser.add_argument("--consumers", type=int, default=2)
    parser.add_argument("--rate", type=float, default=60, help="sends per second of each producer")
    parser.add_argument("--seconds-max", type=float, default=240)
    parser.add_argument("--drain", metavar="OFFSETS", help="JSON: up to which offset to read each partition at least")
    options = parser.parse_args()
    history = HistoryWriter(options.history)
    producing = Settings(options.bootstrap, options.access, options.topic, options.partitions, history)
    if options.drain is not None:
        known = {int(partition): int(end) for partition, end in json.loads(options.drain).items()}
        return 0 if drain(producing, known, options.seconds_max) else 1

    signal.signal(signal.SIGTERM, lambda *_: producing.stopping.set())
    failures: list[str] = []
    producers = [ProducerWorker(producing, f"p{number}", options.rate) for number in range(options.producers)]
    writers = [_start(producer.run, failures) for producer in producers]
    # Readers go on until all producers have ended.
    reading = Settings(options.bootstrap, options.access, options.topic, options.partitions, history)
    consumers = [ConsumerWorker(reading, f"c{number}") for number in range(options.consumers)]
    runs = [*(consumer.run for consumer in consumers), Observer(reading, "observer").run]
    readers = [_start(run, failures) for run in runs]
    producing.stopping.wait(options.seconds_max)
    producing.stopping.set()
    for thread in writers:
        thread.join()
    reading.stopping.set()
    for thread in readers:
        thread.join()
    return 1 if failures else 0


def _start(run: Callable[[], None], failures: list[str]) -> threading.Thread:
    def report() -> None:
        try:
            run()
        except BaseException as error:
            failures.append(repr(error))
            raise

    thread = threading.Thread(target=report)
    thread.start()
    return thread


if __name__ == "__main__":
    sys.exit(main())
