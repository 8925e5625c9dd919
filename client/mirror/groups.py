"""Offsets of groups in step: a group that moves to the destination goes on where it has stopped in the source.

A group belongs to one cluster at a time. Once it has members in the destination, or offsets that the mirror has not
written, it has moved, and the mirror leaves it alone. Offsets are the same numbers in both clusters. One that the
destination has no records for yet is written as the end of its log, so that nothing is skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from ottla.client.admin.admin import Admin
from ottla.client.errors import KafkaError
from ottla.client.mirror.partition_copy import PartitionCopy
from ottla.client.mirror.selection import Selection
from ottla.client.types import OffsetAndMetadata
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition

_AT_ONCE: Final = 16
# Groups of other programs, such as Kafka Connect, have no offsets in the coordinator.
_CONSUMERS: Final = ("", "consumer")
# Only members may commit.
_HAS_MEMBERS: Final = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}
)

Offsets = dict[TopicPartition, OffsetAndMetadata]


class Groups:
    """Keeps the offsets of groups in step."""

    def __init__(self, source: Admin, destination: Admin, selection: Selection) -> None:
        self._source = source
        self._destination = destination
        self._selection = selection
        # By group, which offsets are there if nobody but us has written any.
        self._written: dict[str, dict[TopicPartition, set[int]]] = {}
        # Groups that work in the destination.
        self.moved: set[str] = set()

    async def mirror(self, copies: Mapping[TopicPartition, PartitionCopy]) -> int:
        """Write the offsets that have changed; return the number of groups that have any. KafkaError if that fails."""
        limit = asyncio.Semaphore(_AT_ONCE)

        async def one(name: str) -> bool:
            async with limit:
                return await self._mirror_group(name, copies)

        return sum(await asyncio.gather(*map(one, await self.names())))

    async def names(self) -> list[str]:
        """Return the groups of the source that are selected."""
        listed = await self._source.list_groups()
        return [
            group.group_id
            for group in listed
            if group.protocol_type in _CONSUMERS and self._selection.has_group(group.group_id)
        ]

    async def _mirror_group(self, name: str, copies: Mapping[TopicPartition, PartitionCopy]) -> bool:
        """Write the offsets of a group that have changed; return whether it has any in what is copied."""
        if name in self.moved:
            return True
        wanted = {
            partition: _within(offset, copies[partition].end_offset)
            for partition, offset in (await offsets_of(self._source, name)).items()
            if partition in copies and copies[partition].problem is None and copies[partition].position is not None
        }
        if not wanted:
            return False
        present = await offsets_of(self._destination, name)
        written = self._written.setdefault(name, {})
        if not _is_ours(present, wanted, written):
            self.moved.add(name)
            return True
        changes = {}
        for partition, offset in wanted.items():
            here = present.get(partition)
            if _differs(here, offset):
                changes[partition] = offset
            # If the answer gets lost, it is one of them.
            written[partition] = {offset.offset} if here is None else {offset.offset, here.offset}
        if changes:
            await self._write(name, changes)
        return True

    async def _write(self, name: str, changes: Offsets) -> None:
        for outcome in await self._destination.alter_group_offsets(name, changes, raise_errors=False):
            error = outcome.error
            if error is not None and error.wire_code in _HAS_MEMBERS:
                self.moved.add(name)
            elif error is not None and not error.retriable:
                raise error

    async def differences(self, copies: Mapping[TopicPartition, PartitionCopy]) -> tuple[int, list[str]]:
        """Return the number of groups that were compared, and what differs."""
        count, found = 0, []
        for name in await self.names():
            theirs = {
                partition: offset
                for partition, offset in (await offsets_of(self._source, name)).items()
                if partition in copies
            }
            count += bool(theirs)
            if not theirs or name in self.moved:
                continue
            ours = await offsets_of(self._destination, name)
            for partition, offset in theirs.items():
                here = ours.get(partition)
                if _differs(here, offset):
                    found.append(
                        f"group {name} is at {offset.offset} of {partition} in the source, "
                        f"and at {'no offset' if here is None else here.offset} in the destination"
                    )
        return count, found


async def offsets_of(admin: Admin, group: str) -> Offsets:
    """Return the committed offsets of a group; none if there is no such group."""
    try:
        return {
            TopicPartition(row.topic, row.partition): OffsetAndMetadata(row.offset, row.metadata)
            for row in await admin.list_group_offsets(group)
        }
    except KafkaError as error:
        if error.retriable:
            raise
        return {}


def _within(offset: OffsetAndMetadata, end: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(min(offset.offset, end), offset.metadata)


def _differs(present: OffsetAndMetadata | None, wanted: OffsetAndMetadata) -> bool:
    return present is None or (present.offset, present.metadata) != (wanted.offset, wanted.metadata)


def _is_ours(present: Offsets, wanted: Offsets, written: Mapping[TopicPartition, set[int]]) -> bool:
    """Whether nobody but a mirror has committed these offsets.

    What an earlier mirror has written is not ahead of the source. An offset that is, is the group's own.
    """
    for partition, offset in present.items():
        if partition in written:
            if offset.offset not in written[partition]:
                return False
        elif partition in wanted and offset.offset > wanted[partition].offset:
            return False
    return True
