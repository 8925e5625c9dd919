"""SaslHandshake (17), versions 0-1.

Behavior: chooses the mechanism of an authentication or reauthentication, and returns all mechanisms of the listener.
UNSUPPORTED_SASL_MECHANISM: the listener does not have the mechanism; the authentication has failed, and the connection
is closed after a pause. ILLEGAL_SASL_STATE: the listener does not use SASL, an authentication is in progress, or the
client's authentication never expires.

Version notes: after version 0 the tokens come without request headers; after version 1 they come in SaslAuthenticate.
"""

from __future__ import annotations

from ottla.broker.requests.request import Refusal, SecurityRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.sasl_handshake import SaslHandshakeResponse


def sasl_handshake(request: SecurityRequest) -> SaslHandshakeResponse | Refusal:
    """Choose a mechanism."""
    authentication = request.session.authentication
    if authentication is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    code = authentication.handshake(request.body.mechanism, request.version)
    response = SaslHandshakeResponse(error_code=code, mechanisms=list(authentication.mechanisms))
    if code is ErrorCode.NONE or (code is ErrorCode.ILLEGAL_SASL_STATE and authentication.is_done):
        return response
    return Refusal(response, f"the SASL handshake failed: {code.name}")
