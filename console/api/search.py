"""One search for everything that has a name."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from ottla.console.api.paging import matching
from ottla.console.cluster.view import MissingBroker
from ottla.console.web.call import Call

_HITS_MAX: Final = 50


class Hit(msgspec.Struct, kw_only=True):
    """Something that was found."""

    kind: Literal["topic", "group", "broker"]
    name: str


class Hits(msgspec.Struct, kw_only=True):
    """What was found: exact names first, then names that begin with the text, then the others."""

    items: list[Hit]
    is_truncated: bool
    missing: list[MissingBroker]


class SearchQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What to look for."""

    q: Annotated[str, Meta(min_length=1, max_length=255, description="A part of a name, or a pattern with * and ?.")]


async def search(call: Call, query: SearchQuery) -> Hits:
    """Find topics, groups and brokers by a part of their names."""
    view = await call.view()
    state = await view.state()
    groups = await view.groups()
    hits = [
        *(Hit(kind="topic", name=name) for name in state.topics),
        *(Hit(kind="group", name=name) for name in groups.groups),
        *(
            Hit(kind="broker", name=f"{broker.node_id} {broker.host}:{broker.port}")
            for broker in state.brokers.values()
        ),
    ]
    wanted = query.q.strip().lower()

    def rank(hit: Hit) -> tuple[bool, bool, str]:
        name = hit.name.lower()
        return name != wanted, not name.startswith(wanted), name

    found = sorted(matching(hits, query.q, lambda hit: hit.name), key=rank)
    return Hits(items=found[:_HITS_MAX], is_truncated=len(found) > _HITS_MAX, missing=groups.missing)
