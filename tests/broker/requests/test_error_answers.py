"""What every API says in every version when a request fails as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.broker.handlers.data_path import received, topic_id
from tests.broker.handlers.small_cluster import every_version
from tests.broker.requests.access_samples import SAMPLES

from ottla.broker.handlers.table import HANDLERS
from ottla.broker.requests.error_answers import error_answer
from ottla.protocol.api import Api
from ottla.protocol.codec import decode, encode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Message
from ottla.protocol.plain_values import message_of

CODE = ErrorCode.KAFKA_STORAGE_ERROR
TEXT = "the disk is gone"

ID, OTHER_ID = topic_id("t"), topic_id("u")
_PARTITIONS = [
    {"partition_index": index, "partition": index, "index": index, "timestamp": 5, "leader_epoch": 6, "records": b""}
    for index in (0, 3)
]
_TOPICS = [
    {
        "name": name,
        "topic": name,
        "topic_name": name,
        "topic_id": each,
        "partitions": _PARTITIONS,
        "partition_data": _PARTITIONS,
        "partition_states": _PARTITIONS,
        "partition_indexes": [0, 3],
        "num_partitions": 4,
        "replication_factor": 2,
    }
    for name, each in (("t", ID), ("u", OTHER_ID))
]
_RESOURCES = [{"resource_type": 2, "resource_name": "t"}, {"resource_type": 4, "resource_name": "1"}]
_BY_TOPIC = {"t", "u"}
_BY_PARTITION = {("t", 0), ("t", 3), ("u", 0), ("u", 3)}

# Requests with several entries, and what the entries of the answer must be about.
ENTRIES: dict[Api, tuple[dict[str, Any], Any]] = {
    Api.PRODUCE: ({"acks": -1, "topic_data": _TOPICS}, _BY_PARTITION),
    Api.FETCH: ({"topics": _TOPICS}, _BY_PARTITION),
    Api.LIST_OFFSETS: ({"topics": _TOPICS}, _BY_PARTITION),
    Api.OFFSET_FOR_LEADER_EPOCH: ({"topics": _TOPICS}, _BY_PARTITION),
    Api.DELETE_RECORDS: ({"topics": _TOPICS}, _BY_PARTITION),
    Api.MIRROR_APPEND: ({"topics": _TOPICS}, _BY_PARTITION),
    Api.METADATA: ({"topics": _TOPICS}, _BY_TOPIC),
    Api.CREATE_TOPICS: ({"topics": _TOPICS}, _BY_TOPIC),
    Api.DELETE_TOPICS: ({"topics": _TOPICS, "topic_names": ["t", "u"]}, _BY_TOPIC),
    Api.CREATE_PARTITIONS: ({"topics": _TOPICS}, _BY_TOPIC),
    Api.DESCRIBE_CONFIGS: ({"resources": _RESOURCES}, {(2, "t"), (4, "1")}),
    Api.ALTER_CONFIGS: ({"resources": _RESOURCES}, {(2, "t"), (4, "1")}),
    Api.INCREMENTAL_ALTER_CONFIGS: ({"resources": _RESOURCES}, {(2, "t"), (4, "1")}),
    Api.FIND_COORDINATOR: ({"coordinator_keys": ["g", "h"], "key": "g"}, {"g", "h"}),
    Api.OFFSET_COMMIT: ({"group_id": "g", "topics": _TOPICS}, _BY_PARTITION),
    Api.OFFSET_FETCH: (
        {"group_id": "g", "topics": _TOPICS, "groups": [{"group_id": "g", "topics": _TOPICS}, {"group_id": "h"}]},
        None,
    ),
    Api.TXN_OFFSET_COMMIT: ({"group_id": "g", "topics": _TOPICS}, _BY_PARTITION),
    Api.DESCRIBE_PRODUCERS: ({"topics": _TOPICS}, _BY_PARTITION),
    Api.DESCRIBE_TRANSACTIONS: ({"transactional_ids": ["x", "y"]}, {"x", "y"}),
    Api.WRITE_TXN_MARKERS: (
        {"markers": [{"producer_id": 7, "topics": _TOPICS}]},
        {(7, *each) for each in _BY_PARTITION},
    ),
    Api.ADD_PARTITIONS_TO_TXN: (
        {"v3_and_below_topics": [{"name": name, "partitions": [0, 3]} for name in "tu"]},
        _BY_PARTITION,
    ),
    Api.DESCRIBE_GROUPS: ({"groups": ["g", "h"]}, {"g", "h"}),
    Api.DELETE_GROUPS: ({"groups_names": ["g", "h"]}, {"g", "h"}),
    Api.CONSUMER_GROUP_DESCRIBE: ({"group_ids": ["g", "h"]}, {"g", "h"}),
    Api.CREATE_ACLS: ({"creations": [{"resource_name": "t"}, {"resource_name": "u"}]}, 2),
    Api.DELETE_ACLS: ({"filters": [{"operation": 1}, {"operation": 2}]}, 2),
    Api.ALTER_REPLICA_LOG_DIRS: (
        {
            "dirs": [
                {"path": "/a", "topics": [{"name": "t", "partitions": [0, 1]}]},
                {"path": "/b", "topics": [{"name": "u", "partitions": [0]}]},
            ]
        },
        {("t", 0), ("t", 1), ("u", 0)},
    ),
    Api.ALTER_USER_SCRAM_CREDENTIALS: (
        {"deletions": [{"name": "ann"}], "upsertions": [{"name": "bob"}, {"name": "ann"}]},
        {"ann", "bob"},
    ),
    Api.ALTER_CLIENT_QUOTAS: (
        {"entries": [{"entity": [{"entity_type": "user", "entity_name": name}], "ops": []} for name in ("ann", None)]},
        {("user", "ann"), ("user", None)},
    ),
    Api.ELECT_LEADERS: ({"topic_partitions": [{"topic": name, "partitions": [0, 3]} for name in "tu"]}, _BY_PARTITION),
    Api.ALTER_PARTITION_REASSIGNMENTS: ({"topics": _TOPICS}, _BY_PARTITION),
    Api.STOP_REPLICA: (
        {
            "ungrouped_partitions": [{"topic_name": topic, "partition_index": index} for topic, index in _BY_PARTITION],
            "topics": _TOPICS,
            "topic_states": _TOPICS,
        },
        _BY_PARTITION,
    ),
}
NAMES: dict[Any, str] = {ID: "t", OTHER_ID: "u"}


def asked(api: Api, version: int, values: dict[str, Any]) -> Any:
    """A request as the broker decodes it."""
    return decode(api.request, version, encode(message_of(api.request, values, version), version))


def answered(api: Api, version: int, body: Any, code: ErrorCode = CODE) -> Any:
    """The error answer as a client decodes it."""
    answer = error_answer(api, version, body, code, TEXT)
    assert answer is not None
    return received(api, version, answer)


def codes(response: Any, version: int) -> set[int]:
    """All error codes that the version has a place for."""
    found: set[int] = set()
    for field in response.wire_fields:
        value = getattr(response, field.name)
        if version not in field.versions:
            continue
        if field.name in ("error_code", "partition_error_code"):
            found.add(value)
        for part in value if isinstance(value, list) else ():
            found |= codes(part, version) if isinstance(part, Message) else set()
    return found


def leaves(response: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The innermost entries with an error code, and what stands around them that names them."""
    for field in response.wire_fields:
        for part in value if isinstance(value := getattr(response, field.name), list) else ():
            if not isinstance(part, Message):
                continue
            row: Any = part
            if hasattr(row, "error_code") or hasattr(row, "partition_error_code"):
                yield name_of(row), row
            else:
                for name, leaf in leaves(row):
                    yield (*name_of(row), *name), leaf


def name_of(row: Any) -> tuple[Any, ...]:
    """What an entry is about, whatever its API calls that."""
    if (topic := NAMES.get(getattr(row, "topic_id", None))) is not None and not getattr(row, "name", None):
        return (topic,)
    if hasattr(row, "entity"):
        return (row.entity[0].entity_type, row.entity[0].entity_name)
    if hasattr(row, "transactional_id"):
        return (row.transactional_id,)
    fields = (
        "topic_name",
        "name",
        "topic",
        "group_id",
        "producer_id",
        "key",
        "user",
        "resource_type",
        "resource_name",
        "partition_index",
        "partition_id",
        "partition",
        "index",
    )
    return tuple(getattr(row, field) for field in fields if hasattr(row, field))


@pytest.mark.parametrize(("api", "kind"), SAMPLES, ids=lambda each: each.name)
def test_every_api_can_say_in_every_version_that_a_request_failed(api: Api, kind: Any) -> None:
    """With the code, and no other."""
    for version in every_version(api):
        values = dict(SAMPLES[api, kind])
        if api is Api.METADATA and version == 0:
            values["topics"] = values["topics"] or []
        body = asked(api, version, values)
        answer = error_answer(api, version, body, CODE, TEXT)
        if api is Api.METADATA and not body.topics:
            assert answer is None
        elif api is Api.DESCRIBE_LOG_DIRS and version < 3:
            assert received(api, version, answer or body).results == []
        else:
            assert answer is not None
            assert codes(received(api, version, answer), version) == {CODE}


def test_what_the_broker_serves_is_all_tried() -> None:
    """Those without rights have no sample above, and fail at the top."""
    for api in HANDLERS.keys() - {api for api, _ in SAMPLES}:
        for version in every_version(api):
            assert answered(api, version, asked(api, version, {})).error_code == CODE


@pytest.mark.parametrize("api", ENTRIES, ids=lambda api: api.label)
def test_every_entry_of_a_request_is_answered_where_no_code_stands_above(api: Api) -> None:
    """And some, for clients that do not look above."""
    values, expected = ENTRIES[api]
    for version in every_version(api):
        answer = answered(api, version, asked(api, version, values))
        rows = list(leaves(answer))
        assert codes(answer, version) == {CODE}
        if hasattr(answer, "error_code") and answer.error_code == CODE and not rows:
            continue
        if isinstance(expected, int):
            assert len(rows) == expected
            continue
        named = [name if len(name) > 1 else name[0] for name, _ in rows]
        wanted = expected
        if api is Api.OFFSET_FETCH:
            wanted = _BY_PARTITION if version < 2 else {"g", "h"}
        assert (set(named), len(named)) == (wanted, len(wanted))


def test_the_code_of_the_top_is_repeated_where_clients_may_look_below() -> None:
    """As Kafka does: in Fetch up to 12, and for controllers that wait for replicas to be deleted."""
    for api, versions in {Api.FETCH: range(7, 13), Api.STOP_REPLICA: range(5), Api.ELECT_LEADERS: range(1, 3)}.items():
        for version in versions:
            answer = answered(api, version, asked(api, version, ENTRIES[api][0]))
            assert answer.error_code == CODE
            assert len(list(leaves(answer))) == len(_BY_PARTITION)
    assert answered(Api.FETCH, 13, asked(Api.FETCH, 13, ENTRIES[Api.FETCH][0])).responses == []


def test_numbers_that_are_not_known_are_what_kafka_sends() -> None:
    """Not those of the request, and not zero, which is an offset."""
    rows = {
        api: next(leaves(answered(api, version, asked(api, version, ENTRIES[api][0]))))[1]
        for api, version in {
            Api.PRODUCE: 9,
            Api.FETCH: 6,
            Api.LIST_OFFSETS: 7,
            Api.OFFSET_FOR_LEADER_EPOCH: 4,
            Api.DELETE_RECORDS: 2,
            Api.OFFSET_FETCH: 1,
            Api.CREATE_TOPICS: 7,
        }.items()
    }

    assert rows[Api.PRODUCE].base_offset == -1
    assert rows[Api.PRODUCE].error_message == TEXT
    assert rows[Api.FETCH].high_watermark == -1
    assert (rows[Api.LIST_OFFSETS].timestamp, rows[Api.LIST_OFFSETS].offset) == (-1, -1)
    epoch = rows[Api.OFFSET_FOR_LEADER_EPOCH]
    assert (epoch.leader_epoch, epoch.end_offset) == (-1, -1)
    assert rows[Api.DELETE_RECORDS].low_watermark == -1
    assert rows[Api.OFFSET_FETCH].committed_offset == -1
    assert (rows[Api.CREATE_TOPICS].num_partitions, rows[Api.CREATE_TOPICS].replication_factor) == (-1, -1)


def test_a_topic_without_a_name_is_answered_by_its_id() -> None:
    """Versions that cannot leave the name out have an empty one."""
    for version, name in ((10, ""), (12, None)):
        body = asked(Api.METADATA, version, {"topics": [{"name": None, "topic_id": ID}]})
        [row] = answered(Api.METADATA, version, body).topics
        assert (row.name, row.topic_id, row.error_code) == (name, ID, CODE)


def test_a_request_that_no_answer_can_follow_has_none() -> None:
    """An answer without any code would say that all went well."""
    version = Api.PRODUCE.versions.last
    silent = asked(Api.PRODUCE, version, {**ENTRIES[Api.PRODUCE][0], "acks": 0})
    empty = asked(Api.CREATE_TOPICS, 7, {"topics": []})

    assert error_answer(Api.PRODUCE, version, silent, CODE, TEXT) is None
    assert error_answer(Api.CREATE_TOPICS, 7, empty, CODE, TEXT) is None
