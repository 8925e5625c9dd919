"""What the client and this machine allow: the rows of `bench.kafka` with a broker that does next to nothing.

    python -m bench.limits [--quick] [--rounds N] [--only TEXT] [--kafka] [--json FILE]
    python -m bench.limits --replicas [--rounds N] [--seconds S] [--only TEXT] [--kafka] [--json FILE]

The bare broker answers, and leaves out everything else (bench/support/bare_broker.py). It and Ottla take turns with the
same loads, and the column ottla/bare says how near Ottla comes. With --kafka, a goal that the bare broker misses, too,
is marked: no broker could meet it here.

With --replicas, the bare cluster is three processes. They receive, check, write, send twice and acknowledge, and do
nothing else (bench/support/bare_replicas.py). Its rows are those of `bench.replicated`, for one partition.
"""

from __future__ import annotations

import sys
from typing import Final

from bench.support.contender import ApacheKafka, Bare, Ottla
from bench.support.replicated_rows import replicated_rows
from bench.support.replicated_run import run_replicated
from bench.support.run import arguments, run_one_broker
from tests.kit.apache_kafka import UnavailableError

_ROUNDS: Final = 3
_SECONDS: Final = 5.0
# Nothing can be fetched from the bare cluster, and one of its brokers leads all partitions.
_REPLICATED: Final = frozenset({"produce 100 B", "produce 1 KB", "one record per request"})


def main() -> None:
    """Read the command line, measure, and print the table."""
    parser = arguments(__doc__)
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka beside them")
    parser.add_argument("--replicas", action="store_true", help="three replicas, acks=all")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="how long each load with replicas goes on")
    options = parser.parse_args()
    kinds = [Ottla, Bare, *([ApacheKafka] if options.kafka else [])]
    if options.replicas:
        options.rounds = options.rounds or _ROUNDS
        rows = [row for row in replicated_rows(options.seconds) if row.name in _REPLICATED]
        run_replicated(kinds, rows, options, Bare)
    else:
        run_one_broker(kinds, options, Bare)


if __name__ == "__main__":
    try:
        main()
    except UnavailableError as error:
        sys.exit(str(error))
