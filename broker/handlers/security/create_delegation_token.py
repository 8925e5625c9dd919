"""CreateDelegationToken (38), versions 0-3.

Behavior: creates a token with which its owner can log in: SCRAM with the token id and the HMAC. The owner is the
client, or another user for whom the client may create tokens. Any broker answers; the token holds there when the
response is sent, and on the others a moment later. DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: the client is not
authenticated, or it is by a token. DELEGATION_TOKEN_AUTH_DISABLED: brokers have no secret key. INVALID_PRINCIPAL_TYPE:
a renewer or the owner is not a User. POLICY_VIOLATION: the owner has too many tokens.

Version notes: version 3 adds the owner, and the requester in the response.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.requests.access import USER, check
from ottla.broker.requests.audited import note_change
from ottla.broker.requests.request import SecurityRequest
from ottla.broker.requests.token_requests import delegation_tokens
from ottla.broker.security.tokens.delegation_token import principal_parts, principals_of
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

_USER: Final = "User"
_REQUESTER_VERSION: Final = 3


def create_delegation_token(request: SecurityRequest) -> CreateDelegationTokenResponse:
    """Create a token."""
    body: CreateDelegationTokenRequest = request.body
    tokens = delegation_tokens(request)
    requester = request.session.principal
    owner = f"{body.owner_principal_type}:{body.owner_principal_name}" if body.owner_principal_name else requester
    if owner != requester:
        check(request, USER, owner)
    renewers = principals_of(body.renewers)
    if any(principal_parts(each)[0] != _USER for each in (owner, *renewers)):
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE, "owners and renewers of tokens have the type User")
    token = tokens.create(owner, requester, renewers, body.max_lifetime_ms)
    change = {"owner": owner, "renewers": renewers, "expiry_ms": (None, token.expiry_ms)}
    note_change(request, "delegation_token_created", f"DelegationToken:{token.token_id}", change)
    owner_type, owner_name = principal_parts(owner)
    requester_type, requester_name = principal_parts(requester)
    return CreateDelegationTokenResponse(
        error_code=ErrorCode.NONE,
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type if request.version >= _REQUESTER_VERSION else "",
        token_requester_principal_name=requester_name if request.version >= _REQUESTER_VERSION else "",
        issue_timestamp_ms=token.issued_ms,
        expiry_timestamp_ms=token.expiry_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token.token_id,
        hmac=token.hmac,
        throttle_time_ms=0,
    )
