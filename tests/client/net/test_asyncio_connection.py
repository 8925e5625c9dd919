"""The asyncio connection, against brokers that answer, break and misbehave."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.client.scripted_broker import HANGUP, SILENCE, Reply, scripted_broker
from tests.kit.coroutines import BOTH_LOOPS

from ottla.client.errors import KafkaConnectionError, KafkaTimeoutError, UnsupportedVersionError
from ottla.client.net.asyncio_connection import THROTTLED_SECONDS_MAX, AsyncioConnection
from ottla.client.net.settings import ClientSettings
from ottla.protocol.api import Api
from ottla.protocol.codec import encode_parts
from ottla.protocol.frame import frame
from ottla.protocol.message import Versions
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.requests import encode_response

pytestmark = BOTH_LOOPS

SETTINGS = ClientSettings(connect_timeout_ms=20_000, request_timeout_ms=20_000)
HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def heartbeat(generation_id: int) -> HeartbeatRequest:
    """A request that can be told from others."""
    return HeartbeatRequest(group_id="g", generation_id=generation_id, member_id="m")


async def echo(api: Api, version: int, request: Any) -> Reply:
    """Answer a heartbeat with its generation as the error code."""
    return HeartbeatResponse(error_code=request.generation_id)


async def test_requests_of_many_tasks_get_their_own_answers() -> None:
    """All are under way at once on one connection."""
    async with scripted_broker(echo) as broker:
        connection = await AsyncioConnection.open(*broker.address, SETTINGS)
        answers = await asyncio.gather(*(connection.request(Api.HEARTBEAT, heartbeat(number)) for number in range(200)))
        await connection.close()

    assert [answer.error_code for answer in answers] == list(range(200))
    assert broker.connected == 1


async def test_the_newest_version_that_both_sides_know_is_used() -> None:
    """Within the limits that the caller sets; where there is none the error says so."""

    async def answer(api: Api, version: int, request: Any) -> Reply:
        return HeartbeatResponse(error_code=version)

    async with scripted_broker(answer, {Api.HEARTBEAT: Versions(0, 3)}) as broker:
        connection = await AsyncioConnection.open(*broker.address, SETTINGS)
        newest = await connection.request(Api.HEARTBEAT, HEARTBEAT)
        older = await connection.request(Api.HEARTBEAT, HEARTBEAT, version_max=1)
        built = await connection.request(Api.HEARTBEAT, heartbeat)
        with pytest.raises(UnsupportedVersionError, match="up to version 3; this needs 4"):
            await connection.request(Api.HEARTBEAT, HEARTBEAT, version_min=4)
        with pytest.raises(UnsupportedVersionError, match="does not support DescribeCluster"):
            await connection.request(Api.DESCRIBE_CLUSTER, HEARTBEAT)
        await connection.close()

    assert (newest.error_code, older.error_code, built.error_code) == (3, 1, 3)


async def test_a_broker_that_refuses_our_version_of_api_versions_is_asked_in_the_oldest() -> None:
    """It answers in version 0, whatever it was asked."""

    async def offer(api: Api, version: int, request: Any) -> Reply:
        row = ApiVersion(api_key=18, min_version=0, max_version=2)
        code, correlation_id = (35, 0) if version else (0, 1)
        answer = ApiVersionsResponse(error_code=code, api_keys=[row])
        return frame(encode_response(Api.API_VERSIONS, 0, correlation_id, answer))

    async with scripted_broker(echo, offer=offer) as broker:
        connection = await AsyncioConnection.open(*broker.address, SETTINGS)
        assert connection.versions == {18: Versions(0, 2)}
        await connection.close()


async def test_all_requests_under_way_fail_when_the_connection_breaks() -> None:
    """And later ones too, at once."""

    async def answer(api: Api, version: int, request: Any) -> Reply:
        return HANGUP if request.generation_id == 2 else SILENCE

    async with scripted_broker(answer) as broker:
        connection = await AsyncioConnection.open(*broker.address, SETTINGS)
        results = await asyncio.gather(
            *(connection.request(Api.HEARTBEAT, heartbeat(number)) for number in range(4)), return_exceptions=True
        )
        assert [type(result) for result in results] == [KafkaConnectionError] * 4
        assert connection.is_closed
        with pytest.raises(KafkaConnectionError):
            await connection.request(Api.HEARTBEAT, HEARTBEAT)
        await connection.close()


async def test_a_request_that_is_not_answered_in_time_closes_the_connection() -> None:
    """Answers come in order: those behind it would wait as well."""

    async def answer(api: Api, version: int, request: Any) -> Reply:
        return SILENCE

    async with scripted_broker(answer) as broker:
        connection = await AsyncioConnection.open(*broker.address, SETTINGS)
        patient = asyncio.ensure_future(connection.request(Api.HEARTBEAT, HEARTBEAT))
        with pytest.raises(KafkaTimeoutError, match=r"did not answer Heartbeat within 0\.01 s"):
            await connection.request(Api.HEARTBEAT, HEARTBEAT, timeout_ms=10)
        with pytest.raises(KafkaTimeoutError):
            await patient
        assert connection.is_closed
        await connection.close()


async def test_a_caller_that_gives_up_does_not_disturb_the_others() -> None:
    """The answer to it is dropped when it comes."""
    go = asyncio.Event()

    async def answer(api: Api, version: int, request: Any) -> Reply:
        await go.wait()
        return HeartbeatResponse(error_code=request.generation_id)

    async with scripted_broker(answer) as broker:
        connection = await AsyncioConnection.open(*broker.address, SETTINGS)
        first, second = (
            asyncio.ensure_future(connection.request(Api.HEARTBEAT, heartbeat(number))) for number in (1, 2)
        )
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        go.set()
        assert (await second).error_code == 2
        await connection.close()


async def test_large_responses_arrive_whole() -> None:
    """In the middle of small ones, in pieces of any size."""
    records = bytes(range(256)) * 16 * 1024

    async def answer(api: Api, version: int, request: Any) -> Reply:
        if api is Api.HEARTBEAT:
            return HeartbeatResponse(error_code=request.generation_id)
        partition = PartitionData(
            partition_index=0, error_code=0, high_watermark=0, records=records, aborted_transactions=None
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])

    fetch = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
    async with scripted_broker(answer) as broker:
        connection = await AsyncioConnection.open(*broker.address, SETTINGS)
        answers = await asyncio.gather(
            connection.request(Api.HEARTBEAT, heartbeat(1)),
            connection.request(Api.FETCH, fetch, version_max=12),
            connection.request(Api.HEARTBEAT, heartbeat(2)),
            connection.request(Api.FETCH, fetch, version_max=12),
        )
        await connection.close()

    assert (answers[0].error_code, answers[2].error_code) == (1, 2)
    assert answers[1].responses[0].partitions[0].records == records
    assert answers[3].responses[0].partitions[0].records == records


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x46" + bytes(16), "TLS"),
        (b"\xff\xff\xff\xff", "something else"),
    ],
)
async def test_a_port_of_something_else_is_told_by_its_first_bytes(sent: bytes, reason: str) -> None:
    """The commonest mistake with bootstrap_servers."""

    async def offer(api: Api, version: int, request: Any) -> Reply:
        return sent

    async with scripted_broker(echo, offer=offer) as broker:
        with pytest.raises(KafkaConnectionError, match=f"does not speak Kafka here.*{reason}"):
            await AsyncioConnection.open(*broker.address, SETTINGS)


@pytest.mark.parametrize(
    "sent",
    [
        frame([b"\0\0\0\x63\0\0"]),  # another correlation id
        frame([b""]),
        frame([b"\0\0\0\1"]),
        frame([b"\0\0\0\1\0" + bytes(6)]) + frame([bytes(8)]),
    ],
)
async def test_bytes_that_make_no_sense_close_the_connection(sent: bytes) -> None:
    """With a typed error for who waits, and no other exception."""

    async def answer(api: Api, version: int, request: Any) -> Reply:
        return sent

    async with scripted_broker(answer) as broker:
        connection = await AsyncioConnection.open(*broker.address, SETTINGS)
        waiting = [asyncio.ensure_future(connection.request(Api.HEARTBEAT, HEARTBEAT)) for _ in range(2)]
        await asyncio.wait(waiting)
        assert isinstance(waiting[1].exception(), KafkaConnectionError)
        assert connection.is_closed
        await connection.close()


async def test_nobody_listening_is_a_connection_error() -> None:
    """It names the address."""
    async with scripted_broker(echo) as broker:
        address = broker.address
    with pytest.raises(KafkaConnectionError, match=f"cannot connect to {address}"):
        await AsyncioConnection.open(*address, SETTINGS)


async def test_an_unused_connection_is_closed() -> None:
    """After connections_max_idle_ms."""
    async with scripted_broker(echo) as broker:
        idle = ClientSettings(connections_max_idle_ms=0)
        connection = await AsyncioConnection.open(*broker.address, idle)
        assert connection.is_closed
        await connection.close()


async def test_a_request_without_an_answer_does_not_disturb_the_next() -> None:
    """Produce with acks=0 is such a request."""

    async def answer(api: Api, version: int, request: Any) -> Reply:
        if api is Api.HEARTBEAT:
            return SILENCE
        return InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=7, producer_epoch=0)

    async with scripted_broker(answer) as broker:
        connection = await AsyncioConnection.open(*broker.address, SETTINGS)
        connection.post(Api.HEARTBEAT, 0, encode_parts(HEARTBEAT, 0))
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        assert (await connection.request(Api.INIT_PRODUCER_ID, request)).producer_id == 7
        await connection.close()


@pytest.mark.parametrize(("throttle_ms", "added_seconds"), [(50_000, 50), (2**31 - 1, THROTTLED_SECONDS_MAX)])
@pytest.mark.parametrize("is_sent_before", [True, False])
async def test_requests_get_their_time_anew_when_the_broker_makes_us_wait(
    throttle_ms: int, added_seconds: float, is_sent_before: bool
) -> None:
    """It reads nothing of ours for that long, so what waits is not late; within reason."""

    async def answer(api: Api, version: int, request: Any) -> Reply:
        return SILENCE if request.generation_id else HeartbeatResponse(throttle_time_ms=throttle_ms, error_code=0)

    async with scripted_broker(answer) as broker:
        connection = await AsyncioConnection.open(*broker.address, SETTINGS)
        throttled, waits = (encode_parts(heartbeat(number), 4) for number in (0, 1))
        first = connection.submit(Api.HEARTBEAT, 4, throttled)
        second = connection.submit(Api.HEARTBEAT, 4, waits) if is_sent_before else None
        await first
        second = second or connection.submit(Api.HEARTBEAT, 4, waits)
        timer = connection._in_flight[-1].timer
        assert timer is not None
        left_seconds = timer.when() - asyncio.get_running_loop().time()
        await connection.close()
        with pytest.raises(KafkaConnectionError):
            await second

    assert added_seconds < left_seconds < added_seconds + 21


async def test_nothing_is_sent_on_a_connection_that_is_about_to_close() -> None:
    """The loop knows of a broken connection a moment before it says so; a request then would be dropped in silence."""
    async with scripted_broker(echo) as broker:
        connection = await AsyncioConnection.open(*broker.address, SETTINGS)
        assert connection._transport is not None
        connection._transport.abort()
        with pytest.raises(KafkaConnectionError):
            connection.post(Api.HEARTBEAT, 0, [b"body"])
        await connection.close()
