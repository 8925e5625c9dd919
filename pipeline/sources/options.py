"""The options of a read, checked: the names, defaults and meanings of Spark's own Kafka source. `exactlyOnce` is ours.

Names arrive in lower case, as Spark does not tell them apart. What contradicts itself is refused where Spark's source
refuses it; where that has an order of preference, so have we.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.pipeline.sources.errors import SourceOptionError
from ottla.pipeline.sources.offset_bounds import (
    Bound,
    End,
    SpecificOffsets,
    Timestamp,
    parse_assign,
    parse_bound,
)
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.list_offsets import EARLIEST, LATEST

KAFKA_PREFIX: Final = "kafka."

_NAMES: Final = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "kafkaConsumer.pollTimeoutMs",
    "maxPartitionBytes",
    "topic",
    "exactlyOnce",
    "shards",
    "sinkName",
    "batchId",
    "path",
)
_SUBSCRIPTIONS: Final = ("subscribe", "subscribePattern", "assign")
_BOOLEANS: Final = {"true": True, "false": False}
_POLL_TIMEOUT_MS: Final = 120_000
_PARTITIONS_MAX: Final = 1_000_000
_SHARDS_MAX: Final = 1000
_LONG_MAX: Final = (1 << 63) - 1
_SINK_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,200}")
_TYPO_LIKENESS: Final = 0.85
_DELAY: Final = re.compile(r"(\d+)\s*(us|ms|s|m|min|h|d)?")
_DELAY_UNITS_MS: Final = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class TopicSubscription:
    """Which partitions to read: one of the three is given."""

    topics: frozenset[str] | None = None
    pattern: str | None = None
    partitions: frozenset[TopicPartition] | None = None

    def matches(self, partition: TopicPartition) -> bool:
        """Whether a partition is among those to read."""
        if self.topics is not None:
            return partition.topic in self.topics
        if self.partitions is not None:
            return partition in self.partitions
        return self.pattern is None or re.fullmatch(self.pattern, partition.topic) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What to read, and how it is divided among tasks."""

    subscription: TopicSubscription
    starting: Bound
    ending: Bound
    # Whether a time after the last record stands for the end of the log; an error otherwise.
    late_start_is_latest: bool = False
    fail_on_data_loss: bool = True
    include_headers: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    # How long a task waits for the next records of its range before it gives up.
    poll_timeout_ms: int = _POLL_TIMEOUT_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactlyOnce:
    """How rows are written exactly once."""

    shards: int
    # None for a stream, which has the id of its query and that of each batch.
    sink: str | None = None
    batch: int | None = None
    # Whether a batch that has other rows when it is repeated is an error.
    fail_on_data_loss: bool = True


def parse_read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Read the options of a query; SourceOptionError where they cannot work."""
    given = {name.lower(): value for name, value in options.items()}
    check_names(given)
    parsed = ReadOptions(
        subscription=parse_subscription(given),
        starting=parse_bound(given, "starting", LATEST if streaming else EARLIEST),
        ending=parse_bound(given, "ending", LATEST),
        late_start_is_latest=_choice(given, "startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
        fail_on_data_loss=parse_boolean(given, "failOnDataLoss", default=True),
        include_headers=parse_boolean(given, "includeHeaders", default=False),
        min_partitions=parse_count(given, "minPartitions", _PARTITIONS_MAX),
        max_records_per_partition=parse_count(given, "maxRecordsPerPartition"),
        max_offsets_per_trigger=parse_count(given, "maxOffsetsPerTrigger"),
        min_offsets_per_trigger=parse_count(given, "minOffsetsPerTrigger"),
        max_trigger_delay_ms=_delay_ms(given),
        poll_timeout_ms=parse_count(given, "kafkaConsumer.pollTimeoutMs") or _POLL_TIMEOUT_MS,
    )
    if streaming:
        _check_stream(given, parsed)
    else:
        _check_batch(parsed)
    return parsed


def parse_exactly_once(options: Mapping[str, str], *, streaming: bool) -> ExactlyOnce | None:
    """Read how rows are written; None where it is at least once."""
    given = {name.lower(): value for name, value in options.items()}
    if not parse_boolean(given, "exactlyOnce", default=False):
        for name in ("shards", "sinkName", "batchId"):
            if name.lower() in given:
                raise SourceOptionError(
                    f"{name} is for sinks that write exactly once: set exactlyOnce to true as well."
                )
        return None
    shards = parse_count(given, "shards", _SHARDS_MAX)
    if shards is None:
        raise SourceOptionError("shards is missing: write the number that sharded(frame, shards) was called with.")
    if streaming:
        for name in ("sinkName", "batchId"):
            if name.lower() in given:
                raise SourceOptionError(f"Remove {name}: a stream has the id of its query and the ids of its batches.")
    return ExactlyOnce(
        shards=shards,
        sink=None if streaming else _sink_name(given),
        batch=None if streaming else _batch_id(given),
        fail_on_data_loss=parse_boolean(given, "failOnDataLoss", default=True),
    )


def parse_subscription(given: Mapping[str, str]) -> TopicSubscription:
    """Read which topics are meant; exactly one way must be chosen."""
    named = [name for name in _SUBSCRIPTIONS if name.lower() in given]
    if len(named) != 1:
        found = f"{' and '.join(named)} are set: keep one of them" if named else "none of them is set"
        raise SourceOptionError(f"What to read is said by one of the options {', '.join(_SUBSCRIPTIONS)}; {found}.")
    text = given[named[0].lower()]
    if named[0] == "assign":
        return TopicSubscription(partitions=parse_assign(text))
    if named[0] == "subscribePattern":
        if not text.strip():
            raise SourceOptionError("subscribePattern is empty; write a regular expression for names of topics.")
        try:
            re.compile(text)
        except re.error as error:
            raise SourceOptionError(f"subscribePattern {text!r} is not a regular expression: {error}.") from None
        return TopicSubscription(pattern=text.strip())
    topics = frozenset(topic.strip() for topic in text.split(",") if topic.strip())
    if not topics:
        raise SourceOptionError("subscribe is empty; write the names of topics, with commas in between.")
    return TopicSubscription(topics=topics)


def check_names(given: Mapping[str, str]) -> None:
    """Refuse a name that is nearly one of ours; others may be for Spark itself."""
    known = {name.lower(): name for name in _NAMES}
    for name in given:
        if name not in known and not name.startswith(KAFKA_PREFIX):
            close = difflib.get_close_matches(name, known, n=1, cutoff=_TYPO_LIKENESS)
            if close:
                raise SourceOptionError(f"There is no option {name!r}; did you mean {known[close[0]]}?")


def parse_boolean(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Read true or false."""
    text = given.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() not in _BOOLEANS:
        raise SourceOptionError(f"{name} is {text!r}; write true or false.")
    return _BOOLEANS[text.strip().lower()]


def parse_count(given: Mapping[str, str], name: str, maximum: int = _LONG_MAX, *, minimum: int = 1) -> int | None:
    """Read a whole number, which is at least 1 by default; None where it is not given."""
    text = given.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdecimal() or not minimum <= int(text) <= maximum:
        raise SourceOptionError(f"{name} is {text!r}; write a whole number from {minimum} to {maximum}.")
    return int(text)


def _sink_name(given: Mapping[str, str]) -> str:
    name = given.get("sinkname")
    if name is None:
        raise SourceOptionError("sinkName is missing: a batch that is written exactly once needs a name for its job.")
    if _SINK_NAME.fullmatch(name) is None:
        raise SourceOptionError(f"sinkName is {name!r}; write up to 200 letters, digits, dots, dashes and underscores.")
    return name


def _batch_id(given: Mapping[str, str]) -> int:
    number = parse_count(given, "batchId", minimum=0)
    if number is None:
        raise SourceOptionError(
            "batchId is missing: write a number that is the same when this batch is repeated, and higher for the next."
        )
    return number


def _choice(given: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    text = given.get(name.lower(), choices[0]).strip().lower()
    if text not in choices:
        raise SourceOptionError(f"{name} is {text!r}; write {' or '.join(choices)}.")
    return text


def _delay_ms(given: Mapping[str, str]) -> int:
    text = given.get("maxtriggerdelay", "15m").strip().lower()
    match = _DELAY.fullmatch(text)
    if match is None:
        raise SourceOptionError(f"maxTriggerDelay is {text!r}; write a time such as 90s, 15m or 1h.")
    return int(int(match[1]) * _DELAY_UNITS_MS[match[2] or "ms"])


def _check_stream(given: Mapping[str, str], parsed: ReadOptions) -> None:
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        if name.lower() in given:
            raise SourceOptionError(f"{name} is for batch queries: a stream has no end. Remove it, or use spark.read.")
    most, least = parsed.max_offsets_per_trigger, parsed.min_offsets_per_trigger
    if most is not None and least is not None and least > most:
        raise SourceOptionError(f"minOffsetsPerTrigger ({least}) is more than maxOffsetsPerTrigger ({most}).")


def _check_batch(parsed: ReadOptions) -> None:
    starting, ending = parsed.starting, parsed.ending
    if starting == End(LATEST) or (isinstance(starting, SpecificOffsets) and LATEST in starting.offsets.values()):
        raise SourceOptionError("startingOffsets of a batch query cannot be latest (-1): nothing would be read.")
    if ending == End(EARLIEST) or (isinstance(ending, SpecificOffsets) and EARLIEST in ending.offsets.values()):
        raise SourceOptionError("endingOffsets of a batch query cannot be earliest (-2): nothing would be read.")
    if (
        isinstance(starting, Timestamp)
        and isinstance(ending, Timestamp)
        and starting.timestamp_ms > ending.timestamp_ms
    ):
        raise SourceOptionError("startingTimestamp is after endingTimestamp: change one of them.")
    if isinstance(starting, SpecificOffsets) and isinstance(ending, SpecificOffsets):
        for partition, begin in starting.offsets.items():
            end = ending.offsets.get(partition, LATEST)
            if 0 <= end < begin:
                raise SourceOptionError(
                    f"{partition} begins at {begin} (startingOffsets) and ends at {end} (endingOffsets)."
                )
