"""Idempotent producers: no duplicates, no gaps, no late epochs."""

from __future__ import annotations

from typing import Final

from ottla.client.certify.check import Checks, expect, expect_error
from ottla.client.certify.trial import Trial, batch_of
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode

CHECKS: Final = Checks("idempotence", "Idempotent producers")

_NEEDED: Final = {Api.PRODUCE: 3, Api.FETCH: 4, Api.INIT_PRODUCER_ID: 0}
_BATCHES_KEPT: Final = 5


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
