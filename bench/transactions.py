"""Transactions on one broker and on three: Ottla beside Apache Kafka 3.9.1, by turns, with ratios.

    python -m bench.transactions [--rounds N] [--seconds S] [--brokers 1,3] [--only TEXT] [--json FILE] [--alone]

Both run all the time, with default options and a ZooKeeper of their own; only one is under load. Each load goes on for
S seconds, and before it counts until two in a row differ by no more than a tenth. Three clients commit: librdkafka
(which waits a millisecond before it adds partitions), Java's producer, and one that costs next to nothing, so that
brokers are what is measured. All ask again 20 ms after a broker says that markers are on their way.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import structlog
from bench.support.contender import ApacheKafka, Ottla
from bench.support.report import Results, machine
from bench.support.run import SETTLE_SECONDS, measure, warm_up
from bench.support.transaction_rows import loading_seconds, transaction_rows
from tests.kit.apache_kafka import UnavailableError

ROUNDS = 3
SECONDS = 10.0
IDS = 10_000
NOTE = "Medians over the rounds. A commit is the time from begin_transaction to the return of commit_transaction."


def main() -> None:
    """Read the command line, measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each row is measured")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each load goes on")
    parser.add_argument("--brokers", default="1,3", help="the sizes of the clusters")
    parser.add_argument("--only", metavar="TEXT", help="only rows with this in their names")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values to a file, too")
    parser.add_argument("--alone", action="store_true", help="without Apache Kafka")
    options = parser.parse_args()
    # Of the coordinator that this process runs.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    # Ended from outside, everything that was started is stopped as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    kinds = [Ottla] if options.alone else [Ottla, ApacheKafka]
    results = Results([kind.name for kind in kinds])
    print("  ".join(f"{key}: {value}" for key, value in machine().items()), flush=True)
    for brokers in map(int, options.brokers.split(",")):
        rows = [
            row
            for row in transaction_rows(options.seconds, brokers)
            if options.only is None or options.only in row.name
        ]
        with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder, ExitStack() as cleanup:
            contenders = [kind(Path(folder) / kind.name, brokers) for kind in kinds]
            for contender in contenders:
                cleanup.callback(contender.stop)
                contender.start()
            time.sleep(SETTLE_SECONDS)
            warm_up(rows, contenders, results)
            for number in range(options.rounds):
                for row in rows:
                    measure(row, contenders, results, number)
    print(f"\n{results.table()}\n\n{NOTE}")
    seconds, cpu = loading_seconds(IDS)
    print(f"A new coordinator of ours loads {IDS:,} transactional ids in {seconds:.2f} s, {cpu:.2f} s on a processor.")
    if options.json:
        results.write_json(options.json)


if __name__ == "__main__":
    try:
        main()
    except UnavailableError as error:
        sys.exit(str(error))
