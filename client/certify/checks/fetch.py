"""Reading records: offsets, limits, waiting, sessions, epochs and times."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from ottla.client.certify.check import Checks, NotApplicable, expect, expect_error, expect_that
from ottla.client.certify.trial import FETCH_BYTES, Topic, Trial, batch_of, now_ms, whole_batches
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.fetch import (
    NO_SESSION,
    TOPIC_IDS_VERSION,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from ottla.protocol.messages.list_offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

CHECKS: Final = Checks("fetch", "Reading records")

_FETCH: Final = {Api.PRODUCE: 3, Api.FETCH: 4}
_SESSIONS: Final = {Api.PRODUCE: 3, Api.FETCH: 7}
_TIMES: Final = {Api.PRODUCE: 3, Api.LIST_OFFSETS: 1}
_WAIT_MS: Final = 400
# Far longer than a record takes that is written meanwhile.
_LONG_WAIT_MS: Final = 15_000
_CLOCK_ERROR_S: Final = 0.05
_UNKNOWN_ID: Final = b"ottla-certify-id"
_MINUTE_MS: Final = 60_000


@CHECKS.check(_FETCH)
async def inside_a_batch(trial: Trial) -> None:
    """An offset inside a batch returns the whole batch."""
    topic = await trial.topic()
    await trial.write(topic, b"0", b"1", b"2")
    row = await trial.fetch(topic, 1)
    expect_error("Fetch at offset 1", row.error_code, ErrorCode.NONE)
    (batch,) = whole_batches(row)
    expect("the offsets of the batch", (batch.base_offset, batch.last_offset), (0, 2))


@CHECKS.check(_FETCH)
async def at_the_end(trial: Trial) -> None:
    """At the end of the log there are no records and no error, and the answer names the high watermark."""
    topic = await trial.topic()
    await trial.write(topic, b"0", b"1")
    row = await trial.fetch(topic, 2, max_wait_ms=0)
    expect_error("Fetch at the end", row.error_code, ErrorCode.NONE)
    expect("the bytes of records", len(row.records or b""), 0)
    expect("the high watermark", row.high_watermark, 2)


@CHECKS.check(_FETCH)
async def out_of_range(trial: Trial) -> None:
    """An offset behind the end of the log is OFFSET_OUT_OF_RANGE."""
    topic = await trial.topic()
    await trial.write(topic, b"0")
    for offset in (2, 1 << 40):
        row = await trial.fetch(topic, offset)
        expect_error(f"offset {offset} of a log with one record", row.error_code, ErrorCode.OFFSET_OUT_OF_RANGE)


@CHECKS.check(_FETCH)
async def large_first_batch(trial: Trial) -> None:
    """The first batch is returned whole, also if it is larger than all limits of the request."""
    topic = await trial.topic()
    value = bytes(5000)
    await trial.write(topic, value)
    row = await trial.fetch(topic, 0, partition_max_bytes=100, max_bytes=100)
    expect("the batches", [batch.record_count for batch in whole_batches(row)], [1])


@CHECKS.check(_FETCH)
async def partition_limit(trial: Trial) -> None:
    """Beyond its first batch, a partition returns no more bytes than the request allows."""
    topic = await trial.topic()
    for _ in range(10):
        await trial.write(topic, bytes(1000))
    row = await trial.fetch(topic, 0, partition_max_bytes=3500)
    size = len(row.records or b"")
    expect_that(size <= 3500, "at most 3500 bytes", f"{size} bytes")
    expect_that(len(whole_batches(row)) >= 1, "at least one batch", "none")


@CHECKS.check(_FETCH)
async def request_limit(trial: Trial) -> None:
    """Beyond the first batch, all partitions together return no more bytes than the request allows."""
    topic = await trial.topic(partitions=4)
    for partition in range(4):
        for _ in range(3):
            await trial.write(topic, bytes(1000), partition=partition)
    leader = await trial.leader(topic)
    rows = [(topic, _row(number)) for number in _led_by(trial, topic, leader)]
    response = await trial.fetch_all(rows, node=leader, max_bytes=3500)
    sizes = [len(row.records or b"") for each in response.responses for row in each.partitions]
    expect_that(0 < sum(sizes) <= 3500, "at most 3500 bytes", f"{sum(sizes)} bytes")


@CHECKS.check(_FETCH)
async def every_partition(trial: Trial) -> None:
    """Each partition that is asked for is answered, with its own records."""
    topic = await trial.topic(partitions=4)
    for partition in range(4):
        await trial.write(topic, b"%d" % partition, partition=partition)
    leader = await trial.leader(topic)
    mine = _led_by(trial, topic, leader)
    response = await trial.fetch_all([(topic, _row(number)) for number in mine], node=leader)
    found = {row.partition_index: row for each in response.responses for row in each.partitions}
    expect("the partitions in the answer", sorted(found), mine)
    for number, row in found.items():
        values = [record.value for batch in whole_batches(row) for record in batch.records()]
        expect(f"the values of partition {number}", values, [b"%d" % number])


@CHECKS.check(_FETCH)
async def unknown_partition(trial: Trial) -> None:
    """An unknown partition is UNKNOWN_TOPIC_OR_PARTITION."""
    topic = await trial.topic()
    row = await trial.fetch(topic, 0, partition=7, node=await trial.leader(topic))
    expect_error("partition 7 of a topic with one", row.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@CHECKS.check({Api.FETCH: TOPIC_IDS_VERSION})
async def unknown_topic_id(trial: Trial) -> None:
    """An unknown topic id is UNKNOWN_TOPIC_ID."""
    topic = Topic(trial.name("unknown"), _UNKNOWN_ID, 1)
    row = await trial.fetch(topic, 0, node=trial.any_broker)
    expect_error("an unknown topic id", row.error_code, ErrorCode.UNKNOWN_TOPIC_ID)


@CHECKS.check(_FETCH)
async def waiting(trial: Trial) -> None:
    """A fetch without enough bytes waits as long as the request allows, and is then answered with what there is."""
    topic = await trial.topic()
    await trial.write(topic, b"0")
    begun = time.monotonic()
    row = await trial.fetch(topic, 0, max_wait_ms=_WAIT_MS, min_bytes=FETCH_BYTES)
    waited_s = time.monotonic() - begun
    expect_that(
        waited_s >= _WAIT_MS / 1000 - _CLOCK_ERROR_S,
        f"an answer after {_WAIT_MS} ms",
        f"after {waited_s * 1000:.0f} ms",
    )
    expect("the batches", len(whole_batches(row)), 1)


@CHECKS.check(_FETCH)
async def waking(trial: Trial) -> None:
    """A fetch that waits is answered as soon as a record is written."""
    topic = await trial.topic()
    begun = time.monotonic()
    reading = asyncio.create_task(trial.fetch(topic, 0, max_wait_ms=_LONG_WAIT_MS, lane="reader"))
    try:
        # The fetch is on its way first; if it is not, it finds the record at once, which is as good.
        await asyncio.sleep(_WAIT_MS / 1000)
        await trial.write(topic, b"0")
        row = await reading
    finally:
        reading.cancel()
    waited_s = time.monotonic() - begun
    expect_error("Fetch", row.error_code, ErrorCode.NONE)
    expect("the batches", len(whole_batches(row)), 1)
    expect_that(
        waited_s < _LONG_WAIT_MS / 1000 - 1, "an answer when the record is written", f"one after {waited_s:.1f} s"
    )


async def _session(trial: Trial, topic: Topic) -> int:
    """Open a session on all partitions of a topic; return its id."""
    leader = await trial.leader(topic)
    rows = [(topic, _row(number)) for number in _led_by(trial, topic, leader)]
    response = await trial.fetch_all(rows, node=leader, session_epoch=0, max_wait_ms=0)
    expect_error("opening a session", response.error_code, ErrorCode.NONE)
    if response.session_id == NO_SESSION:
        raise NotApplicable("the broker gives no fetch session: it has none left, or does not want to")
    listed = [row.partition_index for each in response.responses for row in each.partitions]
    expect("the partitions in the first answer", sorted(listed), _led_by(trial, topic, leader))
    return int(response.session_id)


async def _next_fetch(
    trial: Trial,
    topic: Topic,
    session_id: int,
    epoch: int,
    *partitions: FetchPartition,
    forgotten: tuple[int, ...] = (),
) -> Any:
    def build(version: int) -> FetchRequest:
        topics = [FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=list(partitions))]
        gone = [ForgottenTopic(topic=topic.name, topic_id=topic.topic_id, partitions=list(forgotten))]
        return FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            session_id=session_id,
            session_epoch=epoch,
            topics=topics if partitions else [],
            forgotten_topics_data=gone if forgotten else [],
        )

    return await trial.ask(Api.FETCH, build, node=await trial.leader(topic), final=True)


@CHECKS.check(_SESSIONS)
async def session(trial: Trial) -> None:
    """In a fetch session, an answer has only the partitions that changed, and none that was removed."""
    topic = await trial.topic(partitions=3)
    leader = await trial.leader(topic)
    session_id = await _session(trial, topic)
    mine = _led_by(trial, topic, leader)
    nothing = await _next_fetch(trial, topic, session_id, 1)
    expect_error("the second fetch", nothing.error_code, ErrorCode.NONE)
    expect("the partitions when nothing changed", _listed(nothing), [])
    await trial.write(topic, b"0", partition=mine[0])
    changed = await _next_fetch(trial, topic, session_id, 2)
    expect("the partitions after a write", _listed(changed), [mine[0]])
    gone = await _next_fetch(trial, topic, session_id, 3, forgotten=(mine[0],))
    expect("the partitions after the removal of one", mine[0] in _listed(gone), False)


@CHECKS.check(_SESSIONS)
async def session_epochs(trial: Trial) -> None:
    """A wrong epoch of a fetch session is INVALID_FETCH_SESSION_EPOCH, an unknown one FETCH_SESSION_ID_NOT_FOUND."""
    topic = await trial.topic()
    session_id = await _session(trial, topic)
    wrong = await _next_fetch(trial, topic, session_id, 7)
    expect_error("epoch 7 of a new session", wrong.error_code, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    unknown = await _next_fetch(trial, topic, (session_id + 1) % (1 << 31) or 1, 1)
    expect_error("an unknown session", unknown.error_code, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)


@CHECKS.check({Api.PRODUCE: 3, Api.FETCH: 9, Api.METADATA: 7})
async def leader_epoch(trial: Trial) -> None:
    """A leader epoch that is newer than that of the broker is UNKNOWN_LEADER_EPOCH; the current one is fine."""
    topic = await trial.topic()
    await trial.leader(topic)
    current = trial.leader_epoch(topic)
    row = await trial.fetch(topic, 0, current_leader_epoch=current, max_wait_ms=0)
    expect_error("the current leader epoch", row.error_code, ErrorCode.NONE)
    row = await trial.fetch(topic, 0, current_leader_epoch=current + 5)
    expect_error("a leader epoch of the future", row.error_code, ErrorCode.UNKNOWN_LEADER_EPOCH)


@CHECKS.check({Api.PRODUCE: 3, Api.OFFSET_FOR_LEADER_EPOCH: 2, Api.METADATA: 7})
async def end_of_epoch(trial: Trial) -> None:
    """OffsetForLeaderEpoch names the end of the log for the current epoch, and no offset for a later one."""
    topic = await trial.topic()
    await trial.write(topic, b"0", b"1", b"2")
    current = trial.leader_epoch(topic)
    for asked, epoch, end in ((current, current, 3), (current + 5, -1, -1)):
        row = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=asked)
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic.name, partitions=[row])]
        )
        response = await trial.ask(Api.OFFSET_FOR_LEADER_EPOCH, request, node=await trial.leader(topic), final=True)
        found = response.topics[0].partitions[0]
        expect_error(f"epoch {asked}", found.error_code, ErrorCode.NONE)
        expect(f"the end of epoch {asked}", (found.leader_epoch, found.end_offset), (epoch, end))


@CHECKS.check(_TIMES)
async def start_and_end(trial: Trial) -> None:
    """ListOffsets names the start and the end of a log."""
    topic = await trial.topic()
    await trial.write(topic, b"0", b"1")
    for what, expected in ((EARLIEST, 0), (LATEST, 2)):
        row = await trial.list_offset(topic, what)
        expect_error("ListOffsets", row.error_code, ErrorCode.NONE)
        expect(f"the offset for {what}", row.offset, expected)


@CHECKS.check(_TIMES)
async def by_time(trial: Trial) -> None:
    """ListOffsets by time names the first record that is as young; none if there is no such record."""
    topic = await trial.topic()
    start = now_ms() - 10 * _MINUTE_MS
    for number in range(3):
        row = await trial.produce(topic, batch_of(b"a", b"b", timestamp=start + number * _MINUTE_MS))
        expect_error("Produce", row.error_code, ErrorCode.NONE)
    for asked, offset, timestamp in (
        (start - 1, 0, start),
        (start + 1, 1, start + 1),
        (start + _MINUTE_MS, 2, start + _MINUTE_MS),
        (start + 2 * _MINUTE_MS + 2, -1, -1),
    ):
        row = await trial.list_offset(topic, asked)
        expect_error("ListOffsets", row.error_code, ErrorCode.NONE)
        found = (row.offset, row.timestamp)
        expect(f"offset and time for {asked - start} ms after the first record", found, (offset, timestamp))


@CHECKS.check({Api.PRODUCE: 3, Api.LIST_OFFSETS: 7})
async def largest_timestamp(trial: Trial) -> None:
    """ListOffsets names the record with the largest timestamp, wherever it is in the log."""
    topic = await trial.topic()
    start = now_ms() - 10 * _MINUTE_MS
    for number in (0, 2, 1):
        row = await trial.produce(topic, batch_of(b"a", timestamp=start + number * _MINUTE_MS))
        expect_error("Produce", row.error_code, ErrorCode.NONE)
    row = await trial.list_offset(topic, MAX_TIMESTAMP)
    expect_error("ListOffsets", row.error_code, ErrorCode.NONE)
    expect("offset and timestamp", (row.offset, row.timestamp), (1, start + 2 * _MINUTE_MS))


@CHECKS.check({Api.PRODUCE: 3, Api.LIST_OFFSETS: 4, Api.METADATA: 7})
async def epoch_of_list_offsets(trial: Trial) -> None:
    """ListOffsets with a leader epoch of the future is UNKNOWN_LEADER_EPOCH."""
    topic = await trial.topic()
    row = await trial.list_offset(topic, LATEST, current_leader_epoch=trial.leader_epoch(topic) + 5)
    expect_error("a leader epoch of the future", row.error_code, ErrorCode.UNKNOWN_LEADER_EPOCH)


def _row(partition: int, offset: int = 0) -> FetchPartition:
    return FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)


def _led_by(trial: Trial, topic: Topic, leader: int) -> list[int]:
    everything = range(topic.partitions)
    return [each for each in everything if trial.client.leader(TopicPartition(topic.name, each)) == leader]


def _listed(response: Any) -> list[int]:
    return sorted(row.partition_index for each in response.responses for row in each.partitions)
