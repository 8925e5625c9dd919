"""What Admin takes and returns about users, ACLs and quotas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.client.admin.result import Result
from ottla.client.errors.kafka_error import KafkaError
from ottla.protocol.acls import CLUSTER_NAME, AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.protocol.scram import ITERATIONS_DEFAULT, ScramMechanism

__all__ = [
    "AclBinding",
    "AclFilter",
    "AclOperation",
    "AclOutcome",
    "AclPermissionType",
    "ClientQuota",
    "ClientQuotaOutcome",
    "DelegationTokenDescription",
    "DeletedAcls",
    "PatternType",
    "ResourceType",
    "ScramCredentialDeletion",
    "ScramCredentialInfo",
    "ScramCredentialUpsertion",
    "ScramMechanism",
    "UserOutcome",
    "UserScramCredentials",
]


@dataclass(frozen=True, slots=True)
class AclBinding(Result):
    """An ACL: allows or denies an operation on resources to a principal from a host."""

    principal: str
    operation: AclOperation
    resource_type: ResourceType
    resource_name: str = CLUSTER_NAME
    pattern_type: PatternType = PatternType.LITERAL
    permission_type: AclPermissionType = AclPermissionType.ALLOW
    host: str = "*"

    def to_dict(self) -> dict[str, object]:
        """Return the fields, with names instead of the protocol's numbers."""
        return {
            "principal": self.principal,
            "host": self.host,
            "operation": self.operation.label,
            "permission_type": self.permission_type.label,
            "resource_type": self.resource_type.label,
            "resource_name": self.resource_name,
            "pattern_type": self.pattern_type.label,
        }


@dataclass(frozen=True, slots=True)
class AclFilter:
    """A filter for ACLs; None and ANY match everything."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: AclPermissionType = AclPermissionType.ANY


@dataclass(frozen=True, slots=True)
class AclOutcome(Result):
    """The outcome of a change to an ACL."""

    acl: AclBinding
    error: KafkaError | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the fields of the ACL and the error in one dict."""
        return {**self.acl.to_dict(), "error": Result.to_dict(self)["error"]}


@dataclass(frozen=True, slots=True)
class DeletedAcls(Result):
    """The ACLs that one filter matched."""

    acls: tuple[AclOutcome, ...]
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class ClientQuota(Result):
    """The quotas of an entity: names by type (`user`, `client-id`, `ip`), None for the default of the type."""

    entity: Mapping[str, str | None]
    quotas: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ClientQuotaOutcome(Result):
    """The outcome of a change to the quotas of an entity."""

    entity: Mapping[str, str | None]
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class ScramCredentialUpsertion:
    """A password to set; it is salted and hashed here, and never sent."""

    user: str
    password: str = field(repr=False)
    mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512
    iterations: int = ITERATIONS_DEFAULT
    salt: bytes | None = field(default=None, repr=False)
    """Random by default."""


@dataclass(frozen=True, slots=True)
class ScramCredentialDeletion:
    """A credential to delete."""

    user: str
    mechanism: ScramMechanism


@dataclass(frozen=True, slots=True)
class ScramCredentialInfo(Result):
    """The mechanism and the iterations of a credential."""

    mechanism: str
    iterations: int


@dataclass(frozen=True, slots=True)
class UserScramCredentials(Result):
    """The credentials of a user."""

    user: str
    credentials: tuple[ScramCredentialInfo, ...]
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class UserOutcome(Result):
    """The outcome of a change to the credentials of a user."""

    user: str
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class DelegationTokenDescription(Result):
    """A delegation token. Principals are text, such as `User:alice`; times are milliseconds since 1970."""

    token_id: str
    """The user name of a login with the token."""
    owner: str
    requester: str | None
    """Who asked for it; None if the broker is too old to report that."""
    renewers: tuple[str, ...]
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int
    """It cannot be renewed beyond this time."""
    hmac: str = field(repr=False)
    """The password of a login with the token, and its name when it is renewed or ended."""
