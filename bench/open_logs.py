"""What it costs to open many logs after a clean stop.

    python bench/open_logs.py [number of logs]

Makes the logs in a temporary directory, each with one small segment and two batches of an idempotent producer, closes
them in order, and opens them in a fresh process. Goal for 10,000: under 10 s, 200 MB and 1,000 descriptors.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ottla.broker.config import BrokerConfig, TopicConfig
from ottla.broker.storage.directory_files import MetaProperties
from ottla.broker.storage.logs import Logs
from ottla.broker.storage.recovery.startup import close_logs, open_logs
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import RecordBatch

LOGS = 10_000
BATCHES = 2
RECORDS = 10
OPEN_FLAG = "--open"


def clock() -> int:
    return time.time_ns() // 1_000_000


def opened(directory: Path) -> Logs:
    config = BrokerConfig.of({"log.dirs": str(directory), "zookeeper.connect": "127.0.0.1:2181"})
    topic_config = TopicConfig(config)
    return open_logs(Logs(config, lambda topic: topic_config, clock), MetaProperties(1, "bench"))


def batch(sequence: int) -> RecordBatch:
    builder = RecordBatchBuilder()
    for number in range(RECORDS):
        builder.append(clock(), b"key %d" % number, b"value" * 10)
    return RecordBatch(builder.build(producer_id=7, producer_epoch=0, base_sequence=sequence))


def make(directory: Path, count: int) -> None:
    # What is measured is opening: nothing here needs to survive a power loss.
    os.fsync = os.fdatasync = lambda fd: None
    logs = opened(directory)
    for number in range(count):
        log = logs.create(TopicPartition(f"topic-{number // 10}", number % 10), (number + 1).to_bytes(16))
        for sequence in range(0, BATCHES * RECORDS, RECORDS):
            log.append_as_leader(batch(sequence), 0)
    close_logs(logs, 1)


def resident_mb() -> float:
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def measure(directory: Path) -> None:
    before_mb = resident_mb()
    begin = time.perf_counter()
    logs = opened(directory)
    seconds = time.perf_counter() - begin
    after_mb = resident_mb()
    descriptors = len(os.listdir("/proc/self/fd"))
    ends = sum(log.log_end_offset for log in logs)
    assert ends == len(logs) * BATCHES * RECORDS
    assert not logs.broken
    print(
        f"{len(logs):,} logs opened in {seconds:.1f} s ({seconds / len(logs) * 1e6:.0f} µs each), "
        f"resident {before_mb:.0f} MB before and {after_mb:.0f} MB after, {descriptors} descriptors"
    )


def main() -> None:
    if sys.argv[1:2] == [OPEN_FLAG]:
        measure(Path(sys.argv[2]))
        return
    count = int(sys.argv[1]) if len(sys.argv) > 1 else LOGS
    with tempfile.TemporaryDirectory() as directory:
        begin = time.perf_counter()
        make(Path(directory), count)
        print(f"{count:,} logs made and closed, without waiting for the disk, in {time.perf_counter() - begin:.1f} s")
        subprocess.run([sys.executable, __file__, OPEN_FLAG, directory], check=True)


if __name__ == "__main__":
    main()
