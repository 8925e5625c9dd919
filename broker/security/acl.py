"""Access control lists as values: who may, or may not, do what with which resource.

    AclBinding
      pattern   ResourcePattern   the resources: one name, all names ("*"), or all that begin with a prefix
      entry     AclEntry          principal and host ("User:*" and "*" are all), operation, DENY or ALLOW

The numbers are those of the requests; the words, such as `ClusterAction`, are those in Kafka's nodes in ZooKeeper.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

WILDCARD: Final = "*"
EVERYBODY: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"


class _Word(IntEnum):
    """A code with its spelling in ZooKeeper."""

    @property
    def word(self) -> str:
        """The name without underscores, each part with a capital."""
        return "".join(part.capitalize() for part in self.name.split("_"))


class AclOperation(_Word):
    """What is done with a resource."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class PermissionType(_Word):
    """Whether an ACL gives a right or takes it."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ResourceType(_Word):
    """What rights are about."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Word):
    """How a pattern names resources; ANY and MATCH are of filters alone."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


OPERATIONS: Final = frozenset(AclOperation) - {AclOperation.UNKNOWN, AclOperation.ANY}
RESOURCE_TYPES: Final = tuple(kind for kind in ResourceType if kind > ResourceType.ANY)
PATTERN_TYPES: Final = (PatternType.LITERAL, PatternType.PREFIXED)

# An ACL that allows one of these allows what it stands beside as well. A DENY denies what it names and no more.
IMPLYING: Final = {
    AclOperation.DESCRIBE: frozenset(
        {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE}
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS}),
}

# What can be done with resources at all, as clients are told in fields of "authorized operations".
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
}


class ResourcePattern(NamedTuple):
    """The resources that ACLs stand at."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def covers(self, name: str) -> bool:
        """Whether a resource of this type is meant."""
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)


class AclEntry(NamedTuple):
    """One right, given or taken."""

    principal: str
    host: str
    operation: AclOperation
    permission: PermissionType

    def concerns(self, principal: str, host: str) -> bool:
        """Whether it is about somebody who asks from somewhere."""
        return self.principal in (principal, EVERYBODY) and self.host in (host, WILDCARD)


class AclBinding(NamedTuple):
    """An ACL, with where it stands."""

    pattern: ResourcePattern
    entry: AclEntry


class AclFilter(NamedTuple):
    """Which ACLs are meant; None and ANY stand for all."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: PermissionType = PermissionType.ANY

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        """Whether ACLs that stand at a pattern can be meant; MATCH means all that concern a resource of the name."""
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None or self.name == pattern.name:
            return True
        return self.pattern_type is PatternType.MATCH and pattern.covers(self.name)

    def matches_entry(self, entry: AclEntry) -> bool:
        """Whether an ACL is meant, wherever it stands."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (PermissionType.ANY, entry.permission)
        )
