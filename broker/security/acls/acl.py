"""Access control lists as values: who may, or may not, do what with which resources.

ResourceAcl
  pattern   ResourcePattern   the resources: one name, all names ("*"), or all names with a prefix
  entry     AclEntry          principal and host ("User:*" and "*" mean all), operation, DENY or ALLOW
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.protocol.acls import AclOperation, AclPermissionType, PatternType, ResourceType

WILDCARD: Final = "*"
EVERYBODY: Final = "User:*"


RESOURCE_TYPES: Final = tuple(kind for kind in ResourceType if kind > ResourceType.ANY)
PATTERN_TYPES: Final = (PatternType.LITERAL, PatternType.PREFIXED)

# ALLOW of one of these operations also allows the operation it is listed for. DENY denies only what it names.
IMPLYING: Final = {
    AclOperation.DESCRIBE: frozenset(
        {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE}
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS}),
}

# All operations on a type of resource, for the "authorized operations" in responses.
SUPPORTED: Final = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
    ResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    ResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}


class ResourcePattern(NamedTuple):
    """The resources that an ACL is for."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def covers(self, name: str) -> bool:
        """Whether a resource of this type is included."""
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)


class AclEntry(NamedTuple):
    """One permission, allowed or denied."""

    principal: str
    host: str
    operation: AclOperation
    permission: AclPermissionType

    def concerns(self, principal: str, host: str) -> bool:
        """Whether it applies to a principal on a host."""
        return self.principal in (principal, EVERYBODY) and self.host in (host, WILDCARD)


class ResourceAcl(NamedTuple):
    """An ACL and the resources that it is for."""

    pattern: ResourcePattern
    entry: AclEntry


class ResourceAclFilter(NamedTuple):
    """Selects ACLs; None and ANY mean all."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermissionType = AclPermissionType.ANY

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        """Whether ACLs of a pattern can be selected; MATCH selects all that apply to a resource of this name."""
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None or self.name == pattern.name:
            return True
        return self.pattern_type is PatternType.MATCH and pattern.covers(self.name)

    def matches_entry(self, entry: AclEntry) -> bool:
        """Whether an ACL is selected, apart from its pattern."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (AclPermissionType.ANY, entry.permission)
        )
