"""Idempotent producers: no duplicates, no gaps, no late epochs. And the order of records, with and without them."""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.client.certify.check import Checks, expect, expect_error
from ottla.client.certify.trial import Topic, Trial, batch_of, produce_request
from ottla.protocol.api import Api
from ottla.protocol.codec import encode_parts
from ottla.protocol.errors import ErrorCode

CHECKS: Final = Checks("idempotence", "Idempotent producers and order")

_NEEDED: Final = {Api.PRODUCE: 3, Api.FETCH: 4, Api.INIT_PRODUCER_ID: 0}
_BATCHES_KEPT: Final = 5
_PIPELINED: Final = 50
_WRITERS: Final = 4


@CHECKS.check(_NEEDED)
async def producer_ids(trial: Trial) -> None:
    """Each idempotent producer gets a producer id of its own, with epoch 0."""
    made = [await trial.init_producer() for _ in range(5)]
    expect("the number of producer ids", len({each.producer_id for each in made}), 5)
    expect("the epochs", {each.producer_epoch for each in made}, {0})


@CHECKS.check(_NEEDED)
async def duplicates(trial: Trial) -> None:
    """Each of the last five batches, sent again, is acknowledged with its first offset and not written again."""
    topic = await trial.topic()
    producer = await trial.init_producer()
    batches = [
        batch_of(b"%d" % number, producer_id=producer.producer_id, producer_epoch=0, base_sequence=number)
        for number in range(_BATCHES_KEPT)
    ]
    for attempt in range(2):
        for number, batch in enumerate(batches):
            row = await trial.produce(topic, batch)
            again = "sent again" if attempt else "sent"
            expect_error(f"batch {number}, {again}", row.error_code, ErrorCode.NONE)
            expect(f"the offset of batch {number}, {again}", row.base_offset, number)
    expect("the end offset", await trial.end_offset(topic), _BATCHES_KEPT)


@CHECKS.check(_NEEDED)
async def gaps(trial: Trial) -> None:
    """A batch whose sequence leaves a gap is OUT_OF_ORDER_SEQUENCE_NUMBER, and is not written."""
    topic = await trial.topic()
    producer = await trial.init_producer()
    for sequence, code in ((0, ErrorCode.NONE), (2, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), (1, ErrorCode.NONE)):
        batch = batch_of(b"%d" % sequence, producer_id=producer.producer_id, producer_epoch=0, base_sequence=sequence)
        row = await trial.produce(topic, batch)
        expect_error(f"sequence {sequence}", row.error_code, code)
    expect("the values", await trial.values(topic, 2), [b"0", b"1"])
    expect("the end offset", await trial.end_offset(topic), 2)


@CHECKS.check(_NEEDED)
async def epochs(trial: Trial) -> None:
    """A higher epoch begins with sequence 0, and from then on the lower one is INVALID_PRODUCER_EPOCH."""
    topic = await trial.topic()
    producer = await trial.init_producer()
    steps = (
        (0, 0, ErrorCode.NONE),
        (1, 3, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (1, 0, ErrorCode.NONE),
        (0, 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, 1, ErrorCode.NONE),
    )
    for epoch, sequence, code in steps:
        batch = batch_of(b"value", producer_id=producer.producer_id, producer_epoch=epoch, base_sequence=sequence)
        row = await trial.produce(topic, batch)
        expect_error(f"sequence {sequence} of epoch {epoch}", row.error_code, code)
    expect("the end offset", await trial.end_offset(topic), 3)


@CHECKS.check(_NEEDED)
async def partitions_count_apart(trial: Trial) -> None:
    """Sequences are counted for each partition by itself."""
    topic = await trial.topic(partitions=2)
    producer = await trial.init_producer()
    for partition in (0, 1):
        batch = batch_of(b"value", producer_id=producer.producer_id, producer_epoch=0, base_sequence=0)
        row = await trial.produce(topic, batch, partition=partition)
        expect_error(f"sequence 0 in partition {partition}", row.error_code, ErrorCode.NONE)


@CHECKS.check({Api.PRODUCE: 3, Api.FETCH: 4})
async def order_of_a_connection(trial: Trial) -> None:
    """Writes that are sent without waiting for answers are written in the order of a connection."""
    topic = await trial.topic()
    offsets = await _pipelined(trial, topic, [b"%d" % number for number in range(_PIPELINED)])
    expect("the offsets in the answers", offsets, list(range(_PIPELINED)))
    values = await trial.values(topic, _PIPELINED)
    expect("the values in the log", values, [b"%d" % number for number in range(_PIPELINED)])


@CHECKS.check({Api.PRODUCE: 3, Api.FETCH: 4})
async def order_of_a_partition(trial: Trial) -> None:
    """Writers on several connections at once get offsets without gaps, and each keeps its own order."""
    topic = await trial.topic()

    async def write(writer: int) -> list[int]:
        values = [b"%d-%d" % (writer, number) for number in range(_PIPELINED)]
        return await _pipelined(trial, topic, values, lane=f"writer {writer}")

    offsets = await asyncio.gather(*(write(writer) for writer in range(_WRITERS)))
    count = _WRITERS * _PIPELINED
    expect("all offsets", sorted(offset for each in offsets for offset in each), list(range(count)))
    records = await trial.read(topic, count)
    expect("the offsets that are read", [each.offset for each in records], list(range(count)))
    for writer in range(_WRITERS):
        mine = [each.value for each in records if each.value.startswith(b"%d-" % writer)]
        expect(f"the values of writer {writer}", mine, [b"%d-%d" % (writer, number) for number in range(_PIPELINED)])


@CHECKS.check({Api.PRODUCE: 3, Api.FETCH: 4})
async def reading_again(trial: Trial) -> None:
    """Reading a partition twice, and from every offset, gives the same records."""
    topic = await trial.topic()
    for number in range(5):
        await trial.write(topic, b"%d-a" % number, b"%d-b" % number)
    everything = await trial.values(topic, 10)
    expect("the second reading", await trial.values(topic, 10), everything)
    for start in range(10):
        expect(f"the records from {start} on", await trial.values(topic, 10 - start, start=start), everything[start:])


async def _pipelined(trial: Trial, topic: Topic, values: list[bytes], lane: str = "") -> list[int]:
    """Write values one by one without waiting in between; return their offsets."""
    connection = await trial.client.connection(await trial.leader(topic), lane)
    version = connection.version(Api.PRODUCE)
    answers = [
        connection.submit(Api.PRODUCE, version, encode_parts(produce_request(topic.name, batch_of(value)), version))
        for value in values
    ]
    offsets = []
    for answer in await asyncio.gather(*answers):
        row = answer.responses[0].partition_responses[0]
        expect_error("Produce", row.error_code, ErrorCode.NONE)
        offsets.append(row.base_offset)
    return offsets
