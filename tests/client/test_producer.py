"""The producer against scripted brokers: batching, answers of all kinds, and bounds."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.client.scripted_broker import HANGUP, SILENCE, Reply, ScriptedBroker, metadata_response, run, scripted_broker

from ottla.client.errors import (
    IllegalStateError,
    InvalidRecordError,
    KafkaConfigurationError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    ProducerClosed,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from ottla.client.producer import Producer
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.init_producer_id import InitProducerIdResponse
from ottla.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.records import RecordBatch

# What a broker does with a batch: nothing special (None), an error code, or an answer of its own.
Judge = Callable[[TopicPartition, RecordBatch], int | Reply | None]


class Brokers:
    """A broker that writes what it gets, unless the judge of the test says otherwise."""

    def __init__(self) -> None:
        self.broker: ScriptedBroker | None = None
        self.leaders = {"t": [1, 1, 1]}
        self.errors: dict[str, int] = {}
        self.judge: Judge = lambda partition, batch: None
        self.log: dict[TopicPartition, list[bytes | None]] = defaultdict(list)
        self.batches: list[tuple[TopicPartition, RecordBatch]] = []
        self.acks: set[int] = set()
        self.log_append_time = -1
        # Cleared, nothing is answered.
        self.gate = asyncio.Event()
        self.gate.set()

    async def answer(self, api: Api, version: int, request: Any) -> Reply:
        """Answer what a producer asks."""
        if api is Api.METADATA:
            assert self.broker is not None
            asked = {row.name for row in request.topics}
            known = {topic: of for topic, of in self.leaders.items() if topic in asked}
            errors = {topic: code for topic, code in self.errors.items() if topic in asked}
            return metadata_response({1: self.broker.address}, known, errors=errors)
        if api is Api.INIT_PRODUCER_ID:
            return InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=7, producer_epoch=0)
        assert api is Api.PRODUCE
        await self.gate.wait()
        self.acks.add(request.acks)
        topics = []
        for topic in request.topic_data:
            rows = []
            for data in topic.partition_data:
                row = self._write(TopicPartition(topic.name, data.index), RecordBatch(bytes(data.records)))
                if not isinstance(row, PartitionProduceResponse):
                    return row
                rows.append(row)
            topics.append(TopicProduceResponse(name=topic.name, partition_responses=rows))
        return ProduceResponse(responses=topics) if request.acks else SILENCE

    def _write(self, partition: TopicPartition, batch: RecordBatch) -> PartitionProduceResponse | Reply:
        batch.check()
        self.batches.append((partition, batch))
        verdict = self.judge(partition, batch)
        if verdict is not None and not isinstance(verdict, int):
            return verdict
        log = self.log[partition]
        offset = len(log)
        if verdict is None:
            log.extend(record.value for record in batch.records())
        return PartitionProduceResponse(
            index=partition.partition,
            error_code=verdict or 0,
            base_offset=-1 if verdict else offset,
            log_append_time_ms=self.log_append_time,
            log_start_offset=0,
            current_leader=LeaderIdAndEpoch(),
        )


@asynccontextmanager
async def producing(brokers: Brokers, **options: Any) -> AsyncIterator[Producer]:
    """Run a broker and a producer that retries without waiting long."""
    quick = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 5}
    async with scripted_broker(brokers.answer) as broker:
        brokers.broker = broker
        async with Producer(bootstrap_servers=str(broker.address), **(quick | options)) as producer:
            yield producer


def test_records_get_the_offsets_at_which_they_are_written() -> None:
    """Each its own, from the one answer to its batch."""

    async def test() -> None:
        brokers = Brokers()
        async with producing(brokers) as producer:
            deliveries = [
                await producer.send("t", b"%d" % number, partition=1, timestamp_ms=number) for number in range(1000)
            ]
            metadata = await asyncio.gather(*deliveries)

        assert [one.offset for one in metadata] == list(range(1000))
        assert [one.timestamp for one in metadata] == list(range(1000))
        assert {one.topic_partition for one in metadata} == {TopicPartition("t", 1)}
        assert {(one.timestamp_type, one.log_start_offset) for one in metadata} == {(0, 0)}
        assert brokers.log[TopicPartition("t", 1)] == [b"%d" % number for number in range(1000)]
        assert brokers.acks == {-1}
        assert len(brokers.batches) < 10

    run(test)


def test_keys_values_headers_and_timestamps_arrive_as_they_were_given() -> None:
    """Through the serializers."""

    async def test() -> None:
        brokers = Brokers()
        async with producing(brokers, key_serializer=str.encode, value_serializer=lambda n: b"%d" % n) as producer:
            await producer.send_and_wait("t", 5, "key", timestamp_ms=77, headers=[("h", b"1"), ("empty", None)])
            records = [record for _, batch in brokers.batches for record in batch.records()]

        assert [(one.key, one.value, one.timestamp) for one in records] == [(b"key", b"5", 77)]
        assert records[0].headers == [("h", b"1"), ("empty", None)]

    run(test)


def test_the_brokers_time_counts_on_topics_that_have_it() -> None:
    """LogAppendTime."""

    async def test() -> None:
        brokers = Brokers()
        brokers.log_append_time = 1234
        async with producing(brokers) as producer:
            metadata = await producer.send_and_wait("t", b"", timestamp_ms=1)

        assert (metadata.timestamp, metadata.timestamp_type) == (1234, 1)

    run(test)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed_as_asked(codec: Any) -> None:
    """And hold the same records."""

    async def test() -> None:
        brokers = Brokers()
        async with producing(brokers, compression_type=codec) as producer:
            for number in range(50):
                await producer.send("t", b"%d" % number, partition=0)

        assert {batch.codec.config_name for _, batch in brokers.batches} == {codec}
        assert brokers.log[TopicPartition("t", 0)] == [b"%d" % number for number in range(50)]

    run(test)


def test_records_without_a_key_fill_one_batch_after_the_other() -> None:
    """Rather than a little of many."""

    async def test() -> None:
        brokers = Brokers()
        async with producing(brokers, max_batch_size=1000, linger_ms=60_000) as producer:
            for _ in range(100):
                await producer.send("t", bytes(100))
            await producer.flush()

        counts = sorted(batch.record_count for _, batch in brokers.batches)
        assert sum(counts) == 100
        # All but the last one are full.
        assert len(set(counts[1:])) == 1
        assert counts[-1] >= 6

    run(test)


def test_a_key_and_a_partitioner_decide_where_records_go() -> None:
    """A partition that is given comes first."""

    async def test() -> None:
        brokers = Brokers()
        async with producing(brokers) as producer:
            by_key = await producer.send_and_wait("t", b"", key=b"foobar")
            assert by_key.partition == (-790332482 & 0x7FFFFFFF) % 3
            assert (await producer.send_and_wait("t", b"", key=b"foobar", partition=0)).partition == 0
            with pytest.raises(UnknownTopicOrPartitionError, match="partitions 0 to 2, not 3"):
                await producer.send("t", b"", partition=3)
            assert await producer.partitions_for("t") == {0, 1, 2}
        async with producing(brokers, partitioner=lambda key, every, available: every[-1]) as producer:
            assert (await producer.send_and_wait("t", b"", key=b"foobar")).partition == 2

    run(test)


def test_lingering_records_wait_for_company_but_not_when_flushed() -> None:
    """One batch for all of them."""

    async def test() -> None:
        brokers = Brokers()
        async with producing(brokers, linger_ms=60_000) as producer:
            for _ in range(5):
                delivery = await producer.send("t", b"", partition=0)
                await asyncio.sleep(0)
            assert not delivery.done()
            await producer.flush()
            assert delivery.done()
            assert delivery.exception() is None
        async with producing(brokers, linger_ms=5) as producer:
            await producer.send_and_wait("t", b"", partition=0)

        assert [batch.record_count for _, batch in brokers.batches] == [5, 1]

    run(test)


def test_retriable_errors_are_retried_in_order() -> None:
    """With several batches in flight, whose numbers stay the same."""

    async def test() -> None:
        brokers = Brokers()
        seen = 0
        expected = 0

        def judge(partition: TopicPartition, batch: RecordBatch) -> int | Reply | None:
            nonlocal seen, expected
            seen += 1
            if seen in (3, 7, 8, 15):
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            if seen == 20:
                return HANGUP
            if batch.base_sequence != expected:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            expected += batch.record_count
            return None

        brokers.judge = judge
        async with producing(brokers, max_batch_size=200) as producer:
            deliveries = [await producer.send("t", b"%d" % number, partition=0) for number in range(200)]
            metadata = await asyncio.gather(*deliveries)

        assert [one.offset for one in metadata] == list(range(200))
        assert brokers.log[TopicPartition("t", 0)] == [b"%d" % number for number in range(200)]
        assert {batch.producer_epoch for _, batch in brokers.batches} == {0}

    run(test)


def test_a_refused_batch_fails_alone() -> None:
    """Those behind it go under a new epoch, and those of other partitions do not even notice."""

    async def test() -> None:
        brokers = Brokers()
        expected = [0, 0]

        def judge(partition: TopicPartition, batch: RecordBatch) -> int | Reply | None:
            if partition.partition == 1:
                return None
            if any(record.value == b"bad" for record in batch.records()):
                return ErrorCode.MESSAGE_TOO_LARGE
            if batch.producer_epoch != expected[0]:
                expected[:] = batch.producer_epoch, 0
            if batch.base_sequence != expected[1]:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            expected[1] += batch.record_count
            return None

        brokers.judge = judge
        async with producing(brokers, max_batch_size=150) as producer:
            values = [b"bad" if number == 20 else b"%d" % number for number in range(40)]
            padded = [value if value == b"bad" else value + bytes(60) for value in values]
            deliveries = [await producer.send("t", value, partition=0) for value in padded]
            others = [await producer.send("t", value, partition=1) for value in values]
            results = await asyncio.gather(*deliveries, return_exceptions=True)
            await asyncio.gather(*others)

        failed = [result for result in results if isinstance(result, Exception)]
        assert 1 <= len(failed) <= 3
        assert all(isinstance(error, MessageSizeTooLargeError) for error in failed)
        written = [value.rstrip(b"\0") for value in brokers.log[TopicPartition("t", 0)] if value]
        assert written == [value for value, result in zip(values, results, strict=True) if result not in failed]

    run(test)


def test_a_partition_without_an_answer_does_not_hold_up_the_others() -> None:
    """It fails when its time is over, and says why."""

    async def test() -> None:
        brokers = Brokers()
        brokers.leaders = {"t": [1, -1]}
        async with producing(brokers, delivery_timeout_ms=200) as producer:
            stuck = await producer.send("t", b"", partition=1)
            for _ in range(3):
                await producer.send_and_wait("t", b"", partition=0)
            with pytest.raises(KafkaTimeoutError, match=r"t-1 did not take 1 records.*no leader"):
                await stuck

    run(test)


def test_an_expired_batch_does_not_fail_the_later_ones() -> None:
    """Though its numbers are missing in the log."""

    async def test() -> None:
        brokers = Brokers()
        expected = [0, 0]

        def judge(partition: TopicPartition, batch: RecordBatch) -> int | Reply | None:
            if any(record.value == b"stuck" for record in batch.records()):
                return ErrorCode.NOT_ENOUGH_REPLICAS
            if batch.producer_epoch != expected[0]:
                expected[:] = batch.producer_epoch, 0
            if batch.base_sequence != expected[1]:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            expected[1] += batch.record_count
            return None

        brokers.judge = judge
        async with producing(brokers, delivery_timeout_ms=300) as producer:
            await producer.send_and_wait("t", b"first", partition=0)
            with pytest.raises(KafkaTimeoutError, match="NOT_ENOUGH_REPLICAS"):
                await producer.send_and_wait("t", b"stuck", partition=0)
            for _ in range(3):
                await producer.send_and_wait("t", b"later", partition=0)

        assert brokers.log[TopicPartition("t", 0)] == [b"first", b"later", b"later", b"later"]

    run(test)


def test_send_waits_while_the_buffer_is_full_and_times_out_in_the_end() -> None:
    """Nothing is lost of what was taken."""

    async def test() -> None:
        brokers = Brokers()
        brokers.gate.clear()
        options = {"max_batch_size": 1000, "max_request_size": 1000, "buffer_memory": 3000}
        async with producing(brokers, max_block_ms=50, **options) as producer:
            sent = []

            async def fill() -> None:
                while True:
                    sent.append(await producer.send("t", bytes(100), partition=0))

            with pytest.raises(KafkaTimeoutError, match="buffer_memory of 3000 bytes was full"):
                await fill()
            assert 0 < len(sent) <= 30
            brokers.gate.set()
            await asyncio.gather(*sent)
            await producer.send_and_wait("t", b"", partition=0)
        async with producing(brokers, **options) as producer:
            await asyncio.gather(*[producer.send_and_wait("t", bytes(100), partition=0) for _ in range(200)])

        assert len(brokers.log[TopicPartition("t", 0)]) == len(sent) + 1 + 200

    run(test)


def test_bad_records_are_refused_when_they_are_sent() -> None:
    """And leave the producer as it was."""

    async def test() -> None:
        brokers = Brokers()
        async with producing(brokers, max_request_size=2000, max_batch_size=1000) as producer:
            with pytest.raises(MessageSizeTooLargeError, match="max_request_size=2000"):
                await producer.send("t", bytes(2000))
            with pytest.raises(TypeError, match="the value of a record is bytes, not str"):
                await producer.send("t", "text")
            with pytest.raises(InvalidRecordError, match="UTF-8"):
                await producer.send("t", b"", headers=[("\ud800", b"")])
            with pytest.raises(InvalidRecordError, match="out of range"):
                await producer.send_and_wait("t", b"", timestamp_ms=1 << 80)
            assert (await producer.send_and_wait("t", bytearray(1500), partition=0)).offset == 0

    run(test)


def test_a_topic_that_may_not_be_used_or_does_not_exist_is_an_error_of_send(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing one only after a while, as it may just have been created."""
    monkeypatch.setattr("ottla.client.producer._MISSING_TOPIC_WAIT_S", 0.02)

    async def test() -> None:
        brokers = Brokers()
        brokers.errors = {"secret": 29, "missing": 3}
        async with producing(brokers) as producer:
            with pytest.raises(TopicAuthorizationFailedError, match="secret"):
                await producer.send("secret", b"")
            with pytest.raises(UnknownTopicOrPartitionError, match="missing"):
                await producer.send("missing", b"")

    run(test)


@pytest.mark.parametrize(("acks", "offset"), [(0, -1), (1, 0)])
def test_fewer_acks_do_without_idempotence(acks: int, offset: int) -> None:
    """Without any, nobody says where the record is."""

    async def test() -> None:
        brokers = Brokers()
        async with producing(brokers, acks=acks) as producer:
            metadata = await producer.send_and_wait("t", b"a", partition=0)
            await producer.send("t", b"b", partition=0)
            await producer.flush()
            # Answers come in order: what was sent before a request is done when it is answered.
            with pytest.raises(UnknownTopicOrPartitionError):
                await producer.send("t", b"", partition=99)

        assert metadata.offset == offset
        assert brokers.acks == {acks}
        assert {batch.producer_id for _, batch in brokers.batches} == {-1}

    run(test)


def test_batches_by_hand_are_written_as_they_are() -> None:
    """Until they are full."""

    async def test() -> None:
        brokers = Brokers()
        async with producing(brokers, max_batch_size=500) as producer:
            batch = producer.create_batch()
            indexes = []
            while (index := batch.append(value=bytes(50), key=b"k", timestamp=9, headers=[("h", b"")])) is not None:
                indexes.append(index)
            delivery = await producer.send_batch(batch, "t", partition=2)
            metadata = await delivery
            with pytest.raises(IllegalStateError, match="closed"):
                batch.append(value=b"")
            with pytest.raises(IllegalStateError, match="no records"):
                await producer.send_batch(producer.create_batch(), "t", partition=2)

        assert indexes == list(range(batch.record_count()))
        assert len(indexes) > 3
        assert (metadata.offset, metadata.partition, metadata.timestamp) == (0, 2, 9)
        assert [batch.record_count for _, batch in brokers.batches] == [len(indexes)]

    run(test)


def test_cancelling_who_waits_disturbs_nobody_else() -> None:
    """The record is written all the same."""

    async def test() -> None:
        brokers = Brokers()
        brokers.gate.clear()
        async with producing(brokers) as producer:
            delivery = await producer.send("t", b"", partition=0)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(delivery, 0.01)
            brokers.gate.set()
            assert (await delivery).offset == 0

    run(test)


def test_a_producer_works_between_start_and_stop_only() -> None:
    """What was sent before stop is written."""

    async def test() -> None:
        brokers = Brokers()
        with pytest.raises(ProducerClosed, match="async with"):
            await Producer().send("t", b"")
        async with producing(brokers) as producer:
            delivery = await producer.send("t", b"", partition=0)
            with pytest.raises(IllegalStateError):
                await producer.start()
        assert (await delivery).offset == 0
        with pytest.raises(ProducerClosed):
            await producer.send("t", b"")
        with pytest.raises(ProducerClosed):
            await producer.flush()

    run(test)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"acks": 2}, "acks is one of"),
        ({"acks": 1, "enable_idempotence": True}, "enable_idempotence needs acks='all'"),
        ({"max_in_flight_requests_per_connection": 6}, "at most 5"),
        ({"compression_type": "rar"}, "compression_type is one of"),
        ({"max_batch_size": 0}, "max_batch_size must be"),
        ({"buffer_memory": 1000}, "does not fit"),
        ({"linger_ms": 10, "delivery_timeout_ms": 5}, "less than linger_ms"),
        ({"linger": 1}, "did you mean linger_ms"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], reason: str) -> None:
    """When the producer is made."""
    with pytest.raises(KafkaConfigurationError, match=reason):
        Producer(**options)


def test_options_may_have_dotted_names() -> None:
    """Kafka's and librdkafka's."""
    settings = Producer.from_config(
        {"acks": "1", "batch.size": "5", "enable.idempotence": "false", "compression.codec": "lz4"}, linger_ms=7
    ).settings

    assert (settings.acks, settings.max_batch_size, settings.linger_ms) == (1, 5, 7)
    assert (settings.enable_idempotence, settings.compression_type) == (False, "lz4")
    assert Producer.from_config({"acks": "all"}).settings.acks == "all"
