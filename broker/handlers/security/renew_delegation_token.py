"""RenewDelegationToken (39), versions 0-2.

Behavior: moves the expiry of a token, which its HMAC names, to the given time from now, or to the default one if that
is negative; never beyond the longest lifetime of the token. Owner and renewers may do that. DELEGATION_TOKEN_NOT_FOUND:
no such token. DELEGATION_TOKEN_OWNER_MISMATCH: somebody else's token. DELEGATION_TOKEN_EXPIRED: it is too late. Further
errors as in CreateDelegationToken.

Version notes: all versions have the same fields.
"""

from __future__ import annotations

from ottla.broker.requests.audited import note_change
from ottla.broker.requests.request import SecurityRequest
from ottla.broker.requests.token_requests import delegation_tokens
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


def renew_delegation_token(request: SecurityRequest) -> RenewDelegationTokenResponse:
    """Renew a token."""
    body: RenewDelegationTokenRequest = request.body
    principal = request.session.principal
    token = delegation_tokens(request).renew(principal, bytes(body.hmac), body.renew_period_ms)
    change = {"owner": token.owner, "expiry_ms": token.expiry_ms}
    note_change(request, "delegation_token_renewed", f"DelegationToken:{token.token_id}", change)
    return RenewDelegationTokenResponse(
        error_code=ErrorCode.NONE, expiry_timestamp_ms=token.expiry_ms, throttle_time_ms=0
    )
