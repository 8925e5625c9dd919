"""The options of reads and of sinks: what they mean, and what is said when they cannot work."""

from __future__ import annotations

import pytest

from ottla.pipeline.sources.errors import SourceOptionError
from ottla.pipeline.sources.offset_bounds import (
    End,
    SpecificOffsets,
    Timestamp,
    Timestamps,
    offsets_from_json,
    offsets_to_json,
)
from ottla.pipeline.sources.options import (
    ExactlyOnce,
    ReadOptions,
    TopicSubscription,
    parse_exactly_once,
    parse_read_options,
)
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.list_offsets import EARLIEST, LATEST

ORDERS = {"subscribe": "orders"}


def batch(**options: str) -> ReadOptions:
    """Read options of a batch query on one topic."""
    return parse_read_options({**ORDERS, **options}, streaming=False)


def stream(**options: str) -> ReadOptions:
    """Read options of a streaming query on one topic."""
    return parse_read_options({**ORDERS, **options}, streaming=True)


def test_batches_read_everything_and_streams_what_is_new() -> None:
    """The defaults are those of Spark's source."""
    assert batch().starting == End(EARLIEST)
    assert batch().ending == End(LATEST)
    assert stream().starting == End(LATEST)
    assert batch().fail_on_data_loss
    assert not batch().include_headers
    assert batch().poll_timeout_ms == 120_000


def test_topics_are_named_matched_or_assigned() -> None:
    """The three ways to say what to read."""
    named = parse_read_options({"Subscribe": "a, b"}, streaming=False).subscription
    matched = parse_read_options({"subscribePattern": "a.*"}, streaming=False).subscription
    assigned = parse_read_options({"assign": '{"a": [0, 2]}'}, streaming=False).subscription

    assert named == TopicSubscription(topics=frozenset("ab"))
    assert matched.matches(TopicPartition("abc", 0))
    assert not matched.matches(TopicPartition("ba", 0))
    assert assigned == TopicSubscription(partitions=frozenset({TopicPartition("a", 0), TopicPartition("a", 2)}))


def test_a_bound_is_an_end_offsets_or_times() -> None:
    """All forms of a bound, of which a time for all is preferred, then times, then offsets."""
    at = TopicPartition("orders", 0)

    assert batch(startingOffsets="Earliest").starting == End(EARLIEST)
    assert batch(startingOffsets='{"orders": {"0": 5}}').starting == SpecificOffsets({at: 5})
    assert batch(endingOffsets='{"orders": {"0": -1}}').ending == SpecificOffsets({at: LATEST})
    assert batch(startingOffsetsByTimestamp='{"orders": {"0": 9}}').starting == Timestamps({at: 9})
    assert batch(startingTimestamp="7", startingOffsets="earliest").starting == Timestamp(7)


def test_offsets_keep_one_order_as_json() -> None:
    """Spark compares the text of offsets, so equal ones must have equal text."""
    one = {TopicPartition("b", 1): 1, TopicPartition("a", 10): 2, TopicPartition("a", 9): 3}
    other = dict(reversed(one.items()))

    assert str(offsets_to_json(one)) == str(offsets_to_json(other)) == "{'a': {'9': 3, '10': 2}, 'b': {'1': 1}}"
    assert offsets_from_json(offsets_to_json(one)) == one


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({}, "one of the options subscribe, subscribePattern, assign; none"),
        ({"subscribe": "a", "assign": "{}"}, "subscribe and assign are set: keep one"),
        ({"subscribe": " , "}, "subscribe is empty"),
        ({"subscribePattern": "("}, "not a regular expression"),
        ({"assign": "a"}, 'JSON such as {"topic": [0, 1]}'),
        ({"assign": '{"a": ["0"]}'}, "topic 'a' has"),
        ({"assign": "{}"}, "names no partition"),
        ({**ORDERS, "startingOffsets": "first"}, "or earliest, or latest"),
        ({**ORDERS, "startingOffsets": '{"orders": {"0": -3}}'}, '{"0": -3}'),
        ({**ORDERS, "startingOffsets": '{"orders": 3}'}, "topic 'orders' has 3"),
        ({**ORDERS, "startingOffsets": "latest"}, "nothing would be read"),
        ({**ORDERS, "startingOffsets": '{"orders": {"0": -1}}'}, "nothing would be read"),
        ({**ORDERS, "endingOffsets": "earliest"}, "nothing would be read"),
        ({**ORDERS, "startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({**ORDERS, "startingTimestamp": "2", "endingTimestamp": "1"}, "is after endingTimestamp"),
        (
            {**ORDERS, "startingOffsets": '{"orders": {"0": 5}}', "endingOffsets": '{"orders": {"0": 3}}'},
            "begins at 5",
        ),
        ({**ORDERS, "startingOffsetsByTimestampStrategy": "soon"}, "write error or latest"),
        ({**ORDERS, "minPartitions": "0"}, "from 1"),
        ({**ORDERS, "maxRecordsPerPartition": "many"}, "whole number"),
        ({**ORDERS, "failOnDataLoss": "no"}, "true or false"),
        ({**ORDERS, "startingOffset": "earliest"}, "did you mean startingOffsets?"),
    ],
)
def test_wrong_options_of_a_batch_say_what_to_change(options: dict[str, str], advice: str) -> None:
    """Each message names the option and what to write."""
    with pytest.raises(SourceOptionError) as refused:
        parse_read_options(options, streaming=False)

    assert advice in str(refused.value)


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"endingTimestamp": "1"}, "a stream has no end"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "is more than maxOffsetsPerTrigger"),
        ({"maxTriggerDelay": "soon"}, "such as 90s"),
    ],
)
def test_wrong_options_of_a_stream_say_what_to_change(options: dict[str, str], advice: str) -> None:
    """The same for what only streams refuse."""
    with pytest.raises(SourceOptionError) as refused:
        stream(**options)

    assert advice in str(refused.value)


@pytest.mark.parametrize(
    ("text", "expected"), [("15m", 900_000), ("90s", 90_000), ("250", 250), ("2 h", 7_200_000), ("1min", 60_000)]
)
def test_a_trigger_delay_has_units(text: str, expected: int) -> None:
    """As Spark writes times."""
    assert stream(maxTriggerDelay=text).max_trigger_delay_ms == expected


def test_options_for_spark_itself_are_left_alone() -> None:
    """Spark passes its own options on to the source."""
    assert stream(checkpointLocation="/tmp", queryName="q", **{"fetchOffset.numRetries": "3"}).fail_on_data_loss


SINK = {"exactlyOnce": "true", "shards": "4"}


def test_a_sink_that_writes_exactly_once_has_a_name_and_a_number_for_each_batch() -> None:
    """A stream has its own; without the option, rows are written at least once."""
    batch = parse_exactly_once({**SINK, "sinkName": "nightly", "batchId": "0"}, streaming=False)

    assert batch == ExactlyOnce(shards=4, sink="nightly", batch=0)
    assert parse_exactly_once({**SINK, "failOnDataLoss": "false"}, streaming=True) == ExactlyOnce(
        shards=4, fail_on_data_loss=False
    )
    assert parse_exactly_once({}, streaming=True) is None


@pytest.mark.parametrize(
    ("options", "streaming", "advice"),
    [
        ({"shards": "4"}, True, "set exactlyOnce to true as well"),
        ({"exactlyOnce": "true"}, True, "shards is missing"),
        ({**SINK, "shards": "0"}, True, "from 1 to 1000"),
        ({**SINK, "sinkName": "nightly"}, True, "Remove sinkName"),
        (SINK, False, "sinkName is missing"),
        ({**SINK, "sinkName": "every night"}, False, "letters, digits"),
        ({**SINK, "sinkName": "nightly"}, False, "batchId is missing"),
        ({**SINK, "sinkName": "nightly", "batchId": "-1"}, False, "from 0"),
    ],
)
def test_wrong_options_of_a_sink_say_what_to_change(options: dict[str, str], streaming: bool, advice: str) -> None:
    """Each message names the option and what to write."""
    with pytest.raises(SourceOptionError) as refused:
        parse_exactly_once(options, streaming=streaming)

    assert advice in str(refused.value)
