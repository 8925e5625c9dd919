"""Reading the files of logs: what is found, how it is divided, and what damage does."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.kit.examples import examples
from tests.pipeline.log_samples import TIME_MS, made_batch, read_offsets, read_rows, write_segment

from ottla.pipeline.sources import segment_reader
from ottla.pipeline.sources.errors import CorruptLogError, SourceOptionError
from ottla.pipeline.sources.log_source import LogPartition, LogReader, parse_log_options
from ottla.protocol.compression import Codec
from ottla.protocol.control_records import ControlType, EndTransactionMarker, build_marker_batch
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.record_batch_rewrite import rewrite_batch
from ottla.protocol.records import RecordBatch


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A directory for a log."""
    return tmp_path / "data" / "orders-0"


def test_rows_have_all_that_records_have(log: Path) -> None:
    """Every column, with nulls kept."""
    builder = RecordBatchBuilder()
    builder.append(TIME_MS, None, b"one", (("a", b"1"), ("b", None)))
    builder.append(TIME_MS + 5, b"key", None, ())
    write_segment(log, 7, [bytes(builder.build(base_offset=7))])
    first, second = read_rows(log, includeHeaders="true")
    time = datetime.fromtimestamp(TIME_MS / 1000, UTC)

    common = {"topic": "orders", "partition": 0, "timestampType": 0}
    headers = [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
    assert first == {**common, "key": None, "value": b"one", "offset": 7, "timestamp": time, "headers": headers}
    later = time + timedelta(milliseconds=5)
    assert second == {**common, "key": b"key", "value": None, "offset": 8, "timestamp": later, "headers": None}


def test_the_time_of_appending_counts_where_the_topic_has_it(log: Path) -> None:
    """With another timestamp type; both kinds may be in one log."""
    write_segment(log, 0, [made_batch(0, 1), made_batch(1, 2, log_append_time=TIME_MS - 1)])

    rows = read_rows(log)
    assert [row["timestampType"] for row in rows] == [0, 1, 1]
    assert rows[2]["timestamp"] == datetime.fromtimestamp((TIME_MS - 1) / 1000, UTC)


def test_a_time_that_spark_cannot_hold_is_null(log: Path) -> None:
    """A producer may write any 64-bit number."""
    builder = RecordBatchBuilder()
    for timestamp in (-1, (1 << 63) - 1, -(1 << 63)):
        builder.append(timestamp, None, b"", ())
    write_segment(log, 0, [bytes(builder.build())])

    assert [row["timestamp"] for row in read_rows(log)] == [datetime(1969, 12, 31, 23, 59, 59, 999000, UTC), None, None]


@pytest.mark.parametrize("codec", Codec)
def test_compressed_batches_are_opened(log: Path, codec: Codec) -> None:
    """All codecs that there are."""
    write_segment(log, 0, [made_batch(0, 50, codec), made_batch(50, 50, codec)])

    assert [row["value"] for row in read_rows(log)] == [(b"v%d " % offset).ljust(10, b".") for offset in range(100)]


def test_control_batches_and_emptied_ones_have_no_rows(log: Path) -> None:
    """Markers of transactions are left out, and so is what the cleaner emptied; holes stay holes."""
    marker = build_marker_batch(
        EndTransactionMarker(ControlType.COMMIT, 1), producer_id=1, producer_epoch=0, timestamp=TIME_MS, base_offset=3
    )
    empty = rewrite_batch(RecordBatch(made_batch(4, 10)), [])
    sparse = RecordBatchBuilder()
    sparse.append(TIME_MS, b"k", b"v", (), 2)
    sparse.append(TIME_MS, b"k", b"v", (), 5)
    write_segment(log, 0, [made_batch(0), bytes(marker), bytes(empty), bytes(sparse.build(base_offset=14))])

    assert read_offsets(log) == [0, 1, 2, 16, 19]


def test_a_data_directory_has_many_logs(tmp_path: Path) -> None:
    """All topics but internal ones; those being deleted, and other files, are passed over."""
    for name in ("a-0", "a-1", "b.c-0", "__consumer_offsets-3", "a-2.0123456789abcdef0123456789abcdef-delete"):
        write_segment(tmp_path / name, 0, [made_batch(0, 1)])
    (tmp_path / "a-7").touch()

    def found(**options: str) -> list[str]:
        return [f"{row['topic']}-{row['partition']}" for row in read_rows(tmp_path, **options)]

    assert found() == ["a-0", "a-1", "b.c-0"]
    assert found(subscribe="__consumer_offsets,b.c") == ["__consumer_offsets-3", "b.c-0"]
    assert found(subscribePattern="a") == ["a-0", "a-1"]
    assert found(assign='{"a": [1]}') == ["a-1"]


def test_offsets_bound_what_is_read(log: Path) -> None:
    """Segments outside are not opened; records before the log's start were deleted."""
    write_segment(log, 0, [b"never looked at"])
    write_segment(log, 100, [made_batch(base) for base in range(100, 130, 3)])
    (log.parent / "log-start-offset-checkpoint").write_text("0\n2\norders 0 104\nother 0 9\n")

    assert read_offsets(log) == list(range(104, 130))
    assert read_offsets(log, startingOffsets='{"orders": {"0": 110}}', endingOffsets='{"orders": {"0": 115}}') == list(
        range(110, 115)
    )


def test_files_are_divided_at_batches(log: Path) -> None:
    """With an index, with one that lies, and without: every row comes once."""
    batches = [made_batch(base, size=40) for base in range(0, 300, 3)]
    path = write_segment(log, 0, batches)
    positions = [sum(map(len, batches[:number])) for number in range(100)]
    entries = [(3 * number + 2, positions[number]) for number in range(1, 100, 2)]
    for index in (None, entries, [(offset, position + 1) for offset, position in entries], [(0, 0)]):
        if index is not None:
            path.with_suffix(".index").write_bytes(b"".join(struct.pack(">ii", *entry) for entry in index))
        reader = LogReader(parse_log_options({"path": str(log), "minPartitions": "8"}))
        parts = [part for part in reader.partitions() if isinstance(part, LogPartition)]

        assert len(parts) >= 7 or index not in (None, entries)
        assert [
            offset for part in parts for rows in reader.read(part) for offset in rows.column("offset").to_pylist()
        ] == list(range(300))
        begun = '{"orders": {"0": 151}}'
        assert read_offsets(log, startingOffsets=begun) == list(range(151, 300))


def test_small_segments_are_read_by_one_task(tmp_path: Path) -> None:
    """A task for each would cost more than the reading."""
    for number in range(20):
        write_segment(tmp_path / f"orders-{number}", 0, [made_batch(0)])

    assert len(LogReader(parse_log_options({"path": str(tmp_path)})).partitions()) == 1


def test_a_batch_larger_than_a_read_is_read(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffer grows for it."""
    monkeypatch.setattr(segment_reader.SegmentReader.__init__, "__kwdefaults__", {"chunk_bytes": 256})
    write_segment(log, 0, [made_batch(0), made_batch(3, size=5000), made_batch(6), made_batch(9)])

    assert read_offsets(log) == list(range(12))


@given(st.data())
@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_torn_tail_ends_the_log_at_its_last_whole_batch(log: Path, data: st.DataObject) -> None:
    """Cut anywhere, or with zeros behind, as after a crash of a broker that preallocates."""
    batches = [made_batch(base) for base in range(0, 12, 3)]
    cut = data.draw(st.integers(0, sum(map(len, batches))))
    zeros = data.draw(st.sampled_from([0, 1, 60, 5000]))
    write_segment(log, 0, [b"".join(batches)[:cut], bytes(zeros)])
    ends = [sum(map(len, batches[:count])) for count in range(5)]
    written, wanted = (log / f"{0:020}.log").read_bytes(), b"".join(batches)
    # Zeros behind the cut may be what the batch had there.
    whole = max(count for count, end in enumerate(ends) if written[:end] == wanted[:end])

    assert read_offsets(log) == list(range(3 * whole))


def damaged(log: Path, at: int, *, rolled: bool) -> Path:
    """A log of four batches with a wrong bit in one, and another segment behind if it is rolled."""
    batches = [bytearray(made_batch(base)) for base in range(0, 12, 3)]
    batches[at][-1] ^= 1
    path = write_segment(log, 0, map(bytes, batches))
    if rolled:
        write_segment(log, 12, [made_batch(12)])
    return path


@pytest.mark.parametrize(("at", "rolled"), [(0, False), (2, False), (1, True), (3, True)])
def test_damage_in_the_middle_is_an_error_that_names_file_and_position(log: Path, at: int, rolled: bool) -> None:
    """Unless it may be left out: then all other batches are read."""
    path = damaged(log, at, rolled=rolled)
    position = sum(len(made_batch(base)) for base in range(0, 3 * at, 3))
    with pytest.raises(CorruptLogError, match=rf"{path} is damaged at position {position}: the CRC .*failOnDataLoss"):
        read_rows(log)

    left = [offset for offset in range(15 if rolled else 12) if not 3 * at <= offset < 3 * at + 3]
    assert read_offsets(log, failOnDataLoss="false") == left


def test_a_wrong_bit_in_the_last_batch_of_a_log_is_a_torn_write(log: Path) -> None:
    """Nothing is behind it that could be lost."""
    damaged(log, 3, rolled=False)

    assert read_offsets(log) == list(range(9))


def test_a_length_that_is_wrong_does_not_hide_what_lies_behind(log: Path) -> None:
    """The next batch is found by its own checksum."""
    batches = [bytearray(made_batch(base)) for base in range(0, 9, 3)]
    batches[1][8:12] = b"\x00\x00\x00\x00"
    path = write_segment(log, 0, map(bytes, batches))
    with pytest.raises(CorruptLogError, match=rf"{path} is damaged at position {len(batches[0])}"):
        read_rows(log)

    assert read_offsets(log, failOnDataLoss="false") == [0, 1, 2, 6, 7, 8]


def test_zeros_in_a_rolled_segment_hide_no_records(log: Path) -> None:
    """They are fine where the next segment goes on with the next offset, and damage where it does not."""
    write_segment(log, 0, [made_batch(0), bytes(200)])
    write_segment(log, 3, [made_batch(3)])
    assert read_offsets(log) == list(range(6))

    write_segment(log, 3, [])
    (log / f"{3:020}.log").unlink()
    write_segment(log, 6, [made_batch(6)])
    with pytest.raises(CorruptLogError):
        read_rows(log)


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"path": " "}, "The option path is missing"),
        ({"path": "/does/not/exist"}, "cannot be read"),
        ({"startingTimestamp": "1"}, "filter by timestamp"),
        ({"startingOffsets": '{"other": {"0": 1}}'}, "startingOffsets lacks partition orders-0"),
        ({"subscribe": "other"}, "There is no log to read"),
    ],
)
def test_wrong_options_say_what_to_change(log: Path, options: dict[str, Any], advice: str) -> None:
    """Each message names the option."""
    write_segment(log, 0, [made_batch(0)])
    with pytest.raises(SourceOptionError) as refused:
        LogReader(parse_log_options({"path": str(log), **options})).partitions()

    assert advice in str(refused.value)


def test_replicas_of_a_partition_are_not_read_twice(tmp_path: Path) -> None:
    """Two data directories with the same partition."""
    for broker in ("one", "two"):
        write_segment(tmp_path / broker / "orders-0", 0, [made_batch(0)])
    with pytest.raises(SourceOptionError, match="replicas would be read twice"):
        LogReader(parse_log_options({"path": f"{tmp_path}/one,{tmp_path}/two"})).partitions()
