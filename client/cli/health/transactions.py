"""Transactions that hold back consumers of committed records for too long, for `ottla doctor`.

Such a consumer reads up to the last stable offset, which is where the oldest open transaction starts. A coordinator
ends a transaction after its timeout. If it does not, or if no coordinator knows the transaction, consumers wait for
ever.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Collection, Sequence
from typing import Final

from ottla.client.admin.admin import MAX_TRANSACTION_TIMEOUT_MS, Admin
from ottla.client.admin.results import ConfigResource, OffsetSpec
from ottla.client.admin.transaction_results import OpenTransaction
from ottla.client.cli.health.findings import Finding, Status
from ottla.client.cli.terminal.times import ago
from ottla.client.errors import KafkaError
from ottla.protocol.config_resources import ConfigResourceType
from ottla.protocol.identifiers import TopicPartition

_CHECK: Final = "transactions"
_MAX_TIMEOUT: Final = "transaction.max.timeout.ms"
_ONGOING: Final = "Ongoing"
# Coordinators look for transactions that have timed out every ten seconds, and our clock may not be theirs.
_GRACE_MS: Final = 60_000
_SHOWN_MAX: Final = 3
_STUCK: Final = "Consumers that read committed records stand still there"


async def examine_transactions(admin: Admin, now_ms: int | None = None) -> list[Finding]:
    """Look for overdue transactions in all partitions that have a leader."""
    now = int(time.time() * 1000) if now_ms is None else now_ms
    held = await _held_back(admin)
    if not held:
        return [Finding(Status.OK, _CHECK, "none holds back consumers of committed records")]
    try:
        found = await admin.list_open_transactions(held, raise_errors=False)
    except KafkaError as error:
        advice = f"{_STUCK} until the coordinators answer."
        return [Finding(Status.WARNING, _CHECK, f"open in {_named(held)}; {error.description}", advice)]
    opened = [each for each in found if each.error is None]
    max_timeout_ms = await _max_timeout_ms(admin) if any(each.is_hanging for each in opened) else 0
    if late := overdue_findings(opened, now, max_timeout_ms):
        return late
    reasons = dict.fromkeys(each.error.description for each in found if each.error is not None)
    judged = f"not examined: {' '.join(reasons)}" if reasons else "none overdue"
    return [Finding(Status.OK, _CHECK, f"open in {_named(held)}; {judged}")]


def overdue_findings(opened: Sequence[OpenTransaction], now_ms: int, max_timeout_ms: int) -> list[Finding]:
    """Return a finding for each transaction that should have ended, with the command that ends it."""
    hanging = [
        each for each in opened if each.is_hanging and now_ms - (each.last_timestamp or 0) > max_timeout_ms + _GRACE_MS
    ]
    late: dict[str, list[OpenTransaction]] = {}
    for each in opened:
        # A transaction that does not hang has all that its coordinator knows.
        is_late = now_ms - (each.start_time_ms or now_ms) > (each.timeout_ms or 0) + _GRACE_MS
        if not each.is_hanging and each.transactional_id is not None and is_late:
            late.setdefault(each.transactional_id, []).append(each)
    findings = [_hanging_finding(each, now_ms) for each in hanging]
    findings += [_late_finding(name, each, now_ms) for name, each in late.items()]
    if (left_out := len(findings) - _SHOWN_MAX) > 0:
        advice, change = "The first ones are shown above. List all that hang:", "ottla transaction find-hanging"
        findings[_SHOWN_MAX:] = [Finding(Status.BROKEN, _CHECK, f"{left_out} more are overdue", advice, change)]
    return findings


def abort_line(hanging: OpenTransaction) -> str:
    """Return the command that aborts a transaction that hangs."""
    return f"ottla transaction abort {hanging.topic}:{hanging.partition} --start-offset {hanging.start_offset}"


async def _held_back(admin: Admin) -> list[TopicPartition]:
    """Return the partitions whose last stable offset is behind their high watermark."""
    partitions = [
        TopicPartition(topic.name, each.partition)
        for topic in await admin.describe_topics(raise_errors=False)
        for each in topic.partitions
        if each.leader is not None
    ]
    wanted = dict.fromkeys(partitions, OffsetSpec.LATEST)
    # The high watermark first: records that come in between are then not taken for records of a transaction.
    ends = await admin.list_offsets(wanted, raise_errors=False)
    stable = await admin.list_offsets(wanted, isolation_level="read_committed", raise_errors=False)
    return [
        partition
        for partition, end, last in zip(partitions, ends, stable, strict=True)
        if end.error is None and last.error is None and last.offset < end.offset
    ]


async def _max_timeout_ms(admin: Admin) -> int:
    """Return the largest timeout that the brokers allow a transaction; the default if they do not tell."""
    resources = [ConfigResource(ConfigResourceType.BROKER, str(broker_id)) for broker_id in admin.cluster.brokers]
    try:
        described = await admin.describe_configs(resources, names=[_MAX_TIMEOUT], raise_errors=False)
    except KafkaError:
        described = ()
    values = [int(entry.value) for each in described for entry in each.entries if entry.value]
    return max(values, default=MAX_TRANSACTION_TIMEOUT_MS)


def _hanging_finding(each: OpenTransaction, now_ms: int) -> Finding:
    found = f"one of producer {each.producer_id} hangs in {each.topic}-{each.partition} at offset {each.start_offset}"
    if each.last_timestamp is not None:
        found += f", last record {ago(each.last_timestamp, now_ms)}"
    owner = "no transactional id has this producer"
    if each.transactional_id is not None:
        owner = f"{each.transactional_id!r} does not have this partition in its transaction"
    advice = f"{_STUCK}, and no coordinator ends it: {owner}. Abort it:"
    return Finding(Status.BROKEN, _CHECK, found, advice, abort_line(each))


def _late_finding(name: str, opened: Sequence[OpenTransaction], now_ms: int) -> Finding:
    first = opened[0]
    partitions = _named([TopicPartition(each.topic, each.partition) for each in opened])
    began = ago(first.start_time_ms or now_ms, now_ms)
    found = f"{name!r} is {first.state} in {partitions}: began {began}, its timeout is {first.timeout_ms} ms"
    if first.state == _ONGOING:
        advice = f"{_STUCK}, and the coordinator does not abort it. Abort it, and shut out its producer:"
        return Finding(Status.BROKEN, _CHECK, found, advice, f"ottla transaction fence {shlex.quote(name)}")
    advice = f"{_STUCK} until the coordinator has written the markers. Find it, and look for errors in its log:"
    return Finding(Status.BROKEN, _CHECK, found, advice, f"ottla transaction describe {shlex.quote(name)}")


def _named(partitions: Collection[TopicPartition]) -> str:
    names = [str(each) for each in partitions]
    return ", ".join(names[:_SHOWN_MAX]) + (", ..." if len(names) > _SHOWN_MAX else "")
