"""Offsets and times as users write them. Offsets: start, end, N, -N from the end, @TIME; ranges of them: 100:200.

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

RANGE_HELP: Final = "Where to start: start, end, N, -N (that many before the end), @TIME; or a range of two, 100:200."
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
        # Nothing is older than 1970. To brokers, a negative time would mean the start or the end.
        return max(0, int(datetime.fromisoformat(text).timestamp() * 1000))
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


def split_range(text: str) -> tuple[str, str | None]:
    """Return the start and the end of a range, which is None if the text is a single offset.

    Times have colons, too. So if a range starts with a time, its end is a time or the word `end`.
    """
    first, separator, second = text.partition(":@")
    if separator:
        return first or "start", f"@{second}"
    if text.startswith("@"):
        return (text.removesuffix(":end"), "end") if text.endswith(":end") else (text, None)
    first, separator, second = text.partition(":")
    return (first or "start", second or None) if separator else (text, None)


def reset_of(text: str | None) -> str:
    """Return where a member of a group starts if nothing is committed; CommandError unless that is start or end."""
    if text is None or text in _START:
        return "earliest"
    if text in _END:
        return "latest"
    raise CommandError(f"With -g, --offset is start or end, not {text!r}; `ottla group seek` moves a group.", 2)


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

    wanted = await wanted_offsets(admin, partitions, text, isolation_level)
    if not is_number(text):
        return wanted
    starts, ends = [
        await admin.list_offsets(dict.fromkeys(partitions, spec), isolation_level=isolation_level)
        for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
    ]
    return {
        each: min(max(wanted[each], start.offset), end.offset)
        for each, start, end in zip(partitions, starts, ends, strict=True)
    }


def is_number(text: str) -> bool:
    """Whether an offset is N or -N, which a partition may not have."""
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and int(digits) <= INT64_MAX


async def wanted_offsets(
    admin: Admin,
    partitions: Sequence[TopicPartition],
    text: str,
    isolation_level: IsolationLevel = "read_uncommitted",
) -> dict[TopicPartition, int]:
    """Return the offset that the text means in each partition, whether the partition has it or not."""
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
    if not is_number(text):
        raise CommandError(f"{text!r} is not an offset: write start, end, a number, -N, or @TIME", 2)
    if not text.startswith("-"):
        return dict.fromkeys(partitions, int(text))
    ends = await look_up(OffsetSpec.LATEST)
    return {each: int(text) + ends[each] for each in partitions}
