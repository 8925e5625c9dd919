"""Ottla beside Apache Kafka 3.9.1 in ZooKeeper mode: the rows of `bench.broker`, by turns, with ratios and goals.

    python -m bench.kafka [--quick] [--rounds N] [--only TEXT] [--json FILE]

Kafka's jars come from a cache folder, or through Maven; `scripts/apache-kafka --help` says more. Kafka has the heap and
the collector of its own start scripts. Each row is run again and again before it counts, until two values agree within
10 %. Every round is printed, and the ratios are those of the warm ones.
"""

from __future__ import annotations

import sys

from bench.support.contender import ApacheKafka, Ottla
from bench.support.run import run
from tests.kit.apache_kafka import UnavailableError

if __name__ == "__main__":
    try:
        run([Ottla, ApacheKafka], __doc__)
    except UnavailableError as error:
        sys.exit(str(error))
