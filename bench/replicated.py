"""Three brokers, replication factor 3, acks=all, min ISR 2: Ottla beside Apache Kafka 3.9.1, by turns, with ratios.

    python -m bench.replicated [--rounds N] [--seconds S] [--only TEXT] [--json FILE] [--alone]

Both clusters run all the time, with default options and a ZooKeeper of their own; only one is under load. Each load
goes on for S seconds, and again and again before it counts, until two values agree within 10 %. The client is
librdkafka's C interface, not idempotent, the same for both. Kafka's jars come from a cache folder, or through Maven;
`scripts/apache-kafka --help` says more.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.support.contender import ApacheKafka, Ottla
from bench.support.replicated_rows import replicated_rows
from bench.support.replicated_run import run_replicated
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
    run_replicated([Ottla] if options.alone else [Ottla, ApacheKafka], replicated_rows(options.seconds), options)


if __name__ == "__main__":
    try:
        main()
    except UnavailableError as error:
        sys.exit(str(error))
