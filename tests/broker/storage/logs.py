"""Logs with tiny segments under a clock that only the test moves, batches for them, and reading them back."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from tests.kit.clock import FakeClock

from ottla.broker.config import BrokerConfig, TopicConfig
from ottla.broker.storage.log import Appended, Log
from ottla.broker.storage.open_files import OpenFiles
from ottla.broker.storage.producers.producers import FROM_COORDINATOR
from ottla.broker.storage.recovery.recovery import open_log
from ottla.broker.storage.validation import validated
from ottla.protocol.compression import Codec
from ottla.protocol.control_records import ControlType, EndTransactionMarker, build_marker_batch
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import RecordBatch, batches

NOW = 1_700_000_000_000
PARTITION = TopicPartition("orders", 0)
LEADER_EPOCH = 3
# Small enough to roll after a few batches, and to have an index entry for every other one.
TINY = {"segment_bytes": 1000, "index_interval_bytes": 150, "file_delete_delay_ms": 0}


def topic_config(**overrides: object) -> TopicConfig:
    """The options of a topic, by their names in Python."""
    options = {**TINY, **overrides}
    return TopicConfig(BrokerConfig(), {name.replace("_", "."): str(value) for name, value in options.items()})


def make_log(
    directory: Path,
    clock: FakeClock[int] | None = None,
    files: OpenFiles | None = None,
    *,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    was_clean: bool = False,
    **overrides: object,
) -> Log:
    """Open a log, everything replicated; after a clean stop `recovery_point` is where it ended."""
    log = open_log(
        directory,
        PARTITION,
        topic_config(**overrides),
        files if files is not None else OpenFiles(100),
        clock or FakeClock(NOW),
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        was_clean=was_clean,
    )
    log.advance_high_watermark(log.log_end_offset)
    return log


def make_batch(
    count: int = 1,
    *,
    timestamps: Iterable[int] | None = None,
    value: bytes = b"v" * 20,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = 0,
    sequence: int = 0,
    transactional: bool = False,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """A batch as a producer sends it, or with `base_offset` and `leader_epoch` as a leader does."""
    builder = RecordBatchBuilder()
    for number, timestamp in enumerate(timestamps if timestamps is not None else [NOW] * count):
        builder.append(timestamp, b"k%d" % number, value)
    has_producer = producer_id >= 0
    return bytes(
        builder.build(
            base_offset=base_offset,
            partition_leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch if has_producer else -1,
            base_sequence=sequence if has_producer else -1,
            transactional=transactional,
            codec=codec,
        )
    )


def make_marker(
    control_type: ControlType,
    producer_id: int,
    *,
    producer_epoch: int = 0,
    timestamp: int = NOW,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """The batch that ends a transaction."""
    return bytes(
        build_marker_batch(
            EndTransactionMarker(control_type, 0),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=timestamp,
            base_offset=base_offset,
            partition_leader_epoch=leader_epoch,
        )
    )


def append(log: Log, data: bytes, leader_epoch: int = LEADER_EPOCH) -> Appended:
    """Append a batch from a client, and take it as replicated."""
    appended = log.append_as_leader(validated(data, log.rules, log.clock()), leader_epoch)
    log.advance_high_watermark(log.log_end_offset)
    return appended


def append_marker(log: Log, data: bytes, leader_epoch: int = LEADER_EPOCH) -> Appended:
    """Append a marker as a transaction coordinator has it done, and take it as replicated."""
    appended = log.append_as_leader(RecordBatch(data), leader_epoch, origin=FROM_COORDINATOR)
    log.advance_high_watermark(log.log_end_offset)
    return appended


def fill(log: Log, count: int, *, value: bytes = b"v" * 20) -> None:
    """Append batches of one record each, with timestamps that rise by one."""
    for _ in range(count):
        append(log, make_batch(timestamps=[NOW + log.log_end_offset], value=value))


def read_all(log: Log, max_bytes: int = 10_000) -> list[RecordBatch]:
    """Read every batch from the log start on, as a consumer does: CRCs are right, and offsets rise."""
    found: list[RecordBatch] = []
    offset = log.log_start_offset
    while (piece := log.read(offset, max_bytes)) is not None:
        for batch in batches(piece.read(), strict=True):
            batch.check()
            assert batch.last_offset >= offset
            assert not found or batch.base_offset >= found[-1].next_offset
            found.append(batch)
            offset = batch.next_offset
    return found


def offsets(log: Log) -> list[int]:
    """The base offsets of all batches."""
    return [batch.base_offset for batch in read_all(log)]


def names(directory: Path, suffix: str) -> list[int]:
    """The offsets in the names of the files with a suffix, such as `.log`."""
    return sorted(int(path.name[:20]) for path in directory.iterdir() if path.name[20:] == suffix)


def path_of(directory: Path, base_offset: int, suffix: str = ".log") -> Path:
    """A file of a segment."""
    return directory / f"{base_offset:020d}{suffix}"


def descriptors() -> int:
    """How many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))


def memory_directory() -> Path | None:
    """A directory in memory, where forcing to disk costs nothing; None where there is none."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else None
