"""Brokers and their disks, and whether one can be stopped without harm."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from ottla.client.cli.health import safe_to_stop as stopping
from ottla.client.cli.health.min_isr import min_isr_by_topic
from ottla.client.errors import KafkaError
from ottla.console.api.overview import OverviewBroker, broker_rows
from ottla.console.cluster.brokers_http import PageError, path_of
from ottla.console.cluster.view import ClusterState, ClusterView, LogDirs, MissingBroker
from ottla.console.numbers import Long, long, maybe_long
from ottla.console.problems import Problem
from ottla.console.web.call import Call
from ottla.protocol.identifiers import TopicPartition

_TIMEOUT_S = 3.0


class LogDirRow(msgspec.Struct, kw_only=True):
    """A log directory of a broker."""

    path: str
    error: str | None
    total_bytes: Long | None
    free_bytes: Long | None
    size_bytes: Long
    """Of the replicas in it."""
    replicas: int
    moving_here: int


class SafeToStop(msgspec.Struct, kw_only=True):
    """Whether a broker can be stopped now, and what would happen."""

    is_safe: bool
    verdict: str
    reasons: list[str]
    """What would break, or what would merely be weaker."""
    unavailable: int
    """Partitions that would have no leader."""
    refusing: int
    """Partitions that would refuse acks=all, because too few replicas are in sync."""
    leaders_to_move: int


class BrokerRow(OverviewBroker, kw_only=True):
    """A broker with its disks."""

    log_dirs: list[LogDirRow]
    safe_to_stop: SafeToStop | None
    """Null for a broker that is down."""
    software: str | None
    """The version of the broker, if it tells it."""
    uptime_ms: int | None


class BrokerRows(msgspec.Struct, kw_only=True):
    """All brokers."""

    as_of_ms: int
    controller_id: int | None
    items: list[BrokerRow]
    missing: list[MissingBroker]


class BrokerDetail(msgspec.Struct, kw_only=True):
    """One broker: what it is, and how busy."""

    as_of_ms: int
    broker: BrokerRow
    listeners: list[str]
    load: dict[str, float | None]
    """Idle shares (0 to 1) and rates, as far as the broker tells them."""
    inside_unknown: str | None
    """Why there is no load to show: only Ottla's brokers tell it."""
    missing: list[MissingBroker]


async def list_brokers(call: Call) -> BrokerRows:
    """List brokers with their disks, and whether each is safe to stop."""
    view = await call.view()
    state = await view.state()
    log_dirs = await view.log_dirs()
    pages, _ = await view.brokers_http.get_all(state.brokers, path_of("broker"))
    minimum = await _min_isr(view, state)
    return BrokerRows(
        as_of_ms=state.as_of_ms,
        controller_id=state.controller_id,
        items=[_row(each, state, log_dirs, minimum, pages.get(each.broker_id)) for each in broker_rows(state)],
        missing=log_dirs.missing,
    )


async def show_broker(call: Call, broker_id: int) -> BrokerDetail:
    """Show one broker with its disks and its load."""
    view = await call.view()
    state = await view.state()
    found = next((each for each in broker_rows(state) if each.broker_id == broker_id), None)
    if found is None:
        raise Problem(404, "There is no such broker", f"The cluster has no broker {broker_id}.")
    log_dirs = await view.log_dirs()
    page: Any = None
    unknown: str | None = None
    try:
        page = await view.brokers_http.get(broker_id, path_of("broker")) if found.is_alive else None
    except PageError as error:
        unknown = str(error)
    load: dict[str, float | None] = {}
    if isinstance(page, dict):
        load = {name: value for name, value in (page.get("load") or {}).items() if isinstance(value, int | float)}
        for name in ("records_in", "bytes_in", "bytes_out", "requests"):
            if isinstance(value := page.get(name), int):
                load[f"{name}_per_s"] = view.rates.per_second((name, broker_id), value)
    return BrokerDetail(
        as_of_ms=state.as_of_ms,
        broker=_row(found, state, log_dirs, await _min_isr(view, state), page),
        listeners=[str(each) for each in page.get("listeners", ())] if isinstance(page, dict) else [],
        load=load,
        inside_unknown=unknown,
        missing=log_dirs.missing,
    )


def _row(
    broker: OverviewBroker, state: ClusterState, log_dirs: LogDirs, minimum: dict[str, int], page: Any
) -> BrokerRow:
    own = [each for each in log_dirs.dirs if each.broker_id == broker.broker_id]
    told = {(each.total_bytes, each.usable_bytes) for each in own if each.total_bytes is not None}
    page = page if isinstance(page, dict) else {}
    fields: dict[str, Any] = {
        **{each: getattr(broker, each) for each in broker.__struct_fields__},
        "size_bytes": long(sum(each.size_bytes for each in own)) if own else None,
        "disk_total_bytes": long(sum(total or 0 for total, _ in told)) if told else None,
        "disk_free_bytes": long(sum(free or 0 for _, free in told)) if told else None,
    }
    return BrokerRow(
        **fields,
        log_dirs=[
            LogDirRow(
                path=each.path,
                error=None if each.error is None else str(each.error),
                total_bytes=maybe_long(each.total_bytes),
                free_bytes=maybe_long(each.usable_bytes),
                size_bytes=long(each.size_bytes),
                replicas=sum(not replica.is_future for replica in each.replicas),
                moving_here=sum(replica.is_future for replica in each.replicas),
            )
            for each in own
        ],
        safe_to_stop=safe_to_stop(state, broker.broker_id, minimum) if broker.is_alive else None,
        software=page.get("version"),
        uptime_ms=page.get("uptime_ms"),
    )


def safe_to_stop(state: ClusterState, broker_id: int, min_isr: dict[str, int]) -> SafeToStop:
    """Return what would happen to partitions if a broker stopped now."""
    found = stopping.safe_to_stop(
        broker_id,
        state.brokers,
        state.controller_id,
        (
            (TopicPartition(topic.name, number), each)
            for topic in state.topics.values()
            for number, each in topic.partitions.items()
        ),
        min_isr,
    )
    return SafeToStop(
        is_safe=found.is_safe,
        verdict="Safe to stop now." if found.is_safe else "Do not stop it now.",
        reasons=[*found.reasons, *found.notes],
        unavailable=len(found.unavailable),
        refusing=len(found.below_min_isr),
        leaders_to_move=len(found.leaders_to_move),
    )


async def _min_isr(view: ClusterView, state: ClusterState) -> dict[str, int]:
    """Return min.insync.replicas of the topics that are replicated, as far as it can be read in time."""
    names = [
        name for name, topic in state.topics.items() if any(len(p.replicas) > 1 for p in topic.partitions.values())
    ]
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            return await min_isr_by_topic(view.admin, names)
    except (KafkaError, TimeoutError):
        return {}
