"""A delegation token (KIP-48), and its node in ZooKeeper, which Apache Kafka's brokers read and write too.

    /delegation_token/tokens/<token id>                 TokenNode
    /delegation_token/token_changes/token_change_<n>    a note: the token id, as plain text

A token is a second login of its owner: SCRAM with the token id as user and the HMAC, in base64, as password. The HMAC
is made of the id with `delegation.token.secret.key`, so it is stored nowhere, and every broker with the key knows it.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import msgspec

from ottla.broker.cluster.znodes import Content, MalformedNodeError
from ottla.protocol.entity_names import desanitized, sanitized
from ottla.protocol.scram import ITERATIONS_MIN, ScramCredential, ScramMechanism, salted_password

TOKENS: Final = "/delegation_token/tokens"
TOKEN_CHANGES: Final = "/delegation_token/token_changes"  # noqa: S105 - a path
TOKEN_CHANGE_PREFIX: Final = "token_change_"  # noqa: S105 - a path

# The newest version of the node that we know.
_VERSION: Final = 3
_SALT_BYTES: Final = 24


def token_path(token_id: str) -> str:
    """Return the path of a token."""
    return f"{TOKENS}/{token_id}"


class TokenKey:
    """The secret that all brokers share, and what is made with it."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def hmac_of(self, token_id: str) -> bytes:
        """Return the HMAC that proves the possession of a token."""
        return hmac.digest(self._secret, token_id.encode(), "sha512")

    def credential(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential:
        """Return what a login with a token is checked against; its salt is the same on all brokers of Ottla."""
        password = base64.b64encode(self.hmac_of(token_id)).decode()
        salt = hmac.digest(self._secret, f"{mechanism.label} salt of {token_id}".encode(), "sha512")[:_SALT_BYTES]
        salted = salted_password(mechanism, password, salt, ITERATIONS_MIN)
        return ScramCredential.derived(mechanism, salted, salt, ITERATIONS_MIN)


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token. Principals are text, such as `User:alice`; times are milliseconds since 1970."""

    token_id: str
    owner: str
    # Who asked for it: the owner, or somebody with the right to create tokens for the owner.
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    # It cannot be renewed beyond this time.
    max_ms: int
    expiry_ms: int
    hmac: bytes = field(repr=False)

    def is_expired(self, now_ms: int) -> bool:
        """Whether it can no longer be used."""
        return self.max_ms < now_ms or self.expiry_ms < now_ms

    def may_be_renewed_by(self, principal: str) -> bool:
        """Whether a principal may renew it and end it."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: str) -> bool:
        """Whether a principal may always see it."""
        return principal == self.requester or self.may_be_renewed_by(principal)

    def expiring_at(self, expiry_ms: int) -> DelegationToken:
        """Return the token with another time of expiry, at most the latest possible one."""
        return replace(self, expiry_ms=min(self.max_ms, expiry_ms))


class TokenNode(Content, frozen=True, kw_only=True):
    """A token in ZooKeeper, without its HMAC; principals are percent-encoded. Version 3 added the requester."""

    version: int = _VERSION
    owner: str
    token_requester: str | None = msgspec.field(name="tokenRequester", default=None)
    renewers: list[str]
    issue_timestamp: int = msgspec.field(name="issueTimestamp")
    max_timestamp: int = msgspec.field(name="maxTimestamp")
    expiry_timestamp: int = msgspec.field(name="expiryTimestamp")
    token_id: str = msgspec.field(name="tokenId")

    @classmethod
    def of(cls, token: DelegationToken) -> TokenNode:
        """Return the node of a token."""
        return cls(
            owner=sanitized(token.owner),
            token_requester=sanitized(token.requester),
            renewers=[sanitized(renewer) for renewer in token.renewers],
            issue_timestamp=token.issued_ms,
            max_timestamp=token.max_ms,
            expiry_timestamp=token.expiry_ms,
            token_id=token.token_id,
        )

    def token(self, key: TokenKey, path: str) -> DelegationToken:
        """Return the token at a path; MalformedNodeError if the node cannot be used."""
        if not 1 <= self.version <= _VERSION or path != token_path(self.token_id):
            raise MalformedNodeError(f"{path} is of version {self.version}, or has the token of another node")
        owner = desanitized(self.owner)
        return DelegationToken(
            token_id=self.token_id,
            owner=owner,
            requester=owner if self.token_requester is None else desanitized(self.token_requester),
            renewers=tuple(map(desanitized, self.renewers)),
            issued_ms=self.issue_timestamp,
            max_ms=self.max_timestamp,
            expiry_ms=self.expiry_timestamp,
            hmac=key.hmac_of(self.token_id),
        )


def principal_parts(principal: str) -> tuple[str, str]:
    """Split `User:alice` into its type and its name."""
    kind, _, name = principal.partition(":")
    return kind, name


class PrincipalRow(Protocol):
    """An entry of a request that names a principal."""

    @property
    def principal_type(self) -> str:
        """The type, such as `User`."""

    @property
    def principal_name(self) -> str:
        """The name."""


def principals_of(rows: Iterable[PrincipalRow]) -> tuple[str, ...]:
    """Return the principals in entries of a request, each once."""
    return tuple(dict.fromkeys(f"{row.principal_type}:{row.principal_name}" for row in rows))
