"""What one broker does, from a process of its own, with a librdkafka client on the same machine.

    python -m bench.broker [--quick] [--rounds N] [--only TEXT] [--json FILE]

Throughput, requests per second, latency, processor time and memory of the broker, and how long it takes to start.
`python -m bench.kafka` measures Apache Kafka beside it.
"""

from __future__ import annotations

from bench.support.contender import Ottla
from bench.support.run import run

if __name__ == "__main__":
    run([Ottla], __doc__)
