"""The measurements of `ottla bench`, with the same client that users have.

With a rate, the latency of a record counts from when it was due, not from when it was sent. So a stall of the broker
counts for every record that had to wait. Without a rate, records go out as fast as possible, and only some are timed.
"""

from __future__ import annotations

import asyncio
import os
import time
from array import array
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ottla.client.admin.results import Result
from ottla.client.cli.terminal.progress import Tell, untold
from ottla.client.consumer.consumer import Consumer
from ottla.client.errors import KafkaTimeoutError, UnknownTopicOrPartitionError
from ottla.client.producer.producer import Producer
from ottla.client.producer.producer_batch import Delivery
from ottla.protocol.identifiers import TopicPartition

PERCENTILES: Final = {"p50": 0.50, "p95": 0.95, "p99": 0.99, "p99_9": 0.999, "max": 1.0}
# The first bytes of a record in an end-to-end measurement: the id of the run, and the record's number.
RUN_BYTES: Final = 8
STAMP_BYTES: Final = 16
_SAMPLES_MAX: Final = 1_000_000
_UNTIMED_BETWEEN: Final = 50
_EVERY_RECORD_RATE_MAX: Final = 1_000
# How many records are sent before the event loop gets a turn.
_BURST: Final = 500
_POLL_MS: Final = 200


@dataclass(frozen=True, slots=True)
class Load:
    """What to send: a number of records, or for a time; the first limit ends the run."""

    records: int | None
    seconds: float | None
    size_bytes: int
    rate: float | None

    @property
    def timed_every(self) -> int:
        """Every how many records one is timed."""
        return 1 if self.rate is not None and self.rate <= _EVERY_RECORD_RATE_MAX else _UNTIMED_BETWEEN


@dataclass(frozen=True, slots=True)
class Measured(Result):
    """The result; `latency_ms` is by percentile, and None if nothing was timed."""

    topic: str
    records: int
    bytes: int
    seconds: float
    records_per_s: float
    mb_per_s: float
    latency_ms: dict[str, float] | None

    @classmethod
    def of(cls, topic: str, records: int, size_bytes: int, seconds: float, samples: Sequence[float] = ()) -> Measured:
        """Compute the rates; `samples` are in seconds."""
        seconds = max(seconds, 1e-9)
        rates = round(records / seconds, 1), round(size_bytes / seconds / 1e6, 3)
        return cls(topic, records, size_bytes, round(seconds, 3), *rates, percentiles(samples))


def percentiles(samples: Sequence[float]) -> dict[str, float] | None:
    """Return milliseconds by percentile: the smallest value that this share of the samples does not exceed."""
    if not samples:
        return None
    ordered = sorted(samples)
    last = len(ordered) - 1
    return {
        name: round(ordered[min(last, max(0, -int(-part * len(ordered) // 1) - 1))] * 1000, 3)
        for name, part in PERCENTILES.items()
    }


async def _due_times(load: Load) -> AsyncIterator[tuple[int, float]]:
    """Yield the number and the due time of each record, as soon as it is due."""
    started = time.perf_counter()
    number = 0
    while load.records is None or number < load.records:
        now = time.perf_counter()
        after = now - started if load.rate is None else number / load.rate
        if load.seconds is not None and max(now - started, after) >= load.seconds:
            return
        due = started + after
        if due > now:
            await asyncio.sleep(due - now)
        elif number % _BURST == 0:
            await asyncio.sleep(0)
        yield number, due
        number += 1


async def measure_produce(settings: dict[str, Any], topic: str, load: Load, tell: Tell = untold) -> Measured:
    """Write records; a latency ends with the acknowledgement. Calls `tell` with the count from time to time."""
    value = os.urandom(load.size_bytes)
    samples = array("d")
    written = 0
    unacknowledged: deque[Delivery] = deque()

    def acknowledge() -> None:
        """Count the records that were written, in order; raise the error of the first one that was not."""
        nonlocal written
        while unacknowledged and unacknowledged[0].done():
            unacknowledged.popleft().result()
            written += 1

    def timed(due: float, delivery: Delivery) -> None:
        if delivery.exception() is None:
            samples.append(time.perf_counter() - due)

    async with Producer(**settings) as producer:
        await producer.partitions_for(topic)
        started = time.perf_counter()
        async for number, due in _due_times(load):
            delivery = await producer.send(topic, value)
            unacknowledged.append(delivery)
            if number % load.timed_every == 0 and number // load.timed_every < _SAMPLES_MAX:
                delivery.add_done_callback(partial(timed, due))
            if number % _BURST == 0:
                acknowledge()
                tell(written)
        await producer.flush()
        seconds = time.perf_counter() - started
        acknowledge()
    return Measured.of(topic, written, written * load.size_bytes, seconds, samples)


async def measure_consume(
    settings: dict[str, Any], topic: str, records: int | None, seconds: float | None, tell: Tell = untold
) -> Measured:
    """Read a topic from its start to the end that it had when the read began."""
    taken = size_bytes = 0
    async with Consumer(**settings) as consumer:
        partitions = await _partitions(consumer, topic)
        ends = await consumer.end_offsets(partitions)
        starts = await consumer.beginning_offsets(partitions)
        left = {each for each in partitions if starts[each] < ends[each]}
        consumer.assign(left)
        for each in left:
            consumer.seek(each, starts[each])
        started = time.perf_counter()
        while left and (records is None or taken < records):
            if seconds is not None and time.perf_counter() - started >= seconds:
                break
            wanted = None if records is None else records - taken
            got = await consumer.getmany(timeout_ms=_POLL_MS, max_records=wanted)
            for some in got.values():
                taken += len(some)
                size_bytes += sum(max(0, each.serialized_value_size) for each in some)
            tell(taken)
            left = {each for each in left if await consumer.position(each) < ends[each]}
        took = time.perf_counter() - started
    return Measured.of(topic, taken, size_bytes, took)


async def measure_end_to_end(
    settings: dict[str, Any], options: dict[str, Any], topic: str, load: Load, tell: Tell = untold
) -> Measured:
    """Write records and read them back; a latency ends when a consumer has the record. The producer gets `options`."""
    run = os.urandom(RUN_BYTES)
    padding = os.urandom(load.size_bytes - STAMP_BYTES)
    due_times = array("d")
    samples = array("d")
    is_sent = False

    async def send(producer: Producer) -> None:
        nonlocal is_sent
        async for number, due in _due_times(load):
            due_times.append(due)
            await producer.send(topic, run + number.to_bytes(STAMP_BYTES - RUN_BYTES, "big") + padding)
        await producer.flush()
        is_sent = True

    async def receive(consumer: Consumer) -> None:
        heard_at = time.perf_counter()
        while not (is_sent and len(samples) >= len(due_times)):
            for some in (await consumer.getmany(timeout_ms=_POLL_MS)).values():
                now = heard_at = time.perf_counter()
                for record in some:
                    if record.value is not None and record.value.startswith(run):
                        number = int.from_bytes(record.value[RUN_BYTES:STAMP_BYTES], "big")
                        samples.append(now - due_times[number])
            tell(len(samples))
            if is_sent and (time.perf_counter() - heard_at) * 1000 > consumer.settings.default_api_timeout_ms:
                raise KafkaTimeoutError(f"{len(due_times) - len(samples)} records were written and did not come back")

    async with Producer(**(settings | options)) as producer, Consumer(**settings) as consumer:
        await producer.partitions_for(topic)
        partitions = await _partitions(consumer, topic)
        ends = await consumer.end_offsets(partitions)
        consumer.assign(partitions)
        for each in partitions:
            consumer.seek(each, ends[each])
        started = time.perf_counter()
        await asyncio.gather(send(producer), receive(consumer))
        seconds = time.perf_counter() - started
    return Measured.of(topic, len(samples), len(samples) * load.size_bytes, seconds, samples)


async def _partitions(consumer: Consumer, topic: str) -> list[TopicPartition]:
    found = await consumer.partitions_for_topic(topic)
    if not found:
        raise UnknownTopicOrPartitionError(f"there is no topic {topic!r}")
    return [TopicPartition(topic, each) for each in sorted(found)]
