"""The response of each API to a request that failed as a whole, like `getErrorResponse` of Kafka's requests.

The code goes to the top of the response if the version has a field for it there. Otherwise the response has an entry
with the code for each entry of the request: the first list of the request is answered by the first list of the response
whose entries carry codes, level by level. An entry repeats the fields that say what it is about. `error_answer` does
this for every API; the tables below hold the exceptions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import ALL_VERSIONS, Message, Versions, WireField
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopicResult,
)
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResult,
)
from ottla.protocol.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
)
from ottla.protocol.primitives import Array

# The names of a field with a code; the second is that of AddPartitionsToTxn.
_CODES: Final = ("error_code", "partition_error_code")
# Fields that tell which entry of the request an entry of the response is about.
_NAMES: Final = frozenset(
    {
        "entity",
        "entity_name",
        "entity_type",
        "group_id",
        "index",
        "key",
        "name",
        "partition",
        "partition_id",
        "partition_index",
        "resource_name",
        "resource_type",
        "topic",
        "topic_id",
        "transactional_id",
    }
)
# The name of such a field in Fetch requests.
_OTHER_NAMES: Final = {"partition_index": "partition"}
# What Kafka sends for numbers that are unknown after an error. Other numbers are zero or have their own default.
_UNKNOWN: Final = dict.fromkeys(
    (
        "base_offset",
        "committed_offset",
        "controller_id",
        "end_offset",
        "expiry_timestamp_ms",
        "generation_id",
        "high_watermark",
        "issue_timestamp_ms",
        "low_watermark",
        "max_timestamp_ms",
        "node_id",
        "port",
        "producer_epoch",
        "producer_id",
    ),
    -1,
)
# Versions in which Kafka repeats the top-level code in every entry, because some clients look only there.
_REPEATED: Final[Mapping[Api, Versions]] = {
    Api.FETCH: Versions(0, 12),
    Api.ELECT_LEADERS: ALL_VERSIONS,
    Api.ALTER_PARTITION_REASSIGNMENTS: ALL_VERSIONS,
    Api.STOP_REPLICA: ALL_VERSIONS,
}
# Versions in which clients treat a response without entries as an error, because a successful one always has some.
_EMPTY_IS_ERROR: Final[Mapping[Api, Versions]] = {Api.DESCRIBE_LOG_DIRS: Versions(0, 2)}


class _Error(NamedTuple):
    version: int
    code: ErrorCode
    message: str


_Entries = Callable[[Any, Any, _Error], dict[str, list[Message]]]


def error_answer(api: Api, version: int, body: Any, code: ErrorCode, message: str) -> Message | None:
    """Return the response to a request that failed; None if no response of the API can carry the error."""
    if api is Api.PRODUCE and body.acks == 0:
        return None
    error = _Error(version, code, message)
    response: Any = api.response
    values = dict(_values(response, error))
    is_told = _has_code(response, version) or version in _EMPTY_IS_ERROR.get(api, ())
    if not is_told or version in _REPEATED.get(api, ()):
        make: _Entries = _SPECIAL.get(api, _entries)
        entries = make(response, body, error)
        values.update(entries)
        is_told = is_told or any(entries.values())
    return response(**values) if is_told else None


def _entries(response: Any, asked: Any, error: _Error) -> dict[str, list[Message]]:
    """Return the list of the response that carries codes, with one entry for each entry of the request."""
    answered, listed = _lists(response, asked.__class__, error.version)
    return {answered.name: [_entry(answered.type.item, each, error) for each in getattr(asked, listed.name) or ()]}


def _entry(entry: Any, asked: Any, error: _Error) -> Message:
    values = dict(_values(entry, error))
    names, is_between = _layout(entry, error.version)
    for field in names:
        values[field.name] = _name(field, asked, error)
    if is_between:
        values.update(_entries(entry, asked, error))
    made: Message = entry(**values)
    return made


@cache
def _lists(response: Any, request: Any, version: int) -> tuple[WireField, WireField]:
    """Return the list of a response that carries codes, and the list of the request that it answers."""
    answered = next(field for field in response.wire_fields if _carries_codes(field, version))
    listed = next(field for field in request.wire_fields if isinstance(field.type, Array) and version in field.versions)
    return answered, listed


@cache
def _layout(entry: Any, version: int) -> tuple[tuple[WireField, ...], bool]:
    """Return the fields that tell what an entry is about, and whether only entries within it carry a code."""
    names = tuple(field for field in entry.wire_fields if field.name in _NAMES and version in field.versions)
    carries = any(_carries_codes(field, version) for field in entry.wire_fields)
    return names, carries and not _has_code(entry, version)


def _name(field: WireField, asked: Any, error: _Error) -> Any:
    if not isinstance(asked, Message):
        return asked
    other_name = _OTHER_NAMES.get(field.name, field.name)
    # The request may lack the field: a topic that was to be created has no id yet.
    value = getattr(asked, field.name, getattr(asked, other_name, field.absent))
    if isinstance(field.type, Array):
        return [_entry(field.type.item, part, error) for part in value]
    # A topic that was requested by id has no name, and null is not allowed in every version.
    return "" if value is None and error.version not in field.nullable else value


# A request may have thousands of entries, which all carry the same error.
@lru_cache(256)
def _values(cls: Any, error: _Error) -> Mapping[str, Any]:
    """Return the fields of a message that carries nothing but the error."""
    values = {
        field.name: _UNKNOWN[field.name] if field.default is MISSING and field.name in _UNKNOWN else field.absent
        for field in cls.wire_fields
    }
    for name in _CODES:
        if _has(cls, name, error.version):
            values[name] = int(error.code)
    if _has(cls, "error_message", error.version):
        values["error_message"] = error.message
    return values


def _has(cls: type[Message], name: str, version: int) -> bool:
    return any(field.name == name and version in field.versions for field in cls.wire_fields)


def _has_code(cls: type[Message], version: int) -> bool:
    return any(_has(cls, name, version) for name in _CODES)


def _carries_codes(field: WireField, version: int) -> bool:
    """Whether a field is a list whose entries carry a code, at any level."""
    item = field.type.item if isinstance(field.type, Array) else None
    if version not in field.versions or not (isinstance(item, type) and issubclass(item, Message)):
        return False
    return _has_code(item, version) or any(_carries_codes(inner, version) for inner in item.wire_fields)


def _of_users(
    _response: type[Message], body: AlterUserScramCredentialsRequest, error: _Error
) -> dict[str, list[Message]]:
    """Return one entry for each user. The request may name a user in both of its lists."""
    users = dict.fromkeys(change.name for changes in (body.deletions, body.upsertions) for change in changes)
    rows = [
        AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=error.message) for user in users
    ]
    return {"results": [*rows]}


def _of_replicas(_response: type[Message], body: StopReplicaRequest, error: _Error) -> dict[str, list[Message]]:
    """Return one entry for each partition. Every version groups them in its own way; the response has a flat list."""
    stopped = [(each.topic_name, each.partition_index) for each in body.ungrouped_partitions]
    stopped += [(topic.name, index) for topic in body.topics for index in topic.partition_indexes]
    for state in body.topic_states:
        stopped += [(state.topic_name, each.partition_index) for each in state.partition_states]
    return {
        "partition_errors": [
            StopReplicaPartitionError(topic_name=topic, partition_index=index, error_code=error.code)
            for topic, index in stopped
        ]
    }


def _of_log_dirs(_response: type[Message], body: AlterReplicaLogDirsRequest, error: _Error) -> dict[str, list[Message]]:
    """Return the partitions by topic. The request groups topics by directory; the response does not."""
    return {
        "results": [
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error.code)
                    for index in topic.partitions
                ],
            )
            for directory in body.dirs
            for topic in directory.topics
        ]
    }


def _of_markers(_response: type[Message], body: WriteTxnMarkersRequest, error: _Error) -> dict[str, list[Message]]:
    """Return one entry for each marker: it is known by its producer."""
    results: list[Message] = []
    for marker in body.markers:
        topics: list[Any] = [_entry(WritableTxnMarkerTopicResult, topic, error) for topic in marker.topics]
        results.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
    return {"markers": results}


_SPECIAL: Final[Mapping[Api, _Entries]] = {
    Api.ALTER_REPLICA_LOG_DIRS: _of_log_dirs,
    Api.ALTER_USER_SCRAM_CREDENTIALS: _of_users,
    Api.STOP_REPLICA: _of_replicas,
    Api.WRITE_TXN_MARKERS: _of_markers,
}
