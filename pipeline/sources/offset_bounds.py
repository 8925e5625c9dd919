"""Where a query begins and ends, as its options say it: JSON by topic and partition, a time, or an end of the log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ottla.pipeline.sources.errors import SourceOptionError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.list_offsets import EARLIEST, LATEST

Offsets: TypeAlias = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class End:
    """One end of every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class SpecificOffsets:
    """An offset for each partition, which may be one of the two ends."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A point in time for all partitions, in milliseconds since 1970."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Timestamps:
    """A point in time for each partition."""

    timestamps_ms: Offsets


Bound: TypeAlias = End | SpecificOffsets | Timestamp | Timestamps


def parse_bound(options: Mapping[str, str], side: str, default: int) -> Bound:
    """Read the bound of one side, `starting` or `ending`; of several, that which Spark's source prefers."""
    name = f"{side}Timestamp"
    if (text := options.get(name.lower())) is not None:
        if not text.strip().isdecimal():
            raise SourceOptionError(f"{name} is {text!r}; write milliseconds since 1970, such as 1767225600000.")
        return Timestamp(int(text))
    name = f"{side}OffsetsByTimestamp"
    if (text := options.get(name.lower())) is not None:
        return Timestamps(parse_offsets(name, text, minimum=0))
    name = f"{side}Offsets"
    text = options.get(name.lower(), "").strip()
    if not text:
        return End(default)
    if text.lower() in ("earliest", "latest"):
        return End(EARLIEST if text.lower() == "earliest" else LATEST)
    return SpecificOffsets(parse_offsets(name, text, minimum=EARLIEST))


def parse_offsets(name: str, text: str, minimum: int) -> dict[TopicPartition, int]:
    """Read `{"topic": {"0": 23}}`; SourceOptionError where it is something else."""
    shape = f'{name} must be JSON such as {{"topic": {{"0": 23, "1": 45}}}}'
    if name in ("startingOffsets", "endingOffsets"):
        shape += ", or earliest, or latest"
    document = _document(name, text, shape)
    offsets = {}
    for topic, rows in document.items():
        if not isinstance(rows, dict):
            raise SourceOptionError(f"{shape}; topic {topic!r} has {json.dumps(rows)}.")
        for number, offset in rows.items():
            if not number.isdecimal() or type(offset) is not int or offset < minimum:
                raise SourceOptionError(f"{shape}; topic {topic!r} has {json.dumps({number: offset})}.")
            offsets[TopicPartition(topic, int(number))] = offset
    return offsets


def parse_assign(text: str) -> frozenset[TopicPartition]:
    """Read `{"topic": [0, 1]}`; SourceOptionError where it is something else."""
    shape = 'assign must be JSON such as {"topic": [0, 1]}'
    assigned = set()
    for topic, numbers in _document("assign", text, shape).items():
        if not isinstance(numbers, list) or not all(type(number) is int and number >= 0 for number in numbers):
            raise SourceOptionError(f"{shape}; topic {topic!r} has {json.dumps(numbers)}.")
        assigned |= {TopicPartition(topic, number) for number in numbers}
    if not assigned:
        raise SourceOptionError(f"{shape}; it names no partition.")
    return frozenset(assigned)


def offsets_to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return offsets in the form of checkpoints, in one order always: Spark compares them as text."""
    document: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        document.setdefault(topic, {})[str(partition)] = offset
    return document


def offsets_from_json(document: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Read them back."""
    return {
        TopicPartition(topic, int(number)): offset
        for topic, rows in document.items()
        for number, offset in rows.items()
    }


def _document(name: str, text: str, shape: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        raise SourceOptionError(f"{shape}; it is {text!r}.") from None
    if not isinstance(document, dict):
        raise SourceOptionError(f"{shape}; it is {text!r}.")
    return document
