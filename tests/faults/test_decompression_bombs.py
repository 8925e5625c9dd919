"""Batches that open to far more than they weigh, on a topic where the broker opens them. Row F36."""

from __future__ import annotations

import time
from contextlib import closing

import pytest
from tests.faults.live import MIB, Client, Process, Said, batch_of
from tests.kit.broker_process import BrokerProcess

from ottla.protocol.compression import Codec, compress
from ottla.protocol.errors import ErrorCode
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import BATCH_HEADER_BYTES, write_header

OPENED_BYTES = 64 * MIB
BOMBS = 12
# Each of the four workers of the broker may have one batch open, up to its limit, and the memory for it may stay.
MEMORY_GROWTH_BYTES_MAX = 4 * 20 * MIB


def bomb(codec: Codec, opened: bytes) -> bytes:
    """A batch with a right header and CRC, of one record as far as the header knows."""
    batch = bytearray(BATCH_HEADER_BYTES) + compress(codec, opened)
    now_ms = time.time_ns() // 1_000_000
    write_header(
        batch,
        base_offset=0,
        partition_leader_epoch=-1,
        attributes=codec,
        last_offset_delta=0,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=1,
    )
    return bytes(batch)


def record_with_zeros() -> bytes:
    """One well-formed record, all of which is zeros but its frame."""
    builder = RecordBatchBuilder()
    builder.append(time.time_ns() // 1_000_000, b"key", bytes(OPENED_BYTES))
    return bytes(builder.build())[BATCH_HEADER_BYTES:]


@pytest.mark.parametrize("opened", [bytes(OPENED_BYTES), record_with_zeros()], ids=["zeros", "record"])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.config_name)
def test_a_decompression_bomb_is_refused(hasty_broker: BrokerProcess, topic: str, codec: Codec, opened: bytes) -> None:
    """Memory stays where it was, whether what it opens to is well formed or not."""
    process, said = Process(hasty_broker.pid), Said(hasty_broker)
    batch = bomb(codec, opened)
    with closing(Client(hasty_broker)) as client:
        client.create_topic(topic, cleanup_policy="compact")
        resident = process.resident_bytes
        answers = {client.produce(topic, batch) for _ in range(BOMBS)}

        assert answers == {ErrorCode.INVALID_RECORD}
        assert process.resident_bytes - resident < MEMORY_GROWTH_BYTES_MAX
        assert client.produce(topic, batch_of(b"value")) is ErrorCode.NONE
        assert client.fetch(topic, 0).high_watermark == 1
    said.check_no_failure()


def test_a_snappy_bomb_is_too_large_before_it_is_opened(hasty_broker: BrokerProcess, topic: str) -> None:
    """Snappy saves too little for a bomb that fits into max.message.bytes."""
    with closing(Client(hasty_broker)) as client:
        client.create_topic(topic, cleanup_policy="compact")

        assert client.produce(topic, bomb(Codec.SNAPPY, bytes(OPENED_BYTES))) is ErrorCode.MESSAGE_TOO_LARGE
