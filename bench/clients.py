"""Our client beside aiokafka, kafka-python and confluent-kafka, on one broker of ours: records per second.

    python -m bench.clients [--rounds N] [--scale F] [--only TEXT] [--json FILE]

One partition, acks=all, all producers idempotent; the records that are read were written by librdkafka. In every round
each client does the same work, by turns, in the other order every second time; the figures are medians. Producers have
the batch size that they have by themselves, then all the same. The client shares the machine with the broker, so
that records for each second of its own time on a processor say more about the client alone.

Goals: produce 1.2 times what aiokafka does, and 3 times what kafka-python does; consume records in batches as fast as
aiokafka, and columns twice as fast as confluent-kafka's batches.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.support import client_loads as loads
from bench.support.client_loads import Load, Rates, Work, on_uvloop
from bench.support.contender import Ottla
from bench.support.report import machine

ROUNDS = 5
OURS = "ottla"
SAME_BATCH_BYTES = 64 * 1024
# By the size of a value, the records that a producer writes in a round; consumers read twice as many.
RECORDS = {100: 200_000, 1000: 100_000}
# So much slower than the others that it does a part of the work.
SLOW = {"kafka-python": 0.25}

PRODUCERS: Mapping[str, Load] = {
    OURS: on_uvloop(loads.produce_ottla),
    "aiokafka": on_uvloop(loads.produce_aiokafka),
    "kafka-python": loads.produce_kafka_python,
    "confluent-kafka": loads.produce_confluent,
}
READERS: Mapping[str, Load] = {
    OURS: on_uvloop(loads.consume_ottla_records),
    "ottla, columns": on_uvloop(loads.consume_ottla_columns),
    "ottla, lists": on_uvloop(loads.consume_ottla_lists),
    "aiokafka": on_uvloop(loads.consume_aiokafka_records),
    "kafka-python": loads.consume_kafka_python,
    "confluent-kafka": loads.consume_confluent_batches,
}
SINGLE_READERS: Mapping[str, Load] = {
    OURS: on_uvloop(loads.consume_ottla_single),
    "ottla.sync": loads.consume_ottla_sync,
    "aiokafka": on_uvloop(loads.consume_aiokafka_single),
    "confluent-kafka": loads.consume_confluent_single,
}
# By client, what of ours is compared with it, and how many times as fast that shall be.
PRODUCE_GOALS = {"aiokafka": (OURS, 1.2), "kafka-python": (OURS, 3.0)}
READ_GOALS = {"aiokafka": (OURS, 1.0), "confluent-kafka": ("ottla, columns", 2.0)}


@dataclass(slots=True)
class Row:
    """One kind of work, and what each client reached in every round."""

    name: str
    clients: Mapping[str, Load]
    work: Work
    goals: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    rates: dict[str, list[Rates]] = field(default_factory=dict)

    def measure(self, *, reverse: bool) -> None:
        """Have each client do the work once."""
        for client in sorted(self.clients, key=list(self.clients).index, reverse=reverse):
            share = Work(**asdict(self.work))
            share.records = int(self.work.records * SLOW.get(client, 1))
            self.rates.setdefault(client, []).append(self.clients[client](share))

    def print(self) -> None:
        """Print a line for each client."""
        print(f"\n{self.name}, thousand records per second")
        print(f"  {'':16} {'median':>8} {'least':>8} {'most':>8} {'ratio':>7}   {'per CPU s':>9} {'ratio':>7}")
        for client, rates in self.rates.items():
            wall = [each.wall / 1000 for each in rates]
            ours, goal = self.goals.get(client, (OURS, None))
            ratios = [self._median(ours, what) / self._median(client, what) for what in ("wall", "cpu")]
            verdict = "" if goal is None else f"   {ours} ≥ {goal:g}: {'met' if ratios[0] >= goal else 'SHORT'}"
            print(
                f"  {client:16} {statistics.median(wall):8.1f} {min(wall):8.1f} {max(wall):8.1f} {ratios[0]:7.2f}"
                f"   {self._median(client, 'cpu') / 1000:9.1f} {ratios[1]:7.2f}{verdict}",
                flush=True,
            )

    def _median(self, client: str, what: str) -> float:
        rates = self.rates[client]
        return statistics.median([each.cpu if what == "cpu" else each.wall for each in rates])


def rows_of(bootstrap: str, scale: float) -> list[Row]:
    """Return all rows, and write what is read in them."""
    rows = []
    for value_bytes, full in RECORDS.items():
        records = int(full * scale)
        produced = Work(bootstrap, f"produced-{value_bytes}", records, value_bytes)
        same = Work(bootstrap, f"produced-{value_bytes}", records, value_bytes, SAME_BATCH_BYTES)
        consumed = Work(bootstrap, f"consumed-{value_bytes}", 2 * records, value_bytes)
        loads.produce_confluent(consumed)
        rows += [
            Row(f"produce {value_bytes} B, own batch sizes", PRODUCERS, produced, PRODUCE_GOALS),
            Row(f"produce {value_bytes} B, batches of 64 KiB", PRODUCERS, same, PRODUCE_GOALS),
            Row(f"consume {value_bytes} B in batches", READERS, consumed, READ_GOALS),
            Row(f"consume {value_bytes} B one by one", SINGLE_READERS, consumed),
        ]
    return rows


def main() -> None:
    """Read the command line, measure, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--scale", type=float, default=1.0, help="times the usual number of records")
    parser.add_argument("--only", default="", metavar="TEXT", help="leave out rows whose names do not have it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values to a file, too")
    options = parser.parse_args()
    # Ended from outside, everything that was started is stopped as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    print("  ".join(f"{key}: {value}" for key, value in machine().items()), flush=True)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
        broker = Ottla(Path(folder) / "ottla")
        try:
            broker.start()
            rows = [row for row in rows_of(broker.bootstrap, options.scale) if options.only in row.name]
            for number in range(options.rounds):
                print(f"round {number + 1}: load {os.getloadavg()[0]:.1f}", flush=True)
                for row in rows:
                    row.measure(reverse=number % 2 == 1)
        finally:
            broker.stop()
    for row in rows:
        row.print()
    if options.json:
        values = {row.name: {client: list(map(asdict, rates)) for client, rates in row.rates.items()} for row in rows}
        options.json.write_text(json.dumps({"machine": machine(), "rows": values}, indent=2) + "\n")


if __name__ == "__main__":
    main()
