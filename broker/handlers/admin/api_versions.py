"""ApiVersions (18), versions 0-4.

Behavior: lists every API in the handler table with the versions that it serves. From version 3 on, a client name or
version that is not well formed is INVALID_REQUEST, with an empty list. `dispatch` answers an unknown version in version
0.

Not implemented: features. A ZooKeeper cluster has none that clients ask for.
"""

from __future__ import annotations

import re

from ottla.broker.requests.dispatch import HandlerTable
from ottla.broker.requests.request import AdminRequest, Handler
from ottla.broker.requests.services import AdminServices
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse

# The name is kept with the connection, so it must not be of any length.
_SOFTWARE_MAX = 256
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def api_versions(table: HandlerTable) -> Handler[AdminServices]:
    """Return the handler that describes a table. The table may be filled later."""

    def handle(request: AdminRequest) -> ApiVersionsResponse:
        body = request.body
        if request.version >= 3 and not (
            _SOFTWARE.fullmatch(body.client_software_name) and _SOFTWARE.fullmatch(body.client_software_version)
        ):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
        if request.version >= 3:
            software = f"{body.client_software_name} {body.client_software_version}"
            request.session.software = software[:_SOFTWARE_MAX]
        return ApiVersionsResponse(
            error_code=ErrorCode.NONE,
            api_keys=[
                ApiVersion(api_key=api, min_version=entry.versions.first, max_version=entry.versions.last)
                for api, entry in sorted(table.items())
            ],
        )

    return handle
