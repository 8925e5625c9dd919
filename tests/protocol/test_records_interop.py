"""Other people's code reads our batches, and we read theirs: Kafka's Java library, kafka-python and aiokafka."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples
from tests.protocol import java_batches
from tests.protocol.record_samples import TIMESTAMP, builder_of, record_lists

from ottla.protocol.compression import Codec
from ottla.protocol.control_records import ControlType, EndTransactionMarker, build_marker_batch
from ottla.protocol.record import Record
from ottla.protocol.record_batch_rewrite import rewrite_batch
from ottla.protocol.records import RecordBatch

with warnings.catch_warnings():
    # kafka-python reads its resources in a way that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import aiokafka.record.default_records as aiokafka_records
    import kafka.record.default_records as kafka_python_records

# kafka-python wants further packages for the other codecs; aiokafka has them all.
LIBRARIES = [
    pytest.param(kafka_python_records, Codec.NONE, id="kafka-python-none"),
    pytest.param(kafka_python_records, Codec.GZIP, id="kafka-python-gzip"),
    *(pytest.param(aiokafka_records, codec, id=f"aiokafka-{codec.config_name}") for codec in Codec),
]

# Neither library lets the difference of two timestamps wrap around.
tame_record_lists = record_lists.map(
    lambda records: [record._replace(timestamp=record.timestamp % (2 * TIMESTAMP)) for record in records]
)


def foreign_batch(library: Any, records: list[Record], codec: Codec) -> bytes:
    """A batch of these records as the other library builds it."""
    builder = library.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=7,
        producer_epoch=3,
        base_sequence=11,
        batch_size=1 << 20,
    )
    for record in records:
        builder.append(record.offset, record.timestamp, record.key, record.value, record.headers)
    return bytes(builder.build())


def foreign_records(library: Any, batch: bytes) -> list[Record]:
    """The records of a batch as the other library reads them."""
    read = library.DefaultRecordBatch(batch)
    assert read.validate_crc()
    return [Record(one.offset, one.timestamp, one.key, one.value, list(one.headers)) for one in read]


def our_batch(records: list[Record], codec: Codec = Codec.NONE, log_append_time: int | None = None) -> bytearray:
    """Our batch of these records with the header that Java's has."""
    return builder_of(records).build(
        base_offset=1000,
        partition_leader_epoch=9,
        producer_id=77,
        producer_epoch=5,
        base_sequence=2147483645,
        transactional=True,
        codec=codec,
        log_append_time=log_append_time,
    )


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.config_name)
def test_batches_of_java_are_read(codec: Codec) -> None:
    """Every codec as Java writes it, with its own choice of frames and blocks."""
    batch = RecordBatch(java_batches.CODECS[codec])

    batch.check()
    assert batch.codec is codec
    assert list(batch.records()) == java_batches.RECORDS


def test_our_bytes_are_those_of_java() -> None:
    """The plain batch, LogAppendTime, a batch after compaction, an emptied one and a marker."""
    records = java_batches.RECORDS
    plain = our_batch(records)
    marker = EndTransactionMarker(ControlType.COMMIT, coordinator_epoch=7)

    assert plain == java_batches.CODECS[Codec.NONE]
    assert our_batch(records[:2], log_append_time=1_700_000_009_999) == java_batches.APPENDED
    assert rewrite_batch(RecordBatch(plain), [records[2], records[4]], delete_horizon=1_800_000_000_000) == (
        java_batches.HORIZON
    )
    assert rewrite_batch(RecordBatch(plain), []) == java_batches.EMPTY
    assert build_marker_batch(marker, producer_id=1000, producer_epoch=3, timestamp=TIMESTAMP) == java_batches.COMMIT


@examples(50)
@given(tame_record_lists)
def test_our_bytes_are_those_of_kafka_python(records: list[Record]) -> None:
    """Uncompressed there is only one way to write a batch."""
    ours = builder_of(records).build(producer_id=7, producer_epoch=3, base_sequence=11, partition_leader_epoch=0)

    assert ours == foreign_batch(kafka_python_records, records, Codec.NONE)


@pytest.mark.parametrize(("library", "codec"), LIBRARIES)
@examples(20)
@given(records=tame_record_lists, repeat=st.sampled_from([1, 200]))
def test_others_read_what_we_write_and_we_what_they_write(
    library: Any, codec: Codec, records: list[Record], repeat: int
) -> None:
    """Both ways, for small batches and for ones of many blocks."""
    records = [record._replace(offset=offset) for offset, record in enumerate(records * repeat)]
    ours = bytes(builder_of(records).build(codec=codec))
    theirs = RecordBatch(foreign_batch(library, records, codec))

    assert foreign_records(library, ours) == records
    theirs.check()
    assert list(theirs.records()) == records
