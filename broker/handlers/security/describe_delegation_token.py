"""DescribeDelegationToken (41), versions 0-3.

Behavior: returns tokens with their HMACs: those of the named users, who own, requested or may renew them; all without a
list, and none with an empty one. The client sees its own tokens, those that it may describe, and those of users whose
tokens it may describe; the others are left out. DELEGATION_TOKEN_REQUEST_NOT_ALLOWED and DELEGATION_TOKEN_AUTH_DISABLED
as in CreateDelegationToken.

Version notes: version 3 adds the requester.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.broker.requests.access import DELEGATION_TOKEN, USER, allows, allows_any
from ottla.broker.requests.request import SecurityRequest
from ottla.broker.requests.token_requests import delegation_tokens
from ottla.broker.security.tokens.delegation_token import DelegationToken, principal_parts, principals_of
from ottla.protocol.acls import ResourceType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

_REQUESTER_VERSION: Final = 3


def describe_delegation_token(request: SecurityRequest) -> DescribeDelegationTokenResponse:
    """Return tokens."""
    body: DescribeDelegationTokenRequest = request.body
    tokens = delegation_tokens(request)
    if not tokens.is_enabled:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    # Without any right, which is the usual case, no token of others needs a decision.
    kinds = [kind for kind in (DELEGATION_TOKEN, USER) if allows_any(request, kind)]
    wanted = None if body.owners is None else frozenset(principals_of(body.owners))
    found = [
        token
        for token in tokens
        if (wanted is None or not wanted.isdisjoint((token.owner, token.requester, *token.renewers)))
        and _may_see(request, token, kinds)
    ]
    return DescribeDelegationTokenResponse(
        error_code=ErrorCode.NONE,
        tokens=[_described(token, has_requester=request.version >= _REQUESTER_VERSION) for token in found],
        throttle_time_ms=0,
    )


def _may_see(request: SecurityRequest, token: DelegationToken, kinds: Sequence[ResourceType]) -> bool:
    return token.concerns(request.session.principal) or any(
        allows(request, kind, token.owner if kind is USER else token.token_id, log_if_denied=False) for kind in kinds
    )


def _described(token: DelegationToken, *, has_requester: bool) -> DescribedDelegationToken:
    owner_type, owner_name = principal_parts(token.owner)
    requester_type, requester_name = principal_parts(token.requester) if has_requester else ("", "")
    return DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=token.hmac,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, name in map(principal_parts, token.renewers)
        ],
    )
