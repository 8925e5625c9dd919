"""Records: read, followed and exported."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ottla.client.schema.decoding import DecodeAs, Decoder
from ottla.console.problems import Problem
from ottla.console.records.filters import LENGTH_MAX, Filter, FilterError
from ottla.console.records.reading import EndLine, ProgressLine, Reading, RecordLine, RecordStream
from ottla.console.web.call import Call

FilterText = Annotated[
    str, Meta(max_length=LENGTH_MAX, description='Such as value["user"] == "alice" and offset > 10.')
]
FromText = Annotated[
    str,
    Meta(max_length=64, description="start, end, an offset, -N (the last N), @TIME: ISO 8601, milliseconds or -5m."),
]
_EXPORT_MAX = 1_000_000


class RecordsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename={"start": "from"}):
    """Which records to read, and how to show them."""

    start: FromText = "-50"
    partition: Annotated[list[int], Meta(description="Only these partitions.")] = []
    positions: Annotated[
        str, Meta(max_length=20_000, description="Go on from these offsets instead: 0:17,1:4 (partition:offset).")
    ] = ""
    limit: Annotated[int, Meta(ge=1, le=5_000)] = 50
    follow: Annotated[bool, Meta(description="Go on with new records until the client goes away.")] = False
    filter: FilterText = ""
    decode_key: DecodeAs = "auto"
    decode_value: DecodeAs = "auto"
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    per_second: Annotated[int, Meta(ge=1, le=5_000, description="How many to show a second with follow.")] = 200
    value_bytes: Annotated[int, Meta(ge=0, le=8_388_608, description="How much of a value to return.")] = 65_536


class ExportQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename={"start": "from"}):
    """Which records to export."""

    start: FromText = "start"
    partition: list[int] = []
    limit: Annotated[int, Meta(ge=1, le=_EXPORT_MAX)] = 10_000
    filter: FilterText = ""
    decode_key: DecodeAs = "auto"
    decode_value: DecodeAs = "auto"
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"


async def read_records(
    call: Call, topic: str, query: RecordsQuery
) -> AsyncIterator[list[RecordLine | ProgressLine | EndLine]]:
    """Read records from an offset or a time on, or follow new ones; one JSON object per line."""
    reading = Reading(
        topic=topic,
        partitions=query.partition,
        start=query.start,
        positions=_positions(query.positions),
        limit=query.limit,
        follow=query.follow,
        filter=filter_of(query.filter),
        decode_key=query.decode_key,
        decode_value=query.decode_value,
        read_committed=query.isolation == "read_committed",
        per_second=query.per_second,
    )
    decoder = Decoder(call.sessions.registry, query.value_bytes)
    async with contextlib.aclosing(RecordStream(call.user.client, decoder, reading).lines()) as parts:
        async for lines in parts:
            yield lines


async def export_records(call: Call, topic: str, query: ExportQuery) -> AsyncIterator[list[RecordLine | EndLine]]:
    """Export records as a file with one JSON object per line; the last line says whether that was all."""
    call.reply.filename = f"{topic}.ndjson"
    positions = None
    left = query.limit
    while left > 0:
        reading = Reading(
            topic=topic,
            partitions=query.partition,
            start=query.start,
            positions=positions,
            limit=left,
            filter=filter_of(query.filter),
            decode_key=query.decode_key,
            decode_value=query.decode_value,
            read_committed=query.isolation == "read_committed",
        )
        decoder = Decoder(call.sessions.registry, 8 * 1024 * 1024)
        end: EndLine | None = None
        async with contextlib.aclosing(RecordStream(call.user.client, decoder, reading).lines()) as parts:
            async for lines in parts:
                records = [line for line in lines if isinstance(line, RecordLine)]
                left -= len(records)
                if records:
                    yield list(records)
                end = next((line for line in lines if isinstance(line, EndLine)), end)
        if end is None or end.reason in ("end", "limit"):
            yield [end] if end is not None else []
            return
        positions = {int(number): int(offset) for number, offset in end.positions.items()}


def filter_of(text: str) -> Filter | None:
    """Return a filter, or None for an empty one; Problem if it is not valid."""
    if not text.strip():
        return None
    try:
        return Filter(text)
    except FilterError as error:
        raise Problem(400, "The filter is not valid", str(error)) from error


def _positions(text: str) -> dict[int, int] | None:
    if not text:
        return None
    found = {}
    for part in text.split(","):
        number, colon, offset = part.partition(":")
        if not (colon and number.isdigit() and offset.isdigit()):
            raise Problem(400, "The positions are not valid", "Write partition:offset,partition:offset.")
        found[int(number)] = int(offset)
    return found
