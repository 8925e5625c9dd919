"""From options to offsets, on a cluster that is a few numbers."""

from __future__ import annotations

import pytest
from tests.pipeline.fake_cluster import FakeCluster

from ottla.pipeline.sources.errors import DataLossError, SourceOptionError
from ottla.pipeline.sources.offset_planning import batch_ranges, existing_partitions, starting_offsets
from ottla.pipeline.sources.offset_ranges import OffsetRange
from ottla.pipeline.sources.options import parse_read_options
from ottla.protocol.identifiers import TopicPartition

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


def planned(cluster: FakeCluster, **options: str) -> list[OffsetRange]:
    """The ranges of a batch query."""
    chosen = options if {"assign", "subscribePattern"} & options.keys() else {"subscribe": "t", **options}
    return batch_ranges(cluster, parse_read_options(chosen, streaming=False))


def cluster() -> FakeCluster:
    """Two partitions; the records of one begin at offset 3. Offsets are times, too."""
    return FakeCluster({ZERO: (0, 10), ONE: (3, 20)})


def test_a_batch_reads_from_end_to_end() -> None:
    """Without options, all that is there."""
    assert planned(cluster()) == [OffsetRange(ZERO, 0, 10), OffsetRange(ONE, 3, 20)]


def test_offsets_are_named_for_each_partition() -> None:
    """Numbers stand for themselves, -2 and -1 for the ends."""
    starting, ending = '{"t": {"0": 4, "1": -2}}', '{"t": {"0": -1, "1": 7}}'

    assert planned(cluster(), startingOffsets=starting, endingOffsets=ending) == [
        OffsetRange(ZERO, 4, 10),
        OffsetRange(ONE, 3, 7),
    ]


def test_times_are_looked_up() -> None:
    """An ending time after the last record is the end of the log."""
    assert planned(cluster(), startingTimestamp="5", endingTimestamp="12") == [
        OffsetRange(ZERO, 5, 10),
        OffsetRange(ONE, 5, 12),
    ]


def test_a_starting_time_after_the_last_record_is_an_error_unless_that_may_be() -> None:
    """The strategy decides."""
    with pytest.raises(SourceOptionError, match="startingOffsetsByTimestampStrategy"):
        planned(cluster(), startingTimestamp="15")

    late = planned(cluster(), startingTimestamp="15", startingOffsetsByTimestampStrategy="latest")
    assert late == [OffsetRange(ZERO, 10, 10), OffsetRange(ONE, 15, 20)]


def test_patterns_and_assignments_choose_partitions() -> None:
    """Others of the cluster are left alone."""
    assert planned(cluster(), assign='{"t": [1]}') == [OffsetRange(ONE, 3, 20)]
    assert planned(cluster(), subscribePattern="u.*") == []


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"subscribe": "t,missing"}, "There is no topic missing"),
        ({"assign": '{"t": [0, 5]}'}, "There is no partition t-5"),
        ({"subscribe": "t", "startingOffsets": '{"t": {"0": 1}}'}, "startingOffsets lacks partition t-1"),
        ({"subscribe": "t", "endingOffsets": '{"t": {"0": 1, "1": 4, "2": 1}}'}, "names partition t-2"),
    ],
)
def test_what_does_not_fit_the_cluster_is_told(options: dict[str, str], advice: str) -> None:
    """Each message names the topic or partition."""
    with pytest.raises(SourceOptionError) as refused:
        batch_ranges(cluster(), parse_read_options(options, streaming=False))

    assert advice in str(refused.value)


def test_offsets_that_are_not_there_are_a_loss_of_data() -> None:
    """An error that names what there is, or what is left where losses are allowed."""
    options = {"startingOffsets": '{"t": {"0": 4, "1": 0}}', "endingOffsets": '{"t": {"0": 50, "1": 7}}'}
    with pytest.raises(DataLossError, match=r"t-0 has offsets 0 to 10, not 4 to 50.*failOnDataLoss"):
        planned(cluster(), **options)

    assert planned(cluster(), failOnDataLoss="false", **options) == [
        OffsetRange(ZERO, 4, 10),
        OffsetRange(ONE, 3, 7),
    ]


def test_a_stream_begins_at_the_end() -> None:
    """Its default, for all partitions that exist."""
    options = parse_read_options({"subscribe": "t"}, streaming=True)
    there = existing_partitions(cluster(), options.subscription)

    assert starting_offsets(cluster(), options, there) == {ZERO: 10, ONE: 20}
