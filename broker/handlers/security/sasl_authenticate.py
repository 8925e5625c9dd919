"""SaslAuthenticate (36), versions 0-2.

Behavior: takes one token of the mechanism that SaslHandshake chose, and answers with the broker's. Success: the last
token, and how long the client is believed where that is not for ever. SASL_AUTHENTICATION_FAILED: wrong credentials, or
another user than before when it is repeated; the answer comes after a pause, and then the connection is closed.
ILLEGAL_SASL_STATE where no exchange is under way.

Version notes: the lifetime since version 1.
"""

from __future__ import annotations

from ottla.broker.requests.request import Refusal, SecurityRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateResponse

_NO_SASL = "the listener has no SASL"


def sasl_authenticate(request: SecurityRequest) -> SaslAuthenticateResponse | Refusal:
    """Take a token."""
    authentication = request.session.authentication
    if authentication is None:
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_NO_SASL, auth_bytes=b"")
    step = authentication.step(bytes(request.body.auth_bytes))
    response = SaslAuthenticateResponse(
        error_code=step.error,
        error_message=step.message,
        auth_bytes=step.token,
        session_lifetime_ms=step.lifetime_ms,
    )
    if step.error is ErrorCode.NONE or (step.error is ErrorCode.ILLEGAL_SASL_STATE and authentication.is_done):
        return response
    return Refusal(response, step.message or step.error.name)
