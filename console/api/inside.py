"""What only a broker knows: its clients, where the time of requests goes, the segments on its disks, and what happened.

Ottla's brokers tell it on their HTTP ports. On other brokers these answers are empty, and `unknown` says why.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from ottla.console.api.paging import Limit
from ottla.console.api.topics import found_topic
from ottla.console.cluster.brokers_http import PageError, path_of
from ottla.console.cluster.view import ClusterView, MissingBroker
from ottla.console.numbers import Long
from ottla.console.problems import Problem
from ottla.console.web.call import Call

T = TypeVar("T")


class ClientRow(msgspec.Struct, kw_only=True):
    """A connection of a client to a broker."""

    broker_id: int
    principal: str
    client_id: str
    software: str
    """Name and version of the client library; empty if it does not tell them."""
    address: str
    listener: str
    protocol: str = ""
    """Whether it uses TLS and SASL."""
    connected_ms: int
    """How long it is connected."""
    idle_ms: int
    requests: Long
    requests_per_s: float | None = None
    bytes_in_per_s: float | None = None
    bytes_out_per_s: float | None = None
    apis: list[str] = []
    """What it has asked for lately: Produce, Fetch, ..."""
    is_throttled: bool = False
    is_blocked: bool = False
    """Whether it does not read its responses."""


class ClientRows(msgspec.Struct, kw_only=True):
    """Connections of clients, by principal and client id."""

    as_of_ms: int
    items: list[ClientRow]
    total: int
    is_truncated: bool
    unknown: str | None
    """Why there is nothing to show: only Ottla's brokers tell it."""
    missing: list[MissingBroker]


class ClientsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which connections to return."""

    q: Annotated[str, Meta(max_length=255, description="A part of principal, client id, software or address.")] = ""
    broker: int | None = None
    limit: Limit = 500


class Phase(msgspec.Struct, kw_only=True):
    """How long requests stayed in a phase."""

    mean_ms: float
    p50_ms: float
    p99_ms: float
    share: float
    """Of the total time, 0 to 1."""


class RequestRow(msgspec.Struct, kw_only=True):
    """The requests of one API to one broker, since it started."""

    broker_id: int
    api: str
    requests: Long
    requests_per_s: float | None = None
    queue: Phase
    local: Phase
    remote: Phase
    """Waiting for other brokers, or for records to arrive."""
    send: Phase
    total: Phase


class RequestRows(msgspec.Struct, kw_only=True):
    """Where the time of requests goes; APIs with the most time first."""

    as_of_ms: int
    items: list[RequestRow]
    throttled: dict[str, float]
    """Throttle time by kind of quota, in milliseconds: what the most throttled client waits."""
    unknown: str | None
    missing: list[MissingBroker]


class RequestsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Whose requests to return."""

    broker: int | None = None


class SegmentRow(msgspec.Struct, kw_only=True):
    """A segment of a partition on one broker."""

    base_offset: Long
    next_offset: Long
    size_bytes: Long
    index_bytes: Long
    first_timestamp_ms: Long | None
    last_timestamp_ms: Long | None
    modified_ms: int | None
    is_active: bool
    deleted_ms: int | None
    """When retention will delete it at the earliest; null if it is not known, or never."""
    why_kept: str
    """Why retention has not deleted it yet."""


class Segments(msgspec.Struct, kw_only=True):
    """The segments of a partition on one broker."""

    as_of_ms: int
    topic: str
    partition: int
    broker_id: int
    log_start_offset: Long | None
    log_end_offset: Long | None
    high_watermark: Long | None
    last_stable_offset: Long | None
    size_bytes: Long | None
    path: str | None
    cleanup_policy: str | None
    retention_ms: Long | None
    retention_bytes: Long | None
    items: list[SegmentRow]
    unknown: str | None


class SegmentsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Whose replica to look at; that of the leader by default."""

    broker: int | None = None


class EventRow(msgspec.Struct, kw_only=True):
    """Something that happened."""

    at_ms: int
    broker_id: int
    sequence: int
    kind: str
    """controller, leader, isr, broker, session, option, security, topic, disk, transaction, connections, rebalance."""
    text: str
    topic: str | None = None
    partition: int | None = None
    group: str | None = None


class Timeline(msgspec.Struct, kw_only=True):
    """What happened, the newest first."""

    as_of_ms: int
    items: list[EventRow]
    unknown: str | None
    missing: list[MissingBroker]


class TimelineQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which events to return."""

    kind: Annotated[list[str], Meta(description="Only these kinds.")] = []
    q: Annotated[str, Meta(max_length=255)] = ""
    before_ms: int | None = None
    since_ms: int | None = None
    limit: Limit = 200


async def list_clients(call: Call, query: ClientsQuery) -> ClientRows:
    """List the connections of clients, with their software and their rates."""
    view = await call.view()
    pages, unknown, missing = await _pages(view, "clients", query.broker)
    rows: list[ClientRow] = []
    is_truncated = False
    for broker_id, page in pages.items():
        is_truncated |= bool(page.get("is_truncated"))
        for raw in page.get("clients", ()):
            row = _converted({**raw, "broker_id": broker_id}, ClientRow)
            key = ("client", broker_id, raw.get("id"))
            row.requests_per_s = view.rates.per_second((*key, "requests"), int(raw.get("requests", 0)))
            if "bytes_in" in raw:
                row.bytes_in_per_s = view.rates.per_second((*key, "in"), int(raw["bytes_in"]))
            if "bytes_out" in raw:
                row.bytes_out_per_s = view.rates.per_second((*key, "out"), int(raw["bytes_out"]))
            rows.append(row)
    wanted = query.q.lower()
    found = [row for row in rows if wanted in f"{row.principal} {row.client_id} {row.software} {row.address}".lower()]
    found.sort(key=lambda row: (row.principal, row.client_id, row.broker_id, row.address))
    return ClientRows(
        as_of_ms=view.now_ms(),
        items=found[: query.limit],
        total=len(found),
        is_truncated=is_truncated or len(found) > query.limit,
        unknown=unknown,
        missing=missing,
    )


async def list_requests(call: Call, query: RequestsQuery) -> RequestRows:
    """Show where the time of requests goes, by API and phase."""
    view = await call.view()
    pages, unknown, missing = await _pages(view, "requests", query.broker)
    rows: list[RequestRow] = []
    throttled: dict[str, float] = {}
    for broker_id, page in pages.items():
        for raw in page.get("apis", ()):
            row = _converted({**raw, "broker_id": broker_id}, RequestRow)
            row.requests_per_s = view.rates.per_second(("api", broker_id, row.api), int(row.requests))
            rows.append(row)
        for kind, value in page.get("throttled", {}).items():
            throttled[kind] = max(throttled.get(kind, 0.0), float(value))
    rows.sort(key=lambda row: -row.total.mean_ms * int(row.requests))
    return RequestRows(as_of_ms=view.now_ms(), items=rows, throttled=throttled, unknown=unknown, missing=missing)


async def list_segments(call: Call, topic: str, partition: int, query: SegmentsQuery) -> Segments:
    """List the segments of a partition on a broker, and why retention keeps each."""
    view = await call.view()
    info = found_topic(await view.state(), topic)
    if partition not in info.partitions:
        raise Problem(404, "There is no such partition", f"{topic} has {len(info.partitions)} partitions.")
    broker_id = query.broker if query.broker is not None else info.partitions[partition].leader
    if broker_id is None:
        raise Problem(503, "The partition has no leader", "Choose a broker that has a replica.", retriable=True)
    page: dict[str, Any] = {}
    unknown: str | None = None
    try:
        found = await view.brokers_http.get(broker_id, path_of("segments", topic, str(partition)))
        page = found if isinstance(found, dict) else {}
    except PageError as error:
        unknown = str(error)
    names = {field.name for field in msgspec.structs.fields(Segments)} - {"items"}
    empty = dict.fromkeys(names)
    return _converted(
        {
            **empty,
            **{name: value for name, value in page.items() if name in names},
            "as_of_ms": view.now_ms(),
            "topic": topic,
            "partition": partition,
            "broker_id": broker_id,
            "items": page.get("segments", []),
            "unknown": unknown,
        },
        Segments,
    )


async def list_events(call: Call, query: TimelineQuery) -> Timeline:
    """List what happened in the cluster: elections, ISR changes, sessions, options, rebalances, disks."""
    view = await call.view()
    pages, unknown, missing = await _pages(view, "events", None)
    rows = events_of(pages)
    wanted = query.q.lower()
    found = [
        row
        for row in rows
        if (not query.kind or row.kind in query.kind)
        and wanted in f"{row.text} {row.topic or ''} {row.group or ''}".lower()
        and (query.before_ms is None or row.at_ms < query.before_ms)
        and (query.since_ms is None or row.at_ms >= query.since_ms)
    ]
    return Timeline(as_of_ms=view.now_ms(), items=found[: query.limit], unknown=unknown, missing=missing)


def events_of(pages: dict[int, Any]) -> list[EventRow]:
    """Return the events of all brokers, the newest first."""
    rows = [
        _converted({**raw, "broker_id": broker_id}, EventRow)
        for broker_id, page in pages.items()
        for raw in page.get("events", ())
    ]
    rows.sort(key=lambda row: (row.at_ms, row.broker_id, row.sequence), reverse=True)
    return rows


async def _pages(
    view: ClusterView, name: str, broker_id: int | None
) -> tuple[dict[int, dict[str, Any]], str | None, list[MissingBroker]]:
    """Return a page of all brokers, why there is none at all, and which brokers are missing."""
    state = await view.state()
    asked = list(state.brokers) if broker_id is None else [broker_id]
    pages, failures = await view.brokers_http.get_all(asked, path_of(name))
    known = {each: page for each, page in pages.items() if isinstance(page, dict)}
    unknown = next(iter(failures.values()), None) if not known else None
    missing = state.missing
    if known:
        missing += [MissingBroker(each, error) for each, error in failures.items()]
    return known, unknown, missing


def _converted(raw: dict[str, Any], kind: type[T]) -> T:
    """Read what a broker told; Problem if it is of another version and does not fit."""
    try:
        return msgspec.convert(raw, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Problem(502, "The broker told something else than expected", str(error)) from error
