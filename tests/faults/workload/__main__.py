"""`python -m tests.faults.workload`: produce and consume until SIGTERM, or `--drain` what is there; write a history."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.faults.access import OPEN, Access
from tests.faults.checker.history import HistoryWriter
from tests.faults.workload.consumer import ConsumerWorker
from tests.faults.workload.crew import Crew
from tests.faults.workload.drain import drain
from tests.faults.workload.observer import Observer
from tests.faults.workload.producer import ProducerWorker
from tests.faults.workload.settings import Settings
from tests.faults.workload.stop_signal import StopSignal


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
        return 0 if drain(producing, json.loads(options.drain), options.seconds_max) else 1

    stop_signal = StopSignal()
    writers, readers = Crew(), Crew()
    for number in range(options.producers):
        writers.start(ProducerWorker(producing, f"p{number}", options.rate).run)
    # Readers go on until all producers have ended.
    reading = Settings(options.bootstrap, options.access, options.topic, options.partitions, history)
    for number in range(options.consumers):
        readers.start(ConsumerWorker(reading, f"c{number}").run)
    readers.start(Observer(reading, "observer").run)
    stop_signal.wait(options.seconds_max)
    producing.stopping.set()
    writers.join()
    reading.stopping.set()
    readers.join()
    return 1 if writers.failures or readers.failures else 0


if __name__ == "__main__":
    sys.exit(main())
