"""Groups over HTTP, as JSON: their members, what each member reads, the lag, and the reasons of rebalances."""

from __future__ import annotations

import struct
from typing import Any, Final

from ottla.broker.groups.classic.group import ClassicGroup
from ottla.broker.groups.classic.member import ClassicMember
from ottla.broker.groups.coordinated_group import CoordinatedGroup
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.groups.group_lag import lags_of
from ottla.broker.groups.lag_lookups import LagLookups
from ottla.broker.observability.group_metrics import member_count
from ottla.protocol.codec import decode_from
from ottla.protocol.errors import DecodeError, KafkaError
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolAssignment

_VERSION: Final = struct.Struct(">h")
_VERSION_MAX: Final = 3


class GroupPages:
    """What `/groups` and `/groups/<id>` show: the groups that this broker coordinates."""

    def __init__(self, groups: GroupCoordinator, lookups: LagLookups) -> None:
        self._groups = groups
        self._lookups = lookups

    def __call__(self, group_id: str) -> dict[str, Any] | None:
        """Return one group, or None if it is not here; with an empty id, return all groups."""
        if not group_id:
            return self.overview()
        try:
            entry = self._groups.with_group(group_id)
        except KafkaError as error:
            return {"id": group_id, "error": error.code.name}
        return None if entry is None else self.details(entry)

    def overview(self) -> dict[str, Any]:
        """Return a summary of all groups."""
        entries = list(self._groups)
        offsets = {entry.group_id: entry.offsets.shown() for entry in entries}
        lags = lags_of(offsets, self._lookups, self._groups.clock())
        return {
            "is_loading": self._groups.is_loading,
            "groups": [
                {**self._summary(entry), "lag": sum(each.records for each in lags[entry.group_id].values())}
                for entry in entries
            ],
        }

    def details(self, entry: CoordinatedGroup) -> dict[str, Any]:
        """Return one group with its members, offsets and rebalances."""
        with entry.lock:
            committed = entry.offsets.shown()
            shown = self._summary(entry)
            group = entry.group
            if isinstance(group, ClassicGroup):
                shown["members"] = [_member(member) for member in group.members.values()]
            elif hasattr(group, "as_json"):
                shown |= group.as_json()
            timeline = getattr(group, "timeline", None)
            clock_offset_ms = self._groups.clock() - self._groups.now_ms()
            shown["rebalances"] = [] if timeline is None else timeline.as_json(clock_offset_ms)
        behind = lags_of({entry.group_id: committed}, self._lookups, self._groups.clock())[entry.group_id]
        shown["lag"] = sum(each.records for each in behind.values())
        shown["offsets"] = [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": each.offset,
                "metadata": each.metadata,
                "committed_ms": each.commit_timestamp_ms,
                "moved_ms": each.moved_timestamp_ms,
                "end_offset": None if (found := behind.get(partition)) is None else found.end_offset,
                "lag": None if found is None else found.records,
                "lag_ms": None if found is None else found.age_ms,
                "stalled_ms": None if found is None else found.stalled_ms,
            }
            for partition, each in sorted(committed.items())
        ]
        return shown

    def _summary(self, entry: CoordinatedGroup) -> dict[str, Any]:
        group = entry.group
        return {
            "id": entry.group_id,
            "type": entry.type_name,
            "state": group.state.value,
            "state_since_ms": entry.state_since_ms,
            "protocol_type": group.protocol_type,
            "protocol": getattr(group, "protocol_name", None),
            "generation": getattr(group, "generation", None),
            "members": member_count(entry),
            "coordinator": self._groups.partitions.node_id,
        }


def _member(member: ClassicMember) -> dict[str, Any]:
    return {
        "id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host.removeprefix("/"),
        "session_timeout_ms": member.session_timeout_ms,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "assignment": assigned(member.assignment),
    }


def assigned(assignment: bytes) -> dict[str, list[int]] | None:
    """Return the partitions of an assignment by topic; None if it is not in the format of consumers."""
    if len(assignment) < _VERSION.size:
        return None
    try:
        # Later versions only append fields to those that we know.
        version = min(_VERSION.unpack_from(assignment)[0], _VERSION_MAX)
        found, _ = decode_from(ConsumerProtocolAssignment, version, assignment, _VERSION.size)
    except DecodeError:
        return None
    return {each.topic: each.partitions for each in found.assigned_partitions}
