"""The request headers of a connection.

int32 size of the frame | int16 API key | int16 version | int32 correlation id | client id | tags (2+)
"""

from __future__ import annotations

import struct
from typing import Final

from ottla.protocol.api import Api
from ottla.protocol.codec import encode
from ottla.protocol.frame import SIZE_BYTES
from ottla.protocol.messages.headers import RequestHeader

_START: Final = struct.Struct(">ihhi")
_CORRELATION_ID_LIMIT: Final = 1 << 31


class RequestHeaders:
    """Writes the headers of one connection, and counts its requests."""

    __slots__ = ("_client_id", "_ends", "correlation_id")

    def __init__(self, client_id: str | None) -> None:
        self._client_id = client_id
        # The part after the correlation id; it never changes.
        self._ends: dict[tuple[Api, int], bytes] = {}
        # Of the last request.
        self.correlation_id = -1

    def next(self, api: Api, version: int, body_bytes: int) -> bytes:
        """Return the size and header of a request whose body has this many bytes."""
        correlation_id = self.correlation_id = (self.correlation_id + 1) % _CORRELATION_ID_LIMIT
        end = self._ends.get((api, version)) or self._end(api, version)
        return _START.pack(_START.size - SIZE_BYTES + len(end) + body_bytes, api, version, correlation_id) + end

    def _end(self, api: Api, version: int) -> bytes:
        header = RequestHeader(
            request_api_key=api, request_api_version=version, correlation_id=0, client_id=self._client_id
        )
        whole = encode(header, api.request_header_version(version))
        end = self._ends[api, version] = whole[_START.size - SIZE_BYTES :]
        return end
