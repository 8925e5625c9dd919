"""Our Spark sources beside Spark's own connector, on the same topic of one broker of ours: rows and MB per second.

    python -m bench.spark [--rows N] [--value-bytes N] [--partitions N] [--rounds N] [--codec C] [--json FILE]

Spark runs on two threads. Each query counts the rows and adds up the lengths and the crc32 of all values, so that no
contender gains by not reading them, and all must come to the same sums. Contenders take turns, in the other order every
second time. The first round, in which Java has compiled nothing yet, is shown apart; the others count by their medians.
Time on a processor is that of Spark with its Python workers, without the broker's: on a busy machine it says more.

Goals: format("ottla") as fast as format("kafka"), format("ottla-log") twice as fast. Needs Java 17, and Maven the first
time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.support.contender import Ottla
from bench.support.report import machine
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.kit.apache_kafka import SCRIPT_SECONDS_MAX, UnavailableError
from tests.kit.spark_kafka import spark_kafka_jars

from ottla.pipeline.sources import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "bench"
STOCK = "kafka"
GOALS = {"ottla": 1.0, "ottla-log": 2.0}
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Run:
    """One query of a contender."""

    seconds: float
    cpu_seconds: float
    load: float


@dataclass(slots=True)
class Contender:
    """A source and what it reached."""

    name: str
    options: dict[str, str]
    runs: list[Run] = field(default_factory=list)

    def measure(self, spark: SparkSession, rows: int) -> tuple[int, ...]:
        """Run the query once; return its sums."""
        pid = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
        cpu_begun, begun = tree_cpu_seconds(pid), time.perf_counter()
        sums = _sums(spark.read.format(self.name).options(**self.options).load())
        run = Run(time.perf_counter() - begun, tree_cpu_seconds(pid) - cpu_begun, os.getloadavg()[0])
        self.runs.append(run)
        print(
            f"  {self.name:10} {rows / run.seconds:12,.0f} rows/s {rows / run.cpu_seconds:12,.0f} rows/CPU s",
            flush=True,
        )
        return sums

    def median(self, what: str) -> float:
        """Return the seconds of a warm round; of the only one where there is no other."""
        return statistics.median(float(getattr(run, what)) for run in self.runs[1:] or self.runs)


def _sums(frame: DataFrame) -> tuple[int, ...]:
    from pyspark.sql import functions

    value = functions.col("value")
    totals = frame.agg(
        functions.count("*"), functions.sum(functions.length(value)), functions.sum(functions.crc32(value))
    )
    return tuple(totals.collect()[0])


def tree_cpu_seconds(pid: int) -> float:
    """Return the time on a processor of a process and all below it, also those that have ended."""
    children: dict[int, list[int]] = {}
    spent: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        child = int(path.parent.name)
        children.setdefault(int(fields[1]), []).append(child)
        spent[child] = sum(map(int, fields[11:15])) / _TICKS
    below, total = [pid], 0.0
    while below:
        each = below.pop()
        total += spent.get(each, 0.0)
        below += children.get(each, [])
    return total


def fill(bootstrap: str, rows: int, value_bytes: int, partitions: int, codec: str) -> None:
    """Write the rows with librdkafka; values are pieces of random bytes, so none are alike and none compress well."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, partitions, 1)])[TOPIC].result()
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "1",
            "linger.ms": 50,
            "compression.type": codec,
            "queue.buffering.max.messages": 500_000,
        }
    )
    noise = random.Random(0).randbytes(1 << 20)
    span = len(noise) - value_bytes
    for number in range(rows):
        begin = number * 97 % span
        while True:
            try:
                producer.produce(TOPIC, noise[begin : begin + value_bytes], partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(600) == 0


def session(jars: list[Path], folder: Path) -> SparkSession:
    """Return Spark on two threads."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    options = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "spark"),
    }
    builder = SparkSession.builder.master("local[2]").appName("ottla-bench")
    for name, value in options.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


def print_table(contenders: list[Contender], rows: int, value_bytes: int) -> None:
    """Print a line for each contender."""
    stock = contenders[0]
    header = f"{'rows/s':>11} {'MB/s':>7} {'ratio':>6} {'rows/CPU s':>12} {'ratio':>6} {'cold rows/s':>12}"
    print(f"\n{rows:,} rows of {value_bytes} B, medians of {max(1, len(stock.runs) - 1)} rounds\n{'':12}{header}")
    for each in contenders:
        wall, cpu = each.median("seconds"), each.median("cpu_seconds")
        ratio = stock.median("seconds") / wall
        goal = GOALS.get(each.name)
        verdict = "" if goal is None else f"   ≥ {goal:g}: {'met' if ratio >= goal else 'SHORT'}"
        cold = rows / each.runs[0].seconds
        print(
            f"{each.name:12}{rows / wall:11,.0f} {rows * value_bytes / wall / 1e6:7.1f} {ratio:6.2f} "
            f"{rows / cpu:12,.0f} {stock.median('cpu_seconds') / cpu:6.2f} {cold:12,.0f}{verdict}"
        )


def measured(options: argparse.Namespace, folder: Path, jars: list[Path]) -> list[Contender]:
    """Fill a topic, and have all contenders read it by turns."""
    broker = Ottla(folder / "ottla")
    spark: Any = None
    try:
        broker.start()
        print(f"writing {options.rows:,} rows", flush=True)
        fill(broker.bootstrap, options.rows, options.value_bytes, options.partitions, options.codec)
        [data_dir] = (folder / "ottla").glob("data-*")
        topic = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": TOPIC}
        contenders = [
            Contender(STOCK, topic),
            Contender("ottla", topic),
            Contender("ottla-log", {"path": str(data_dir), "subscribe": TOPIC}),
        ]
        spark = session(jars, folder)
        sums = set()
        for number in range(options.rounds + 1):
            kind = "cold, not counted" if number == 0 else f"round {number}"
            print(f"{kind}: load {os.getloadavg()[0]:.1f}", flush=True)
            for each in contenders[:: -1 if number % 2 else 1]:
                sums.add(each.measure(spark, options.rows))
        if len(sums) != 1 or next(iter(sums))[0] != options.rows:
            raise SystemExit(f"the contenders do not agree: {sums}")
        return contenders
    finally:
        if spark is not None:
            spark.stop()
        broker.stop()


def main() -> None:
    """Read the command line, measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5, help="after the first, cold one")
    parser.add_argument("--codec", default="none", choices=["none", "gzip", "snappy", "lz4", "zstd"])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values to a file, too")
    options = parser.parse_args()
    # Ended from outside, everything that was started is stopped as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        jars = spark_kafka_jars(SCRIPT_SECONDS_MAX)
    except UnavailableError as error:
        raise SystemExit(str(error)) from error
    print("  ".join(f"{key}: {value}" for key, value in machine().items()), flush=True)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
        contenders = measured(options, Path(folder), jars)
    print_table(contenders, options.rows, options.value_bytes)
    if options.json:
        values = {each.name: list(map(asdict, each.runs)) for each in contenders}
        options.json.write_text(
            json.dumps({"machine": machine(), "rows": options.rows, "runs": values}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
