"""Offsets and times as users write them. Offsets: start, end, N, -N from the end, @TIME.

time:  ISO 8601 (2026-01-31T12:00:00Z; without a zone it is local time), milliseconds since 1970, or -5m for five
       minutes ago, with s, m, h or d
span:  5m for five minutes, with the same units
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from ottla.client.cli.terminal.errors import CommandError
from ottla.protocol.primitives import INT64_MAX

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.client.net.settings import IsolationLevel
    from ottla.protocol.identifiers import TopicPartition

OFFSET_HELP: Final = "Where to start: start, end, N, -N (that many before the end), or @TIME."
_DURATION: Final = re.compile(r"(\d{1,9})(s|m|h|d)")
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_START: Final = ("start", "beginning", "earliest")
_END: Final = ("end", "latest")


def time_ms(text: str, now_ms: int | None = None) -> int:
    """Return milliseconds since 1970; CommandError if the text is not a time."""
    if text.startswith("-") and (ago := _duration_ms(text[1:])) is not None:
        now = int(time.time() * 1000) if now_ms is None else now_ms
        return max(0, now - ago)
    if text.isascii() and text.isdigit() and int(text) <= INT64_MAX:
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise CommandError(
            f"{text!r} is not a time: write 2026-01-31T12:00:00Z, milliseconds since 1970, or -5m", 2
        ) from None


def duration_ms(text: str) -> int:
    """Return a time span in milliseconds; CommandError if the text is none."""
    found = _duration_ms(text)
    if found is None:
        raise CommandError(f"{text!r} is not a time span: write 90s, 15m, 2h or 1d", 2)
    return found


def _duration_ms(text: str) -> int | None:
    match = _DURATION.fullmatch(text)
    return None if match is None else int(match[1]) * _UNIT_MS[match[2]]


async def partitions_of(admin: Admin, topic: str, numbers: Sequence[int] | None) -> list[TopicPartition]:
    """Return the partitions of a topic, or those with these numbers; CommandError if one does not exist."""
    from ottla.protocol.identifiers import TopicPartition

    (described,) = await admin.describe_topics([topic])
    known = [each.partition for each in described.partitions]
    for number in numbers or ():
        if number not in known:
            raise CommandError(f"{topic} has no partition {number}; it has 0 to {len(known) - 1}")
    return [TopicPartition(topic, number) for number in numbers or known]


async def resolve(
    admin: Admin,
    partitions: Sequence[TopicPartition],
    text: str,
    isolation_level: IsolationLevel = "read_uncommitted",
) -> dict[TopicPartition, int]:
    """Return the offset that the text means in each partition, limited to the range for readers of this kind."""
    from ottla.client.admin.results import OffsetSpec

    async def look_up(spec: int) -> dict[TopicPartition, int]:
        found = await admin.list_offsets(dict.fromkeys(partitions, spec), isolation_level=isolation_level)
        return {partition: each.offset for partition, each in zip(partitions, found, strict=True)}

    if text.startswith("@"):
        at_time = await look_up(time_ms(text[1:]))
        ends = await look_up(OffsetSpec.LATEST)
        return {each: ends[each] if offset < 0 else offset for each, offset in at_time.items()}
    if text in _START:
        return await look_up(OffsetSpec.EARLIEST)
    if text in _END:
        return await look_up(OffsetSpec.LATEST)
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or int(digits) > INT64_MAX:
        raise CommandError(f"{text!r} is not an offset: write start, end, a number, -N, or @TIME", 2)
    starts, ends = await look_up(OffsetSpec.EARLIEST), await look_up(OffsetSpec.LATEST)
    wanted = {each: int(text) + (ends[each] if text.startswith("-") else 0) for each in partitions}
    return {each: min(max(offset, starts[each]), ends[each]) for each, offset in wanted.items()}
