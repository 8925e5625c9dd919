"""What happened: the events of this broker, and the rebalances of the groups that it coordinates."""

from __future__ import annotations

from typing import Any, Final

from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.observability.event_ring import EventRing

_SHOWN_MAX: Final = 1_000
# Of so many groups, the last rebalances are shown.
_GROUPS_MAX: Final = 200


class EventsPage:
    """Reads the ring of one broker and the timelines of its groups."""

    def __init__(self, ring: EventRing, groups: GroupCoordinator) -> None:
        self._ring = ring
        self._groups = groups

    def __call__(self, subject: str) -> dict[str, Any] | None:
        """Return the page, the newest first; there is only one."""
        if subject:
            return None
        rows = [
            {
                "sequence": each.sequence,
                "at_ms": each.at_ms,
                "kind": each.kind,
                "text": each.text,
                "topic": each.topic,
                "partition": each.partition,
            }
            for each in self._ring.events()
        ]
        rows += self._rebalances()
        rows.sort(key=lambda row: (row["at_ms"], row["sequence"]), reverse=True)
        return {"events": rows[:_SHOWN_MAX]}

    def _rebalances(self) -> list[dict[str, Any]]:
        clock_offset_ms = self._groups.clock() - self._groups.now_ms()
        rows = []
        for entry in list(self._groups)[:_GROUPS_MAX]:
            timeline = getattr(entry.group, "timeline", None)
            if timeline is None:
                continue
            for number, each in enumerate(timeline.as_json(clock_offset_ms)):
                rows.append(
                    {
                        "sequence": number,
                        "at_ms": each["began_ms"],
                        "kind": "rebalance",
                        "text": f"group {entry.group_id}: {each['cause']}",
                        "group": entry.group_id,
                    }
                )
        return rows
