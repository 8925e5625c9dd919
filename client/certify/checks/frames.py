"""Frames: requests that are pipelined, in pieces or unusual are answered; broken ones end their own connection only."""

from __future__ import annotations

import asyncio
import struct
from typing import Final

from ottla.client.certify.check import CheckFailed, Checks, expect, expect_that
from ottla.client.certify.probe import Probe
from ottla.client.certify.trial import Trial
from ottla.protocol.api import Api
from ottla.protocol.codec import encode
from ottla.protocol.errors import ProtocolError
from ottla.protocol.frame import frame
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.requests import decode_response, encode_request

CHECKS: Final = Checks("frames", "Frames and connections")

_SECONDS_MAX: Final = 15.0
_PIPELINED: Final = 20
_METADATA_VERSION: Final = 1
_FLEXIBLE_VERSION: Final = 9
_UNKNOWN_KEY: Final = 9999
_UNKNOWN_VERSION: Final = 999
_FRAME_BYTES_TOO_MANY: Final = (1 << 31) - 1


def _metadata(correlation_id: int, client_id: str | None = "certify") -> bytes:
    """Return the body of a Metadata request for no topics."""
    return b"".join(
        encode_request(Api.METADATA, _METADATA_VERSION, correlation_id, client_id, MetadataRequest(topics=[]))
    )


async def _answer(probe: Probe, what: str) -> bytes:
    try:
        answer = await probe.answer(_SECONDS_MAX)
    except TimeoutError as error:
        raise CheckFailed(f"an answer to {what}", f"none within {_SECONDS_MAX:g} s") from error
    if answer is None:
        raise CheckFailed(f"an answer to {what}", "the broker closed the connection")
    return answer


async def _expect_metadata(probe: Probe, correlation_id: int, what: str) -> None:
    answer = await _answer(probe, what)
    try:
        header, response = decode_response(Api.METADATA, _METADATA_VERSION, answer)
    except ProtocolError as error:
        raise CheckFailed(f"a well-formed answer to {what}", str(error)) from error
    expect(f"the correlation id of the answer to {what}", header.correlation_id, correlation_id)
    expect_that(len(response.brokers) > 0, "brokers in the answer", "none")


async def _expect_closed(trial: Trial, data: bytes, what: str) -> None:
    """Send bytes after which the connection cannot go on: it ends, and a connection beside it does not notice."""
    beside = await trial.probe()
    probe = await trial.probe()
    probe.send(data)
    try:
        answer = await probe.answer(_SECONDS_MAX)
    except TimeoutError as error:
        raise CheckFailed(
            f"the connection to be closed after {what}", f"it is open and silent after {_SECONDS_MAX:g} s"
        ) from error
    expect_that(answer is None, f"the connection to be closed after {what}", "an answer")
    beside.send_frame(_metadata(1))
    await _expect_metadata(beside, 1, f"a request beside {what}")


@CHECKS.check({Api.METADATA: 1})
async def pipelined(trial: Trial) -> None:
    """Requests that are sent together are answered in their order."""
    probe = await trial.probe()
    probe.send(b"".join(frame([_metadata(number)]) for number in range(_PIPELINED)))
    for number in range(_PIPELINED):
        await _expect_metadata(probe, number, f"request {number} of {_PIPELINED}")


@CHECKS.check({Api.METADATA: 1})
async def byte_by_byte(trial: Trial) -> None:
    """A request that arrives byte by byte is answered."""
    probe = await trial.probe()
    data = frame([_metadata(5)])
    for position in range(len(data)):
        probe.send(data[position : position + 1])
        await asyncio.sleep(0)
    await _expect_metadata(probe, 5, "a request in pieces")


@CHECKS.check({Api.METADATA: 1})
async def null_client_id(trial: Trial) -> None:
    """A request without a client id is answered."""
    probe = await trial.probe()
    probe.send_frame(_metadata(6, None))
    await _expect_metadata(probe, 6, "a request without a client id")


@CHECKS.check({Api.METADATA: _FLEXIBLE_VERSION})
async def unknown_tags(trial: Trial) -> None:
    """Unknown tagged fields, in the header and in the body, are ignored."""
    probe = await trial.probe()
    header = struct.pack(">hhih", Api.METADATA, _FLEXIBLE_VERSION, 7, -1)
    # One field: tag 1000, three bytes.
    tags = b"\x01\xe8\x07\x03abc"
    body = encode(MetadataRequest(topics=[]), _FLEXIBLE_VERSION)
    # The last byte is the empty section of the body.
    probe.send_frame(header + tags + body[:-1] + tags)
    answer = await _answer(probe, "a request with unknown tags")
    read, _ = decode_response(Api.METADATA, _FLEXIBLE_VERSION, answer)
    expect("the correlation id", read.correlation_id, 7)


@CHECKS.check({Api.METADATA: 1})
async def unfinished_frame(trial: Trial) -> None:
    """A connection that never sends the rest of its frame does not hold up others."""
    stuck = await trial.probe()
    stuck.send(struct.pack(">i", 1000) + b"\x00\x03")
    for number in range(5):
        beside = await trial.probe()
        beside.send_frame(_metadata(number))
        await _expect_metadata(beside, number, "a request beside an unfinished frame")


@CHECKS.check({Api.METADATA: 1})
async def frame_too_large(trial: Trial) -> None:
    """A frame that announces two gigabytes ends its connection, and no other."""
    await _expect_closed(trial, struct.pack(">i", _FRAME_BYTES_TOO_MANY) + b"\x00" * 64, "a frame of 2 GB")


@CHECKS.check({Api.METADATA: 1})
async def negative_size(trial: Trial) -> None:
    """A frame of negative size ends its connection, and no other."""
    await _expect_closed(trial, struct.pack(">i", -1) + b"\x00" * 64, "a frame of -1 bytes")


@CHECKS.check({Api.METADATA: 1})
async def unknown_api(trial: Trial) -> None:
    """A request of an unknown API ends its connection, and no other."""
    await _expect_closed(trial, frame([struct.pack(">hhih", _UNKNOWN_KEY, 0, 1, -1)]), "an unknown API key")


@CHECKS.check({Api.METADATA: 1})
async def unknown_version(trial: Trial) -> None:
    """A request in a version that is not offered ends its connection, and no other."""
    header = struct.pack(">hhih", Api.METADATA, _UNKNOWN_VERSION, 1, -1)
    await _expect_closed(trial, frame([header + b"\x00" * 8]), f"Metadata {_UNKNOWN_VERSION}")


@CHECKS.check({Api.METADATA: 1})
async def broken_body(trial: Trial) -> None:
    """A request whose body announces more than it has ends its connection, and no other."""
    header = struct.pack(">hhih", Api.METADATA, _METADATA_VERSION, 1, -1)
    await _expect_closed(trial, frame([header + struct.pack(">ih", 1000, 500)]), "a broken body")


@CHECKS.check({Api.METADATA: 1})
async def http(trial: Trial) -> None:
    """An HTTP request ends its connection, and no other."""
    await _expect_closed(trial, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + b"\x00" * 64, "an HTTP request")


@CHECKS.check({Api.API_VERSIONS: 3})
async def versions_again(trial: Trial) -> None:
    """ApiVersions can be asked again at any time on the same connection."""
    for _ in range(3):
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version="1")
        response = await trial.ask(Api.API_VERSIONS, request)
        expect("the error code", response.error_code, 0)
