"""How a stream goes from trigger to trigger, on a cluster that is a few numbers."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from tests.kit.clock import FakeClock
from tests.pipeline.fake_cluster import FakeCluster

from ottla.pipeline.sources import topic_stream
from ottla.pipeline.sources.errors import DataLossError, SourceOptionError
from ottla.pipeline.sources.offset_ranges import OffsetRange
from ottla.pipeline.sources.options import parse_read_options
from ottla.pipeline.sources.topic_reader import RangePartition
from ottla.pipeline.sources.topic_stream import TopicStreamReader
from ottla.protocol.identifiers import TopicPartition

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock[float]:
    """The time of the streams."""
    made = FakeClock(100.0)
    monkeypatch.setattr(topic_stream, "time", made)
    return made


class Stream(TopicStreamReader):
    """A reader on a cluster that is not there."""

    def __init__(self, cluster: FakeCluster, **options: str) -> None:
        given = options if "subscribePattern" in options else {"subscribe": "t", **options}
        super().__init__({}, parse_read_options(given, streaming=True))
        self.cluster = cluster

    def _cluster(self) -> FakeCluster:
        return self.cluster

    def ranges(self, start: dict[str, Any], end: dict[str, Any]) -> list[OffsetRange]:
        """The work of the tasks between two offsets."""
        return [each.offsets for each in self.partitions(start, end) if isinstance(each, RangePartition)]

    def next(self, start: dict[str, Any]) -> dict[str, Any]:
        """Where the next trigger ends, with the limit that the reader wants."""
        return self.latestOffset(start, self.getDefaultReadLimit())


def two(first: int = 10, second: int = 20) -> FakeCluster:
    """Two partitions of some length."""
    return FakeCluster({ZERO: (0, first), ONE: (0, second)})


@pytest.mark.usefixtures("clock")
def test_a_trigger_reads_what_came_since_the_last() -> None:
    """From the checkpoint's offsets to the ends of the logs."""
    stream = Stream(two())
    start = stream.initialOffset()
    stream.cluster.logs[ONE] = (0, 25)
    end = stream.next(start)

    assert start == {"t": {"0": 10, "1": 20}}
    assert stream.ranges(start, end) == [OffsetRange(ONE, 20, 25)]
    assert stream.next(end) == end


@pytest.mark.usefixtures("clock")
def test_a_trigger_takes_no_more_than_its_limit() -> None:
    """Shared out among partitions; a trigger that shall take all does."""
    stream = Stream(two(), startingOffsets="earliest", maxOffsetsPerTrigger="6")
    start = stream.initialOffset()

    assert stream.getDefaultReadLimit() == ReadMaxRows(6)
    assert stream.next(start) == {"t": {"0": 2, "1": 4}}
    assert stream.latestOffset(start, ReadAllAvailable()) == {"t": {"0": 10, "1": 20}}


def test_a_trigger_waits_for_its_minimum_but_not_for_ever(clock: FakeClock[float]) -> None:
    """The first does not wait; later ones do, until enough is there or the delay is over."""
    stream = Stream(two(), startingOffsets="earliest", minOffsetsPerTrigger="10", maxTriggerDelay="1m")
    first = stream.next(stream.initialOffset())
    stream.cluster.logs[ZERO] = (0, 15)

    assert stream.getDefaultReadLimit() == ReadMinRows(10)
    assert first == {"t": {"0": 10, "1": 20}}
    assert stream.next(first) == first
    stream.cluster.logs[ZERO] = (0, 20)
    second = stream.next(first)
    assert second == {"t": {"0": 20, "1": 20}}
    stream.cluster.logs[ZERO] = (0, 21)
    assert stream.next(second) == second
    clock.now += 61
    assert stream.next(second) == {"t": {"0": 21, "1": 20}}


@pytest.mark.usefixtures("clock")
def test_new_partitions_are_read_from_their_beginning() -> None:
    """Those of a topic that grows, and of a topic that is new under a pattern."""
    stream = Stream(FakeCluster({ZERO: (0, 10)}), subscribePattern=".*")
    start = stream.initialOffset()
    other = TopicPartition("u", 0)
    stream.cluster.logs |= {ONE: (0, 4), other: (0, 2)}
    end = stream.next(start)

    assert stream.ranges(start, end) == [OffsetRange(ONE, 0, 4), OffsetRange(other, 0, 2)]


@pytest.mark.usefixtures("clock")
def test_a_new_partition_that_lacks_its_beginning_is_a_loss() -> None:
    """Its first records were deleted before anybody read them."""
    cluster = FakeCluster({ZERO: (0, 10), ONE: (3, 4)})
    start, end = {"t": {"0": 10}}, {"t": {"0": 10, "1": 4}}

    with pytest.raises(DataLossError, match="t-1 is new and begins at offset 3"):
        Stream(cluster).ranges(start, end)
    assert Stream(cluster, failOnDataLoss="false").ranges(start, end) == [OffsetRange(ONE, 3, 4)]


@pytest.mark.usefixtures("clock")
def test_partitions_that_disappear_are_a_loss() -> None:
    """An error, or passed over."""
    for fails in (True, False):
        stream = Stream(two(), subscribePattern="t", failOnDataLoss=str(fails).lower())
        start = stream.initialOffset()
        del stream.cluster.logs[ONE]
        end = stream.next(start)

        assert end == {"t": {"0": 10}}
        if fails:
            with pytest.raises(DataLossError, match="t-1 cannot be found any more"):
                stream.ranges(start, end)
        else:
            assert stream.ranges(start, end) == []


@pytest.mark.usefixtures("clock")
def test_a_log_that_became_shorter_is_a_loss() -> None:
    """As when a topic was deleted and made anew."""
    stream = Stream(two())
    start = stream.initialOffset()
    stream.cluster.logs[ZERO] = (0, 4)

    with pytest.raises(DataLossError, match="t-0 was read up to offset 10, and now ends at 4"):
        stream.ranges(start, stream.next(start))


@pytest.mark.usefixtures("clock")
def test_available_now_ends_where_the_logs_ended_at_its_start() -> None:
    """In steps of its limit, and without waiting for a minimum."""
    stream = Stream(two(6, 0), startingOffsets="earliest", maxOffsetsPerTrigger="4", minOffsetsPerTrigger="3")
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    stream.cluster.logs[ZERO] = (0, 100)
    first = stream.next(start)
    second = stream.next(first)

    assert first == {"t": {"0": 4, "1": 0}}
    assert second == {"t": {"0": 6, "1": 0}}
    assert stream.next(second) == second


@pytest.mark.usefixtures("clock")
def test_available_now_notices_a_log_that_became_shorter() -> None:
    """An error, or the stream goes on from the new end."""
    start = {"t": {"0": 10, "1": 20}}
    for fails in (True, False):
        stream = Stream(two(4, 20), failOnDataLoss=str(fails).lower())
        stream.prepareForTriggerAvailableNow()
        end = stream.next(start)

        assert end == {"t": {"0": 4, "1": 20}}
        if fails:
            with pytest.raises(DataLossError, match="t-0 was read up to offset 10, and now ends at 4"):
                stream.ranges(start, end)
        else:
            assert stream.ranges(start, end) == []
            assert stream.next(end) == end


@pytest.mark.usefixtures("clock")
def test_a_stream_on_a_missing_topic_says_so() -> None:
    """Before it begins."""
    with pytest.raises(SourceOptionError, match="There is no topic t"):
        Stream(FakeCluster({})).initialOffset()
