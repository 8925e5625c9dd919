"""What an API answers when a request failed as a whole, as `getErrorResponse` of Kafka's requests does.

The code stands at the top of the response where the version has a place for it there. Otherwise it stands in one entry
for each entry of the request: the first list of the request is answered by the list of the response whose entries carry
codes, level by level, and an entry repeats the fields that say what it is about. `error_answer` is the one function for
it; what does not follow these rules has a row in one of the tables below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING
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
from ottla.protocol.primitives import Array

# What says which entry of the request an entry of the response is about.
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
    }
)
# Fetch has another name for it in the request.
_OTHER_NAMES: Final = {"partition_index": "partition"}
# What Kafka gives in place of numbers that an error leaves unknown; others are zero, or have a default of their own.
_UNKNOWN: Final = dict.fromkeys(
    (
        "base_offset",
        "committed_offset",
        "controller_id",
        "end_offset",
        "generation_id",
        "high_watermark",
        "low_watermark",
        "node_id",
        "port",
        "producer_epoch",
        "producer_id",
    ),
    -1,
)
# Versions in which Kafka repeats the code of the top in every entry: clients may look there alone.
_REPEATED: Final[Mapping[Api, Versions]] = {
    Api.FETCH: Versions(0, 12),
    Api.ELECT_LEADERS: ALL_VERSIONS,
    Api.ALTER_PARTITION_REASSIGNMENTS: ALL_VERSIONS,
    Api.STOP_REPLICA: ALL_VERSIONS,
}
# Where clients take an answer without entries for an error, because no successful one is.
_EMPTY_IS_ERROR: Final[Mapping[Api, Versions]] = {Api.DESCRIBE_LOG_DIRS: Versions(0, 2)}


class _Error(NamedTuple):
    version: int
    code: ErrorCode
    message: str


def error_answer(api: Api, version: int, body: Any, code: ErrorCode, message: str) -> Message | None:
    """Return the response that says that a request failed; None where no response of the API could say so."""
    if api is Api.PRODUCE and body.acks == 0:
        return None
    error = _Error(version, code, message)
    response = api.response
    values = _values(response, error)
    is_told = _has(response, "error_code", version) or version in _EMPTY_IS_ERROR.get(api, ())
    if not is_told or version in _REPEATED.get(api, ()):
        entries = _SPECIAL.get(api, _entries)(response, body, error)
        values.update(entries)
        is_told = is_told or any(entries.values())
    return response(**values) if is_told else None


def _entries(response: type[Message], asked: Any, error: _Error) -> dict[str, list[Message]]:
    """Return the field of a response that has an entry for each entry of what was asked, and these entries."""
    answered = next(field for field in response.wire_fields if _carries_codes(field, error.version))
    listed = next(
        field for field in asked.wire_fields if isinstance(field.type, Array) and error.version in field.versions
    )
    return {answered.name: [_entry(answered.type.item, each, error) for each in getattr(asked, listed.name) or ()]}


def _entry(entry: type[Message], asked: Any, error: _Error) -> Message:
    values = _values(entry, error)
    for field in entry.wire_fields:
        if field.name in _NAMES and error.version in field.versions:
            values[field.name] = _name(field, asked, error)
    is_between = any(_carries_codes(field, error.version) for field in entry.wire_fields)
    if is_between and not _has(entry, "error_code", error.version):
        values.update(_entries(entry, asked, error))
    return entry(**values)


def _name(field: WireField, asked: Any, error: _Error) -> Any:
    if not isinstance(asked, Message):
        return asked
    other_name = _OTHER_NAMES.get(field.name, field.name)
    # What the request does not have is not known, either: the id of a topic that was to be created.
    value = getattr(asked, field.name, getattr(asked, other_name, field.absent))
    if isinstance(field.type, Array):
        return [_entry(field.type.item, part, error) for part in value]
    # A topic that was asked for by its id has no name, and not every version may say so.
    return "" if value is None and error.version not in field.nullable else value


def _values(cls: type[Message], error: _Error) -> dict[str, Any]:
    """Return the fields of a message that says nothing but the error."""
    values = {
        field.name: _UNKNOWN[field.name] if field.default is MISSING and field.name in _UNKNOWN else field.absent
        for field in cls.wire_fields
    }
    if _has(cls, "error_code", error.version):
        values["error_code"] = int(error.code)
    if _has(cls, "error_message", error.version):
        values["error_message"] = error.message
    return values


def _has(cls: type[Message], name: str, version: int) -> bool:
    return any(field.name == name and version in field.versions for field in cls.wire_fields)


def _carries_codes(field: WireField, version: int) -> bool:
    """Whether a field is a list whose entries, or theirs, have a place for a code."""
    item = field.type.item if isinstance(field.type, Array) else None
    if version not in field.versions or not (isinstance(item, type) and issubclass(item, Message)):
        return False
    return _has(item, "error_code", version) or any(_carries_codes(inner, version) for inner in item.wire_fields)


def _of_users(
    _response: type[Message], body: AlterUserScramCredentialsRequest, error: _Error
) -> dict[str, list[Message]]:
    """Two lists ask, and each user is answered once."""
    users = dict.fromkeys(change.name for changes in (body.deletions, body.upsertions) for change in changes)
    rows = [
        AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=error.message) for user in users
    ]
    return {"results": [*rows]}


def _of_replicas(_response: type[Message], body: StopReplicaRequest, error: _Error) -> dict[str, list[Message]]:
    """The request groups partitions by topic, in another way in each version; the response does not."""
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
    """The request groups topics by directory; the response does not."""
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


_SPECIAL: Final[Mapping[Api, Callable[[type[Message], Any, _Error], dict[str, list[Message]]]]] = {
    Api.ALTER_REPLICA_LOG_DIRS: _of_log_dirs,
    Api.ALTER_USER_SCRAM_CREDENTIALS: _of_users,
    Api.STOP_REPLICA: _of_replicas,
}
