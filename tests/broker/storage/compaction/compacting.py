"""Logs under a clock that only the test moves, and what compaction must leave of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.kit.clock import FakeClock

from ottla.broker.config import BrokerConfig, TopicConfig
from ottla.broker.storage.compaction.compaction import CleanerLimits, CompactionReport, compact
from ottla.broker.storage.log import Log
from ottla.broker.storage.open_files import OpenFiles
from ottla.broker.storage.producers.producers import FROM_COORDINATOR
from ottla.broker.storage.recovery.recovery import open_log
from ottla.protocol.compression import Codec
from ottla.protocol.control_records import ControlType, EndTransactionMarker, build_marker_batch
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.record import Record
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import RecordBatch, batches

NOW = 1_700_000_000_000
DAY_MS = 86_400_000
DELETE_RETENTION_MS = 1000
LIMITS = CleanerLimits(map_bytes=1 << 20, load_factor=0.9, buffer_bytes=4096)
PARTITION = TopicPartition("compacted", 0)
Pair = tuple[bytes | None, bytes | None]


def config_of(**overrides: object) -> TopicConfig:
    """A compacted topic with segments of a few batches."""
    options: dict[str, object] = {
        "cleanup_policy": "compact",
        "segment_bytes": 400,
        "index_interval_bytes": 100,
        "delete_retention_ms": DELETE_RETENTION_MS,
        "file_delete_delay_ms": 0,
    }
    options.update(overrides)
    return TopicConfig(BrokerConfig.of({}), {name.replace("_", "."): str(value) for name, value in options.items()})


class Bench:
    """A log, and all that was ever appended to it."""

    def __init__(self, directory: Path, recovery_point: int = 0, /, **overrides: object) -> None:
        self.directory = directory
        self.recovery_point = recovery_point
        self.clock = FakeClock(NOW)
        self.config = config_of(**overrides)
        self.checkpoint: int | None = None
        self.appended: dict[int, Record] = {}
        self.log = self._opened()

    def _opened(self) -> Log:
        log = open_log(
            self.directory, PARTITION, self.config, OpenFiles(100), self.clock, recovery_point=self.recovery_point
        )
        log.advance_high_watermark(log.log_end_offset)
        return log

    def reopen(self) -> None:
        """Open the log again as after a crash."""
        self.log = self._opened()

    def append(
        self,
        pairs: Sequence[Pair],
        codec: Codec = Codec.NONE,
        *,
        producer: int = -1,
        epoch: int = 0,
        sequence: int = 0,
        transactional: bool = False,
        log_append_time: int | None = None,
    ) -> int:
        """Append a batch; return its base offset."""
        builder = RecordBatchBuilder()
        for key, value in pairs:
            builder.append(self.clock.now, key, value)
        built = builder.build(
            codec=codec,
            producer_id=producer,
            producer_epoch=epoch if producer >= 0 else -1,
            base_sequence=sequence if producer >= 0 else -1,
            transactional=transactional,
            log_append_time=log_append_time,
        )
        appended = self.log.append_as_leader(RecordBatch(built), leader_epoch=0)
        self.log.advance_high_watermark(self.log.log_end_offset)
        for number, (key, value) in enumerate(pairs):
            offset = appended.first_offset + number
            timestamp = self.clock.now if log_append_time is None else log_append_time
            self.appended[offset] = Record(offset, timestamp, key, value, [])
        return appended.first_offset

    def end_transaction(self, control_type: ControlType, producer: int, epoch: int = 0) -> int:
        """Append a marker; return its offset."""
        marker = build_marker_batch(
            EndTransactionMarker(control_type, 0),
            producer_id=producer,
            producer_epoch=epoch,
            timestamp=self.clock.now,
        )
        appended = self.log.append_as_leader(RecordBatch(marker), leader_epoch=0, origin=FROM_COORDINATOR)
        self.log.advance_high_watermark(self.log.log_end_offset)
        return appended.first_offset

    def roll(self) -> None:
        """Make all that was appended compactable."""
        self.log.roll()

    def compact(self, limits: CleanerLimits = LIMITS) -> CompactionReport:
        """Compact, and keep the checkpoint as the broker does."""
        report = compact(self.log, self.checkpoint, limits)
        self.checkpoint = report.cleaned_up_to
        return report

    def pairs(self) -> list[Pair]:
        """The keys and values of all data in the log."""
        return [(record.key, record.value) for record in records_of(self.log)]

    def check_reads(self) -> None:
        """Reading at any offset, also within a hole, gives the next batch there is."""
        expected = batches_of(self.log)
        for offset in range(self.log.log_start_offset, self.log.log_end_offset):
            found = self.log.read(offset, 1)
            following = next((batch for batch in expected if batch.last_offset >= offset), None)
            if following is None:
                assert found is None
            else:
                assert found is not None
                assert found.read() == bytes(following.view)


def batches_of(log: Log) -> list[RecordBatch]:
    """All batches, in the order of the log."""
    found: list[RecordBatch] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        place = log.read(offset, 1 << 20)
        if place is None:
            break
        found += batches(place.read(), strict=True)
        offset = found[-1].next_offset
    for batch in found:
        batch.check()
    return found


def records_of(log: Log) -> list[Record]:
    """All records but the markers of transactions."""
    return [record for batch in batches_of(log) if not batch.is_control for record in batch.records()]


def last_of_each_key(records: Iterable[Record]) -> dict[bytes | None, Record]:
    """What a reader knows in the end."""
    return {record.key: record for record in records}


def check_nothing_is_lost(log: Log, appended: dict[int, Record]) -> None:
    """Nothing is changed, reordered or there twice; the last value of each key is there, unless it is a tombstone."""
    remaining = records_of(log)
    offsets = [record.offset for record in remaining]
    assert offsets == sorted(set(offsets))
    assert all(appended[record.offset] == record for record in remaining)
    found = last_of_each_key(remaining)
    for key, record in last_of_each_key(record for _, record in sorted(appended.items())).items():
        assert found.get(key) == record or record.value is None
        assert record.value is not None or key not in found or found[key] == record


def check_is_compaction_of(log: Log, appended: dict[int, Record], cleaned_up_to: int) -> None:
    """Nothing is lost, all above `cleaned_up_to` is there, and below that no key is there twice."""
    check_nothing_is_lost(log, appended)
    remaining = records_of(log)
    assert [record for record in remaining if record.offset >= cleaned_up_to] == [
        record for offset, record in sorted(appended.items()) if offset >= cleaned_up_to
    ]
    cleaned = [record for record in remaining if record.offset < cleaned_up_to]
    assert len({record.key for record in cleaned}) == len(cleaned)
    expected = last_of_each_key(record for offset, record in sorted(appended.items()) if offset < cleaned_up_to)
    found = last_of_each_key(cleaned)
    assert {key: record for key, record in expected.items() if record.value is not None} == {
        key: record for key, record in found.items() if record.value is not None
    }
    assert found.items() <= expected.items()
