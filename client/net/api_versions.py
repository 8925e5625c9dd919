"""Choose API versions for a broker: the newest version that both sides support."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client.net.blocking_connection import BlockingConnection
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import LAST_VERSION, Versions
from ottla.protocol.messages.api_versions import ApiVersionsRequest

# Every broker answers version 0, and it has all we need. A broker may not support a newer version.
_ASKING_VERSION = 0


def supported_versions(connection: BlockingConnection) -> Mapping[int, Versions]:
    """Return the broker's versions by API key; raises as `connection.request` does, and for an error code."""
    response = connection.request(Api.API_VERSIONS, _ASKING_VERSION, ApiVersionsRequest())
    code = ErrorCode.of(response.error_code)
    if code is not ErrorCode.NONE:
        raise KafkaError(code, f"{connection.host}:{connection.port} did not send its API versions")
    return {row.api_key: Versions(row.min_version, row.max_version) for row in response.api_keys}


def common_version(api: Api, supported: Mapping[int, Versions], at_most: int = LAST_VERSION) -> int:
    """Return the newest version of an API that both sides support; KafkaError if there is none."""
    theirs = supported.get(api)
    if theirs is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"the broker does not support {api.label}")
    newest = min(theirs.last, api.versions.last, at_most)
    if newest < max(theirs.first, api.versions.first):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"the broker has {api.label} {theirs}, we have {api.versions}")
    return newest
