"""Loads the groups and offsets of a partition of `__consumer_offsets`.

Only the newest record of each key counts. So the log is read once into a table of keys, as compaction does, and only
the records that remain are decoded. Records of a transaction are kept apart until its marker is read. If it was
committed, they count unless the log has newer ones.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import structlog
from msgspec import Struct, field

from ottla.broker.coordination.log_reading import batches_to_end
from ottla.broker.coordination.stored_records import StoredRecord
from ottla.broker.groups.classic.messages import GroupSnapshot
from ottla.broker.groups.offsets.offset_store import CommittedOffset, OffsetStore
from ottla.broker.groups.records import (
    GROUP_KEY_VERSION,
    OFFSET_KEY_VERSION,
    key_version,
    read_group_id,
    read_group_value,
    read_offset_key,
    read_offset_value,
)
from ottla.broker.storage.log import Log
from ottla.protocol.control_records import ControlType, read_marker
from ottla.protocol.errors import CorruptBatchError, DecodeError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.records import RecordBatch

log = structlog.get_logger(__name__)

_UNREADABLE: Final = (DecodeError, CorruptBatchError, IndexError, UnicodeDecodeError, struct.error)
_OLD_OFFSET_KEY: Final = b"\x00\x00"
_OFFSET_KEY: Final = b"\x00\x01"

# By key: the base offset of the batch with the newest value, and the value.
_Table = dict[bytes, tuple[int, bytes]]


class LoadedGroup(Struct):
    """One group, as found in the log."""

    # None for a group without a record of its own, and for consumer groups.
    snapshot: GroupSnapshot | None = None
    offsets: OffsetStore = field(default_factory=OffsetStore)
    # All other records of the group, by key version.
    others: dict[int, list[StoredRecord]] = field(default_factory=dict)


class Replay:
    """Collects the newest value of each key from the batches of a log."""

    def __init__(self) -> None:
        self.record_count = 0
        # The end of the log when reading began.
        self.end_offset = 0
        self._newest: _Table = {}
        # The values of open transactions, by producer id.
        self._pending: dict[int, _Table] = {}

    def take(self, batch: RecordBatch) -> None:
        """Add the next batch."""
        if batch.is_control:
            self._end_transaction(batch)
            return
        table = self._pending.setdefault(batch.producer_id, {}) if batch.is_transactional else self._newest
        base_offset = batch.base_offset
        self.record_count += batch.record_count
        for _, _, key, value, _ in batch.records():
            if key is None:
                continue
            if key[:2] == _OLD_OFFSET_KEY:
                key = _OFFSET_KEY + key[2:]
            if value is None:
                table.pop(key, None)
                if table is self._newest:
                    # The tombstone also deletes earlier values of open transactions.
                    for pending in self._pending.values():
                        pending.pop(key, None)
            else:
                table[key] = (base_offset, value)

    def _end_transaction(self, batch: RecordBatch) -> None:
        marker = read_marker(batch)
        if marker is None:
            return
        ended = self._pending.pop(batch.producer_id, {})
        if marker.control_type is not ControlType.COMMIT:
            return
        for key, brought in ended.items():
            known = self._newest.get(key)
            if known is None or known[0] < brought[0]:
                self._newest[key] = brought

    def groups(self) -> dict[str, LoadedGroup]:
        """Decode and return the groups. This consumes the collected values, to save memory."""
        return _Reader().read(self._newest, self._pending)


class _Reader:
    """Decodes keys and values. The names of groups and topics are decoded once, not for each partition."""

    def __init__(self) -> None:
        self._groups: dict[str, LoadedGroup] = {}
        # Group and topic name, by the part of the key before the partition number.
        self._places: dict[bytes, tuple[LoadedGroup, str]] = {}
        self._topics: dict[bytes, str] = {}

    def read(self, newest: _Table, pending: dict[int, _Table]) -> dict[str, LoadedGroup]:
        while newest:
            key, (base_offset, value) = newest.popitem()
            try:
                if key[:2] == _OFFSET_KEY:
                    group, partition = self._offset(key)
                    group.offsets.committed[partition] = read_offset_value(value, base_offset)
                else:
                    self._other(key, value)
            except _UNREADABLE as error:
                log.error("group_record_unreadable", offset=base_offset, error=str(error))
        for producer_id, table in pending.items():
            for key, (base_offset, value) in table.items():
                if key_version(key) == OFFSET_KEY_VERSION:
                    self._pending_offset(producer_id, key, base_offset, value)
        return self._groups

    def _offset(self, key: bytes) -> tuple[LoadedGroup, TopicPartition]:
        place = self._places.get(key[:-4])
        if place is None:
            name, topic_name, _ = read_offset_key(key)
            topic = self._topics.setdefault(topic_name, topic_name.decode())
            place = self._places[key[:-4]] = (self._group(name.decode()), topic)
        index = int.from_bytes(key[-4:], "big", signed=True)
        return place[0], tuple.__new__(TopicPartition, (place[1], index))

    def _pending_offset(self, producer_id: int, key: bytes, base_offset: int, value: bytes) -> None:
        try:
            group, partition = self._offset(key)
            committed: CommittedOffset = read_offset_value(value, base_offset)
        except _UNREADABLE as error:
            log.error("group_record_unreadable", offset=base_offset, error=str(error))
            return
        group.offsets.put_pending(producer_id, {partition: committed})

    def _other(self, key: bytes, value: bytes) -> None:
        version = key_version(key)
        if version <= OFFSET_KEY_VERSION:
            raise DecodeError(f"unknown key version {version}")
        group_id = read_group_id(key)
        group = self._group(group_id)
        if version == GROUP_KEY_VERSION:
            group.snapshot = read_group_value(group_id, value)
        else:
            group.others.setdefault(version, []).append(StoredRecord(key, value))

    def _group(self, group_id: str) -> LoadedGroup:
        return self._groups.setdefault(group_id, LoadedGroup())


def replay_log(source: Log, buffer_bytes: int, is_wanted: Callable[[], bool]) -> Replay | None:
    """Read a log up to its current end; return None as soon as `is_wanted` returns False.

    Raises KafkaError, CorruptBatchError or OSError if the log cannot be read.
    """
    replay = Replay()
    replay.end_offset = source.log_end_offset
    for batch in batches_to_end(source, replay.end_offset, buffer_bytes):
        if not is_wanted():
            return None
        replay.take(batch)
    return replay
