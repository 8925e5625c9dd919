"""The headers of requests and responses, which have a shorter way than other messages, equal their declarations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.api import Api
from ottla.protocol.codec import decode_from, encode
from ottla.protocol.errors import DecodeError
from ottla.protocol.messages.api_versions import ApiVersionsResponse
from ottla.protocol.messages.headers import RequestHeader, ResponseHeader
from ottla.protocol.messages.produce import ProduceResponse
from ottla.protocol.requests import decode_request_header, encode_response

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)


@given(INT16, INT16, INT32, st.none() | st.text(max_size=20), st.booleans())
def test_a_request_header_is_what_its_declaration_says(
    key: int, version: int, correlation_id: int, client_id: str | None, is_view: bool
) -> None:
    """By the API and version in its first four bytes, whether they were seen before or not."""
    known = Api(key) if key in Api.__members__.values() else None
    header_version = known.request_header_version(version) if known is not None else 1
    header = RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    frame = encode(header, header_version) + b"body"
    for _ in range(2):
        if known is None or version < 0:
            with pytest.raises(DecodeError):
                decode_request_header(frame)
            continue
        api, decoded, position = decode_request_header(memoryview(frame) if is_view else frame)
        assert (api, decoded, position) == (known, *decode_from(RequestHeader, header_version, frame))


@pytest.mark.parametrize("api", [Api.PRODUCE, Api.FETCH, Api.METADATA, Api.API_VERSIONS])
def test_every_version_of_a_request_is_known_by_its_first_bytes(api: Api) -> None:
    """Twice: the second time its API is looked up."""
    for version in range(api.versions.first, api.versions.last + 1):
        header = RequestHeader(request_api_key=api, request_api_version=version, correlation_id=7, client_id="me")
        frame = encode(header, api.request_header_version(version))
        for _ in range(2):
            assert decode_request_header(frame) == (api, header, len(frame))


@pytest.mark.parametrize("size", range(4))
def test_a_request_without_room_for_a_header_is_refused(size: int) -> None:
    """Also one whose bytes are the start of a known API."""
    with pytest.raises(DecodeError, match="no room for a header"):
        decode_request_header(bytes(size))


@given(INT32)
def test_a_response_header_is_what_its_declaration_says(correlation_id: int) -> None:
    """With a tagged section in flexible versions, except for ApiVersions."""
    header = ResponseHeader(correlation_id=correlation_id)
    for api, response in (
        (Api.PRODUCE, ProduceResponse(responses=[])),
        (Api.API_VERSIONS, ApiVersionsResponse(error_code=0, api_keys=[])),
    ):
        for version in range(api.versions.first, api.versions.last + 1):
            encoded = b"".join(encode_response(api, version, correlation_id, response))
            assert encoded == encode(header, api.response_header_version(version)) + encode(response, version)
