"""Requests and responses as in a frame: a header, then the message."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ottla.protocol.api import Api
from ottla.protocol.codec import Buffer, decode_from, encode_parts
from ottla.protocol.errors import DecodeError
from ottla.protocol.message import Message
from ottla.protocol.messages.headers import RequestHeader, ResponseHeader

_API_AND_VERSION = struct.Struct(">hh")
_START_BYTES = _API_AND_VERSION.size
# The two versions of the response header: a correlation id, and then an empty tagged section.
_RESPONSE_HEADER_0 = struct.Struct(">i")
_RESPONSE_HEADER_1 = struct.Struct(">ix")

# The API and the version of the header, by the first four bytes of a request; only for versions that we can read.
_starts: dict[bytes, tuple[Api, int]] = {}
# What packs the header of a response, by the API and the version of the request; only for versions that we can write.
_response_headers: dict[tuple[Api, int], Callable[[int], bytes]] = {}


def decode_request_header(frame: Buffer) -> tuple[Api, RequestHeader, int]:
    """Read the header of a request; return its API, the header, and the position of the body.

    The version may be unknown to us: ApiVersions must be answered even then.
    """
    api, header_version = _starts.get(bytes(frame[:_START_BYTES])) or _read_start(frame)
    header, position = decode_from(RequestHeader, header_version, frame)
    return api, header, position


def _read_start(frame: Buffer) -> tuple[Api, int]:
    if len(frame) < _START_BYTES:
        raise DecodeError(f"a request of {len(frame)} bytes has no room for a header")
    key, version = _API_AND_VERSION.unpack_from(frame)
    try:
        api = Api(key)
    except ValueError as error:
        raise DecodeError(f"unknown API key {key}") from error
    if version < 0:
        raise DecodeError(f"{api.label} version {version} is negative")
    start = api, api.request_header_version(version)
    if version in api.versions:
        _starts[bytes(frame[:_START_BYTES])] = start
    return start


def decode_request(frame: Buffer) -> tuple[RequestHeader, Any]:
    """Read a whole request.

    Bytes after it are ignored, as in Kafka: librdkafka's AlterUserScramCredentials has one byte too many.
    """
    api, header, position = decode_request_header(frame)
    request, _ = decode_from(api.request, header.request_api_version, frame, position)
    return header, request


def decode_response(api: Api, version: int, frame: Buffer) -> tuple[ResponseHeader, Any]:
    """Read the response to a request of this API and version."""
    header, position = decode_from(ResponseHeader, api.response_header_version(version), frame)
    response, end = decode_from(api.response, version, frame, position)
    if end != len(frame):
        raise DecodeError(f"{api.label}Response version {version}: {len(frame) - end} bytes left over")
    return header, response


def encode_request(api: Api, version: int, correlation_id: int, client_id: str | None, request: Message) -> list[Any]:
    """Return the parts of a request, without the frame's size."""
    header = RequestHeader(
        request_api_key=api, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    return encode_parts(header, api.request_header_version(version)) + encode_parts(request, version)


def encode_response(api: Api, version: int, correlation_id: int, response: Message) -> list[Any]:
    """Return the parts of a response, without the frame's size. Records in it are not copied."""
    pack_header = _response_headers.get((api, version)) or _response_header(api, version)
    return encode_parts(response, version, [pack_header(correlation_id)])


def _response_header(api: Api, version: int) -> Callable[[int], bytes]:
    header = _RESPONSE_HEADER_1 if api.response_header_version(version) else _RESPONSE_HEADER_0
    if version in api.versions:
        _response_headers[api, version] = header.pack
    return header.pack
