"""Three brokers, replication factor 3, acks=all, min ISR 2: Ottla beside Apache Kafka 3.9.1, by turns, with ratios.

    python -m bench.replicated [--rounds N] [--seconds S] [--only TEXT] [--json FILE] [--alone]

Both clusters run all the time, with default options and a ZooKeeper of their own; only one is under load. Each load
goes on for S seconds, and again and again before it counts, until two values agree within 10 %. The client is
librdkafka's C interface, not idempotent, the same for both. Kafka's jars come from a cache folder, or through Maven;
`scripts/apache-kafka --help` says more.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench.support.contender import ApacheKafka, Ottla
from bench.support.replicated_rows import BROKERS, IDLE, LOADED, replicated_rows
from bench.support.report import NOTE, Results, machine
from bench.support.run import SETTLE_SECONDS, measure, warm_up
from tests.kit.apache_kafka import UnavailableError

ROUNDS = 3
SECONDS = 10.0


def main() -> None:
    """Read the command line, measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each row is measured")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each load goes on")
    parser.add_argument("--only", metavar="TEXT", help="only rows with this in their names")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values to a file, too")
    parser.add_argument("--alone", action="store_true", help="without Apache Kafka")
    options = parser.parse_args()
    # Ended from outside, everything that was started is stopped as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    kinds = [Ottla] if options.alone else [Ottla, ApacheKafka]
    results = Results([kind.name for kind in kinds])
    print("  ".join(f"{key}: {value}" for key, value in machine().items()), flush=True)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder, ExitStack() as cleanup:
        contenders = [kind(Path(folder) / kind.name, BROKERS) for kind in kinds]
        for contender in contenders:
            cleanup.callback(contender.stop)
            contender.start()
        time.sleep(SETTLE_SECONDS)
        measure(IDLE, contenders, results, 0)
        rows = [row for row in replicated_rows(options.seconds) if options.only is None or options.only in row.name]
        warm_up(rows, contenders, results)
        for number in range(options.rounds):
            for row in rows:
                measure(row, contenders, results, number)
        measure(LOADED, contenders, results, 0)
    print(f"\n{results.table()}\n\n{NOTE}")
    if options.json:
        results.write_json(options.json)


if __name__ == "__main__":
    try:
        main()
    except UnavailableError as error:
        sys.exit(str(error))
