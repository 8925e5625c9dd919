"""The disks of brokers: whether they have space, which topics to trim, and what retention cannot delete."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from ottla.client.admin.results import BrokerDescription, LogDirDescription
from ottla.client.cli.health.findings import Finding, Status
from ottla.client.cli.health.http_pages import UntrustedHostError, get_page, page_url
from ottla.client.cli.health.surroundings import KeptFree
from ottla.client.cli.terminal.sizes import human_bytes
from ottla.client.cli.terminal.times import local_time

_DISK_FREE_MIN: Final = 0.10
_PAGE: Final = "/inside/v1/disks"
_PAGE_BYTES_MAX: Final = 1 << 20
_TIMEOUT_S: Final = 3.0
_NAMED_MAX: Final = 3


def disk_finding(log_dir: LogDirDescription, kept_free: KeptFree = KeptFree()) -> Finding:  # noqa: B008 - immutable
    """Judge a log directory by its error and by the free space on its disk; with less than is kept free, it is full."""
    check = f"disk of broker {log_dir.broker_id}"
    if log_dir.error is not None:
        advice = "The broker does not use this directory. Fix its disk, then restart the broker."
        return Finding(Status.BROKEN, check, f"{log_dir.path}: {log_dir.error.description}", advice)
    if log_dir.total_bytes is None or log_dir.usable_bytes is None:
        return Finding(Status.OK, check, f"{log_dir.path}: the broker is too old to report it")
    found = f"{log_dir.path}: {human_bytes(log_dir.usable_bytes)} of {human_bytes(log_dir.total_bytes)} free"
    option, kept_bytes = kept_free.of(log_dir.total_bytes)
    largest = _largest(log_dir)
    change = f"ottla topic alter {largest[0][0] if largest else 'TOPIC'} -c retention.bytes=BYTES"
    named = ", ".join(f"{topic} ({human_bytes(size)})" for topic, size in largest)
    if log_dir.usable_bytes < max(1, kept_bytes):
        kept = f", and {option} keeps {human_bytes(kept_bytes)}" if kept_bytes else ""
        advice = "The broker refuses records. Delete topics, keep less of them, or enlarge the disk."
        if named:
            advice += f" Largest topics: {named}."
        return Finding(Status.BROKEN, check, f"{found}{kept}", advice, change)
    if log_dir.usable_bytes >= log_dir.total_bytes * _DISK_FREE_MIN:
        return Finding(Status.OK, check, found)
    advice = "Free some space, or keep less of the largest topics"
    advice += f": {named}." if named else " (`ottla log dirs` shows sizes)."
    return Finding(Status.WARNING, check, found, advice, change)


def _largest(log_dir: LogDirDescription) -> list[tuple[str, int]]:
    sizes: Counter[str] = Counter()
    for replica in log_dir.replicas:
        sizes[replica.topic] += replica.size_bytes
    return [(topic, size) for topic, size in sizes.most_common(_NAMED_MAX) if size]


async def stuck_findings(
    brokers: Sequence[BrokerDescription], listeners: Mapping[int, str], named: Collection[str]
) -> list[Finding]:
    """Return the segments that brokers cannot delete, and why; nothing of brokers whose HTTP port does not answer.

    `named` has the hosts that may get our token.
    """

    async def ask(broker: BrokerDescription) -> list[dict[str, Any]]:
        listener = listeners.get(broker.broker_id)
        if not listener:
            return []
        return await asyncio.to_thread(_stuck_segments, page_url(listener, broker.host, _PAGE), named)

    answers = await asyncio.gather(*map(ask, brokers))
    return [
        stuck_finding(broker.broker_id, segment)
        for broker, segments in zip(brokers, answers, strict=True)
        for segment in segments[:_NAMED_MAX]
    ]


def _stuck_segments(url: str, named: Collection[str]) -> list[dict[str, Any]]:
    try:
        with get_page(url, _TIMEOUT_S, token_for=named) as response:
            found: list[dict[str, Any]] = json.loads(response.read(_PAGE_BYTES_MAX))["stuck_segments"]
            return found
    except (OSError, ValueError, KeyError, TypeError, UntrustedHostError):
        # An older broker has no such page.
        return []


def stuck_finding(broker_id: int, segment: Mapping[str, Any]) -> Finding:
    """Say why a segment cannot be deleted, and what to do about it."""
    topic, partition = segment["topic"], segment["partition"]
    check = f"retention on broker {broker_id}"
    what = f"{segment['path']} holds back {human_bytes(int(segment['held_bytes']))}: "
    match segment["holder"]:
        case "future timestamp":
            return Finding(
                Status.WARNING,
                check,
                f"{what}its newest record is from {local_time(int(segment['value']))}, in the future",
                "Retention counts from that time. Delete the records up to the next segment, and let the broker refuse "
                f"such timestamps (`ottla topic alter {topic} -c message.timestamp.after.max.ms=3600000`).",
                f"ottla topic trim {topic} --offset {segment['next_offset']} --partition {partition}",
            )
        case "lagging follower":
            lagging = ", ".join(map(str, segment["lagging_brokers"]))
            who = f"broker {lagging} lacks" if lagging else "followers lack"
            return Finding(
                Status.WARNING,
                check,
                f"{what}{who} its records, which are not committed yet",
                "Nothing is deleted before all replicas in sync have it. Check the disk, the network and the log of "
                "the brokers that lag behind.",
                f"ottla topic describe {topic}",
            )
        case "open transaction":
            return Finding(
                Status.WARNING,
                check,
                f"{what}a transaction is open from offset {segment['value']}, and compaction does not pass it",
                "End the transaction if its producer is gone.",
                "ottla transaction find-hanging",
            )
        case other:
            return Finding(Status.WARNING, check, f"{what}{other}")
