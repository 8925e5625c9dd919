"""Rules that a broker may break, and the checks that have to notice: each lie turns these red, and no others."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from tests.client.certify.lying_broker import Exchange, Lie, answered

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frame import frame
from ottla.protocol.message import Message
from ottla.protocol.messages.fetch import FetchableTopicResponse, PartitionData
from ottla.protocol.messages.list_offsets import LATEST, MAX_TIMESTAMP
from ottla.protocol.messages.produce import ProduceResponse
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import RecordBatch, batches
from ottla.protocol.requests import encode_response


def _rows(message: Message) -> list[Any]:
    """Return a message and all messages in it."""
    found: list[Any] = [message]
    for each in message.wire_fields:
        value = getattr(message, each.name)
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, Message):
                found += _rows(part)
    return found


def other_code(
    api: Api, code: ErrorCode, instead: ErrorCode = ErrorCode.NONE, when: Callable[[Exchange], bool] = lambda _: True
) -> Callable[[Exchange, Any], None]:
    """Answer another error code than the broker does."""

    def change(exchange: Exchange, response: Any) -> None:
        if exchange.api is api and when(exchange):
            for row in _rows(response):
                for name in ("error_code", "partition_error_code"):
                    if getattr(row, name, None) == code:
                        setattr(row, name, instead)

    return change


def _request(api: Api, **values: Any) -> Callable[[Exchange], None]:
    """Change fields of a request, at any depth."""

    def change(exchange: Exchange) -> None:
        if exchange.api is api:
            for row in _rows(exchange.request):
                for name, value in values.items():
                    if hasattr(row, name):
                        setattr(row, name, value)

    return change


def _response(api: Api, **values: Any) -> Callable[[Exchange, Any], None]:
    """Change fields of a response, at any depth."""

    def change(exchange: Exchange, response: Any) -> None:
        if exchange.api is api:
            for row in _rows(response):
                for name, value in values.items():
                    if hasattr(row, name):
                        setattr(row, name, value)

    return change


def _old_header(exchange: Exchange, response: Any) -> bytes | None:
    if (exchange.api, exchange.version) != (Api.DESCRIBE_GROUPS, 5):
        return None
    parts = encode_response(exchange.api, exchange.version, exchange.correlation_id, response)
    body = b"".join(bytes(part) for part in parts)
    # Without the tagged section of the header.
    return frame([body[:4] + body[5:]])


def _twice(exchange: Exchange, response: Any) -> None:
    if exchange.api is Api.API_VERSIONS and exchange.version == 0 and response.api_keys:
        response.api_keys.append(response.api_keys[0])


def _is_unknown_api_versions(body: bytes) -> bool:
    return struct.unpack_from(">hh", body) == (Api.API_VERSIONS, 99)


def _answers_acks_0(exchange: Exchange) -> None:
    if exchange.api is Api.PRODUCE and exchange.request.acks == 0:
        exchange.answer = answered(exchange, ProduceResponse(responses=[]))


def _without_headers(exchange: Exchange, response: Any) -> None:
    if exchange.api is not Api.FETCH:
        return
    for row in _rows(response):
        if not getattr(row, "records", None):
            continue
        kept = bytearray()
        for batch in batches(row.records):
            if batch.is_control or batch.has_producer or batch.is_compressed:
                kept += batch.view
                continue
            builder = RecordBatchBuilder()
            for record in batch.records():
                builder.append(record.timestamp, record.key, record.value)
            kept += builder.build(
                base_offset=batch.base_offset,
                partition_leader_epoch=batch.partition_leader_epoch,
                log_append_time=batch.max_timestamp if batch.timestamp_type else None,
            )
        row.records = bytes(kept)


def _forgets_batches() -> Callable[[Exchange], None]:
    """Take a batch that comes again for a new one."""
    seen: set[tuple[int, int, int]] = set()

    def change(exchange: Exchange) -> None:
        if exchange.api is not Api.PRODUCE:
            return
        for row in _rows(exchange.request):
            records = getattr(row, "records", None)
            if records is None:
                continue
            batch = RecordBatch(bytes(records))
            key = (batch.producer_id, batch.producer_epoch, batch.base_sequence)
            if batch.has_producer and not batch.is_transactional and key in seen:
                builder = RecordBatchBuilder()
                for record in batch.records():
                    builder.append(record.timestamp, record.key, record.value)
                row.records = bytes(builder.build())
            seen.add(key)

    return change


def _swaps_offsets() -> Callable[[Exchange, Any], None]:
    """Give the second and third write of each topic the offsets of each other."""
    seen: dict[str, int] = {}

    def change(exchange: Exchange, response: Any) -> None:
        if exchange.api is Api.PRODUCE and response.responses:
            topic = response.responses[0]
            count = seen[topic.name] = seen.get(topic.name, 0) + 1
            if "-order-of-a-connection-" in topic.name and count in (2, 3):
                topic.partition_responses[0].base_offset += 1 if count == 2 else -1

    return change


def _late_by_one(exchange: Exchange, response: Any) -> None:
    if exchange.api is Api.LIST_OFFSETS:
        asked = exchange.request.topics[0].partitions[0].timestamp
        row = response.topics[0].partitions[0]
        if asked >= 0 and row.offset >= 0:
            row.offset += 1


def _ignores_max_timestamp(exchange: Exchange) -> None:
    if exchange.api is Api.LIST_OFFSETS:
        row = exchange.request.topics[0].partitions[0]
        if row.timestamp == MAX_TIMESTAMP:
            row.timestamp = LATEST


def _lists_everything(exchange: Exchange, response: Any) -> None:
    """Answer incremental fetches with a partition that did not change."""
    if exchange.api is Api.FETCH and exchange.request.session_epoch > 0 and not response.responses:
        row = PartitionData(partition_index=0, error_code=0, high_watermark=0, records=b"")
        response.responses.append(FetchableTopicResponse(topic="t", partitions=[row]))


def _leader_out_of_sync(exchange: Exchange, response: Any) -> None:
    if exchange.api is Api.METADATA:
        for topic in response.topics:
            for row in topic.partitions:
                row.isr_nodes = []


def _no_followers_in_join(exchange: Exchange, response: Any) -> None:
    if exchange.api is Api.JOIN_GROUP and len(response.members) > 1:
        response.members = response.members[:1]


def _ignores_isolation(exchange: Exchange) -> None:
    for api in (Api.FETCH, Api.LIST_OFFSETS):
        _request(api, isolation_level=0)(exchange)


def _is_created_twice(exchange: Exchange) -> bool:
    return bool(exchange.request.topics[0].name.endswith("-admin-creating-topic"))


def _same_correlation_id() -> Callable[[Exchange, Any], bytes | None]:
    """Give the fourth of many Metadata requests the answer of the third."""

    def change(exchange: Exchange, response: Any) -> bytes | None:
        if exchange.api is Api.METADATA and exchange.version == 1 and exchange.correlation_id == 13:
            exchange.correlation_id = 12
        return None

    return change


def _answers_strangers(body: bytes) -> bytes | None:
    key, _, correlation_id = struct.unpack_from(">hhi", body)
    return frame([struct.pack(">ih", correlation_id, ErrorCode.UNSUPPORTED_VERSION)]) if key == 9999 else None


def _is_of_epoch_0(exchange: Exchange) -> bool:
    rows = [row for row in _rows(exchange.request) if getattr(row, "records", None) is not None]
    return all(RecordBatch(bytes(row.records)).producer_epoch == 0 for row in rows)


E = ErrorCode
LIES: list[Lie] = [
    Lie("an old header for a flexible answer", {"versions/DescribeGroups"}, response=_old_header),
    Lie("an API is listed twice", {"versions/ranges"}, response=_twice),
    Lie(
        "ApiVersions in an unknown version ends the connection",
        {"versions/unknown-version-of-api-versions"},
        hangs_up=_is_unknown_api_versions,
    ),
    Lie(
        "any client name is fine",
        {"versions/malformed-client-name"},
        response=other_code(Api.API_VERSIONS, E.INVALID_REQUEST),
    ),
    Lie("a leader that is not in sync", {"metadata/topic"}, response=_leader_out_of_sync),
    Lie(
        "an unknown topic id is an unknown topic",
        {"metadata/topic-ids"},
        response=other_code(Api.METADATA, E.UNKNOWN_TOPIC_ID, E.UNKNOWN_TOPIC_OR_PARTITION),
    ),
    Lie("a write with acks=0 is answered", {"produce/acks-0"}, request=_answers_acks_0),
    Lie(
        "a wrong CRC is accepted",
        {"produce/wrong-crc", "produce/partitions-are-apart"},
        response=other_code(Api.PRODUCE, E.CORRUPT_MESSAGE),
    ),
    Lie(
        "a batch of any size is accepted", {"produce/too-large"}, response=other_code(Api.PRODUCE, E.MESSAGE_TOO_LARGE)
    ),
    Lie(
        "the append time is not told",
        {"produce/log-append-time"},
        response=_response(Api.PRODUCE, log_append_time_ms=-1),
    ),
    Lie("headers are lost", {"produce/contents"}, response=_without_headers),
    Lie("a batch that is sent again is written again", {"idempotence/duplicates"}, request=_forgets_batches()),
    Lie(
        "gaps in sequences are accepted",
        {"idempotence/gaps"},
        response=other_code(Api.PRODUCE, E.OUT_OF_ORDER_SEQUENCE_NUMBER, when=_is_of_epoch_0),
    ),
    Lie("two writes change places", {"order/of-a-connection"}, response=_swaps_offsets()),
    Lie("fetches do not wait", {"fetch/waiting", "fetch/waking"}, request=_request(Api.FETCH, max_wait_ms=0)),
    Lie(
        "the limit of a partition is ignored",
        {"fetch/partition-limit"},
        request=_request(Api.FETCH, partition_max_bytes=1 << 20),
    ),
    Lie("every offset is in range", {"fetch/out-of-range"}, response=other_code(Api.FETCH, E.OFFSET_OUT_OF_RANGE)),
    Lie(
        "a wrong epoch of a session is accepted",
        {"fetch/session-epochs"},
        response=other_code(Api.FETCH, E.INVALID_FETCH_SESSION_EPOCH),
    ),
    Lie("sessions list what did not change", {"fetch/session"}, response=_lists_everything),
    Lie("lookups by time are late by one", {"fetch/by-time"}, response=_late_by_one),
    Lie("the largest timestamp is the last", {"fetch/largest-timestamp"}, request=_ignores_max_timestamp),
    Lie(
        "an earlier generation is accepted",
        {"groups/generations"},
        response=other_code(Api.HEARTBEAT, E.ILLEGAL_GENERATION),
    ),
    Lie("the leader does not see the others", {"groups/life-of-a-group"}, response=_no_followers_in_join),
    Lie(
        "two static members with one instance id",
        {"groups/static-member"},
        response=other_code(Api.HEARTBEAT, E.FENCED_INSTANCE_ID),
    ),
    Lie("metadata of offsets are lost", {"groups/offsets"}, response=_response(Api.OFFSET_FETCH, metadata="")),
    Lie(
        "an epoch of the future is accepted",
        {"consumer-groups/epochs"},
        response=other_code(Api.CONSUMER_GROUP_HEARTBEAT, E.FENCED_MEMBER_EPOCH),
    ),
    Lie(
        "a zombie may commit",
        {"transactions/fencing"},
        response=other_code(Api.END_TXN, E.PRODUCER_FENCED),
    ),
    Lie(
        "aborted transactions are not told",
        {"transactions/abort", "transactions/fencing"},
        response=_response(Api.FETCH, aborted_transactions=[]),
    ),
    Lie(
        "readers do not choose what they see",
        {"transactions/commit", "transactions/abort", "transactions/all-or-nothing", "transactions/fencing"},
        request=_ignores_isolation,
    ),
    Lie(
        "offsets of open transactions are stable",
        {"transactions/offsets"},
        response=other_code(Api.OFFSET_FETCH, E.UNSTABLE_OFFSET_COMMIT),
    ),
    Lie(
        "validate_only creates the topic",
        {"admin/validating"},
        request=_request(Api.CREATE_TOPICS, validate_only=False),
    ),
    Lie(
        "a topic is created twice",
        {"admin/creating"},
        response=other_code(Api.CREATE_TOPICS, E.TOPIC_ALREADY_EXISTS, when=_is_created_twice),
    ),
    Lie(
        "the low watermark is wrong",
        {"admin/deleting-records"},
        response=_response(Api.DELETE_RECORDS, low_watermark=1),
    ),
    Lie(
        "any option is accepted",
        {"admin/refused-options"},
        response=other_code(Api.INCREMENTAL_ALTER_CONFIGS, E.INVALID_CONFIG),
    ),
    Lie("an answer goes to another request", {"frames/pipelined"}, response=_same_correlation_id()),
    Lie("an unknown API is answered", {"frames/unknown-api"}, stranger=_answers_strangers),
]
