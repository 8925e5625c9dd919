"""ExpireDelegationToken (40), versions 0-2.

Behavior: has a token, which its HMAC names, expire in the given time, or deletes it if that is negative. Connections
that were authenticated with it last until the time when it was to expire. Errors as in RenewDelegationToken.

Version notes: all versions have the same fields.
"""

from __future__ import annotations

from ottla.broker.requests.audited import note_change
from ottla.broker.requests.request import SecurityRequest
from ottla.broker.requests.token_requests import delegation_tokens
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse


def expire_delegation_token(request: SecurityRequest) -> ExpireDelegationTokenResponse:
    """End a token, now or later."""
    body: ExpireDelegationTokenRequest = request.body
    principal = request.session.principal
    token = delegation_tokens(request).expire(principal, bytes(body.hmac), body.expiry_time_period_ms)
    change = {"owner": token.owner, "expiry_ms": token.expiry_ms}
    note_change(request, "delegation_token_expired", f"DelegationToken:{token.token_id}", change)
    return ExpireDelegationTokenResponse(
        error_code=ErrorCode.NONE, expiry_timestamp_ms=token.expiry_ms, throttle_time_ms=0
    )
