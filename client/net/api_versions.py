"""Which versions of the APIs to use with a broker: it says what it speaks, and the newest that both know is taken."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client.net.blocking_connection import BlockingConnection
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import LAST_VERSION, Versions
from ottla.protocol.messages.api_versions import ApiVersionsRequest

# Version 0 tells all that is needed, and every broker answers it; of a newer one the broker may know nothing.
_ASKING_VERSION = 0


def supported_versions(connection: BlockingConnection) -> Mapping[int, Versions]:
    """Ask the broker for its versions by API key; raise as `connection.request` does, and for an error code."""
    response = connection.request(Api.API_VERSIONS, _ASKING_VERSION, ApiVersionsRequest())
    code = ErrorCode.of(response.error_code)
    if code is not ErrorCode.NONE:
        raise KafkaError(code, f"{connection.host}:{connection.port} does not say what it speaks")
    return {row.api_key: Versions(row.min_version, row.max_version) for row in response.api_keys}


def common_version(api: Api, supported: Mapping[int, Versions], at_most: int = LAST_VERSION) -> int:
    """Return the newest version of an API that both sides know; KafkaError where there is none."""
    theirs = supported.get(api)
    if theirs is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"the broker does not have {api.label}")
    newest = min(theirs.last, api.versions.last, at_most)
    if newest < max(theirs.first, api.versions.first):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"the broker has {api.label} {theirs}, we have {api.versions}")
    return newest
