"""The order of records in a partition, as producers write them and consumers read them."""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.client.certify.check import Checks, expect, expect_error
from ottla.client.certify.trial import Topic, Trial, batch_of, produce_request
from ottla.protocol.api import Api
from ottla.protocol.codec import encode_parts
from ottla.protocol.errors import ErrorCode

CHECKS: Final = Checks("order", "The order of records")

_NEEDED: Final = {Api.PRODUCE: 3, Api.FETCH: 4}
_PIPELINED: Final = 50
_WRITERS: Final = 4


@CHECKS.check(_NEEDED)
async def of_a_connection(trial: Trial) -> None:
    """Writes that are sent without waiting for answers are written in the order of a connection."""
    topic = await trial.topic()
    offsets = await _pipelined(trial, topic, [b"%d" % number for number in range(_PIPELINED)])
    expect("the offsets in the answers", offsets, list(range(_PIPELINED)))
    values = await trial.values(topic, _PIPELINED)
    expect("the values in the log", values, [b"%d" % number for number in range(_PIPELINED)])


@CHECKS.check(_NEEDED)
async def of_a_partition(trial: Trial) -> None:
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


@CHECKS.check(_NEEDED)
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
