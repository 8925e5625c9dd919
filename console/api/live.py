"""The state of the cluster as a stream of events, so that pages need not ask again and again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from ottla.client.errors import KafkaError
from ottla.console.api.brokers import list_brokers
from ottla.console.api.groups import show_group
from ottla.console.api.inside import TimelineQuery, list_events
from ottla.console.api.overview import show_overview
from ottla.console.api.topics import show_topic
from ottla.console.problems import Problem, problem_of
from ottla.console.web.answering import ServerSentEvent
from ottla.console.web.call import Call

_WATCHED_MAX: Final = 8
_KEEP_ALIVE_S: Final = 15.0
_EVENTS_SHOWN: Final = 50
_EVERY_PAGE: Final = "overview"


class WatchQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What to watch."""

    watch: Annotated[
        list[str],
        Meta(description="overview, brokers, timeline, topic:NAME, group:ID; repeat the parameter for several."),
    ] = msgspec.field(default_factory=lambda: ["overview"])
    every_ms: Annotated[int, Meta(ge=1_000, le=60_000)] = 2_000


async def watch_cluster(call: Call, query: WatchQuery) -> AsyncIterator[ServerSentEvent | None]:
    """Watch parts of the cluster: an event for each part that has changed, with what its own route answers.

    The name of an event is overview, brokers, timeline, topic or group. A part that cannot be read comes as an event
    `problem`.
    """
    if not query.watch or len(query.watch) > _WATCHED_MAX:
        raise Problem(400, "Watch something", f"Give one to {_WATCHED_MAX} parts in `watch`.")
    parts = {name: _reader(call, name) for name in query.watch}
    last: dict[str, bytes] = {}
    number = 0
    quiet_s = 0.0
    while True:
        for name, read in parts.items():
            # Only the kind: a name may have line breaks, which would end the event.
            event = name.partition(":")[0]
            told: msgspec.Struct
            try:
                told = await (await call.view()).shared(name, read)
                shown = msgspec.json.encode(_without_time(told))
            except (KafkaError, Problem) as error:
                problem = error if isinstance(error, Problem) else problem_of(error)
                event, told = "problem", _PartProblem(watch=name, problem=problem.details)
                shown = msgspec.json.encode(told)
            if last.get(name) != shown:
                last[name] = shown
                number += 1
                quiet_s = 0.0
                yield ServerSentEvent(event, told, str(number))
        await asyncio.sleep(query.every_ms / 1000)
        quiet_s += query.every_ms / 1000
        if quiet_s >= _KEEP_ALIVE_S:
            quiet_s = 0.0
            yield None


async def read_first(call: Call) -> None:
    """Read what every page watches: it is there when the browser has loaded the page and asks for it."""
    view = await call.view()
    await view.shared(_EVERY_PAGE, _reader(call, _EVERY_PAGE))


class _PartProblem(msgspec.Struct, kw_only=True):
    """A part that cannot be read at the moment."""

    watch: str
    problem: msgspec.Struct


def _reader(call: Call, name: str) -> Callable[[], Awaitable[msgspec.Struct]]:
    kind, _, subject = name.partition(":")
    match kind:
        case "overview":
            return lambda: show_overview(call)
        case "brokers":
            return lambda: list_brokers(call)
        case "timeline":
            return lambda: list_events(call, TimelineQuery(limit=_EVENTS_SHOWN))
        case "topic" if subject:
            return lambda: show_topic(call, subject)
        case "group" if subject:
            return lambda: show_group(call, subject)
    raise Problem(
        400, "There is no such part", f"{name[:100]!r}: use overview, brokers, timeline, topic:NAME, group:ID."
    )


def _without_time(told: msgspec.Struct) -> msgspec.Struct:
    """Return an answer without the time of reading, which alone is no change."""
    return msgspec.structs.replace(told, as_of_ms=0)
