"""The rebalances of a group, as its coordinator tells them over HTTP, each with advice."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import msgspec

from ottla.console.cluster.brokers_http import PageError
from ottla.console.cluster.view import ClusterView

# Words in the cause of a rebalance, and what to do if it happens often.
_ADVICE: Final = (
    (
        "missed heartbeats",
        "The member was killed, paused or cut off. If it was only slow, raise session.timeout.ms.",
    ),
    (
        "max.poll.interval",
        "The member took too long between two polls: lower max.poll.records, or raise max.poll.interval.ms.",
    ),
    (
        "poll interval",
        "The member took too long between two polls: lower max.poll.records, or raise max.poll.interval.ms.",
    ),
    ("joined again as the leader", "Its metadata changed: a topic was created, or got more partitions."),
    ("changed its subscription", "A member now reads other topics. All members of a group should read the same."),
    ("joined from", "A member was added. If members restart often, give each a group.instance.id."),
    ("left", "A member was stopped. If members restart often, give each a group.instance.id."),
    ("coordinator moved", "The broker that coordinated the group stopped. Members went on without joining again."),
    ("came back", "A static member restarted in time; the others went on."),
)


class Rebalance(msgspec.Struct, kw_only=True):
    """A rebalance: why it happened, how long its phases took, and what to do if it happens often."""

    cause: str
    advice: str = ""
    began_ms: int
    join_ms: int | None = None
    """How long it took until all members had joined; null while it lasts."""
    sync_ms: int | None = None
    """How long it took then until all members had their partitions."""
    generation: int | None = None
    members: int | None = None


async def rebalances(view: ClusterView, group_id: str, coordinator: int) -> list[Rebalance]:
    """Return the rebalances that the coordinator remembers, oldest first; PageError if it does not tell."""
    page: Any = await view.brokers_http.get(coordinator, f"/groups/{quote(group_id, safe='')}")
    try:
        found = msgspec.convert(page["rebalances"], list[Rebalance])
    except (KeyError, TypeError, msgspec.ValidationError) as error:
        raise PageError(f"broker {coordinator} tells no rebalances of the group") from error
    for each in found:
        each.advice = advice_for(each.cause)
    return found


def advice_for(cause: str) -> str:
    """Return what to do about rebalances with this cause."""
    return next((advice for words, advice in _ADVICE if words in cause), "")
