"""Requests about delegation tokens.

All go to the controller. Any broker would do, but a token is known to the other brokers only a moment after its
creation, and a client that renews what it has just created should find it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

from ottla.client.admin.routing import AdminRequests
from ottla.client.admin.security_results import DelegationTokenDescription
from ottla.client.errors import KafkaConfigurationError, error_for
from ottla.protocol.api import Api
from ottla.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from ottla.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest

# From this version on, tokens can be created for others.
_OWNER_VERSION = 3


async def create_delegation_token(
    requests: AdminRequests, owner: str | None, renewers: Sequence[str], max_lifetime_ms: int
) -> DelegationTokenDescription:
    """Ask for a token."""
    owner_type, owner_name = ("", "") if owner is None else _parts(owner)
    wanted = [_parts(renewer) for renewer in renewers]
    request = CreateDelegationTokenRequest(
        owner_principal_type=owner_type,
        owner_principal_name=owner_name,
        renewers=[CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in wanted],
        max_lifetime_ms=max_lifetime_ms,
    )
    response = await requests.cluster.send_controller(
        Api.CREATE_DELEGATION_TOKEN, request, version_min=0 if owner is None else _OWNER_VERSION
    )
    _check(response)
    return DelegationTokenDescription(
        token_id=response.token_id,
        owner=f"{response.principal_type}:{response.principal_name}",
        requester=_requester(response),
        renewers=tuple(f"{kind}:{name}" for kind, name in wanted),
        issue_timestamp=response.issue_timestamp_ms,
        expiry_timestamp=response.expiry_timestamp_ms,
        max_timestamp=response.max_timestamp_ms,
        hmac=base64.b64encode(response.hmac).decode(),
    )


async def renew_delegation_token(requests: AdminRequests, hmac: str, period_ms: int) -> int:
    """Ask to renew a token; return when it expires then."""
    request = RenewDelegationTokenRequest(hmac=_decoded(hmac), renew_period_ms=period_ms)
    response = await requests.cluster.send_controller(Api.RENEW_DELEGATION_TOKEN, request)
    _check(response)
    expiry: int = response.expiry_timestamp_ms
    return expiry


async def expire_delegation_token(requests: AdminRequests, hmac: str, period_ms: int) -> int:
    """Ask to end a token; return when it expires then."""
    request = ExpireDelegationTokenRequest(hmac=_decoded(hmac), expiry_time_period_ms=period_ms)
    response = await requests.cluster.send_controller(Api.EXPIRE_DELEGATION_TOKEN, request)
    _check(response)
    expiry: int = response.expiry_timestamp_ms
    return expiry


async def describe_delegation_tokens(
    requests: AdminRequests, owners: Sequence[str] | None
) -> tuple[DelegationTokenDescription, ...]:
    """Ask for tokens, sorted by time of creation."""
    rows = None
    if owners is not None:
        rows = [
            DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, name in map(_parts, owners)
        ]
    request = DescribeDelegationTokenRequest(owners=rows)
    response = await requests.cluster.send_controller(Api.DESCRIBE_DELEGATION_TOKEN, request)
    _check(response)
    found = [
        DelegationTokenDescription(
            token_id=row.token_id,
            owner=f"{row.principal_type}:{row.principal_name}",
            requester=_requester(row),
            renewers=tuple(f"{each.principal_type}:{each.principal_name}" for each in row.renewers),
            issue_timestamp=row.issue_timestamp,
            expiry_timestamp=row.expiry_timestamp,
            max_timestamp=row.max_timestamp,
            hmac=base64.b64encode(row.hmac).decode(),
        )
        for row in response.tokens
    ]
    return tuple(sorted(found, key=lambda token: (token.issue_timestamp, token.token_id)))


def _check(response: Any) -> None:
    if response.error_code:
        raise error_for(response.error_code, "")


def _requester(row: Any) -> str | None:
    name = row.token_requester_principal_name
    return f"{row.token_requester_principal_type}:{name}" if name else None


def _parts(principal: str) -> tuple[str, str]:
    kind, colon, name = principal.partition(":")
    if not colon or not kind or not name:
        raise KafkaConfigurationError(f"{principal!r} is not a principal: write User:name")
    return kind, name


def _decoded(hmac: str) -> bytes:
    try:
        return base64.b64decode(hmac, validate=True)
    except binascii.Error as error:
        raise KafkaConfigurationError("the HMAC of a token is base64") from error
