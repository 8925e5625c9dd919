"""SaslAuthenticate (36), versions 0-2.

Behavior: takes one token of the mechanism that SaslHandshake chose, and returns the broker's token. On success, the
response has the last token and, if the authentication expires, its lifetime. SASL_AUTHENTICATION_FAILED: wrong
credentials, or a reauthentication as another user; the response comes after a pause, and then the connection is closed.
ILLEGAL_SASL_STATE: no authentication is in progress.

Version notes: version 1 adds the lifetime.
"""

from __future__ import annotations

from ottla.broker.requests.request import Refusal, SecurityRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateResponse

_NO_SASL = "this listener does not use SASL"


def sasl_authenticate(request: SecurityRequest) -> SaslAuthenticateResponse | Refusal:
    """Process a token."""
    authentication = request.session.authentication
    if authentication is None:
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_NO_SASL, auth_bytes=b"")
    step = authentication.step(bytes(request.body.auth_bytes), request.client_id)
    response = SaslAuthenticateResponse(
        error_code=step.error,
        error_message=step.message,
        auth_bytes=step.token,
        session_lifetime_ms=step.lifetime_ms,
    )
    if step.error is ErrorCode.NONE or (step.error is ErrorCode.ILLEGAL_SASL_STATE and authentication.is_done):
        return response
    return Refusal(response, step.message or step.error.name)
