"""The codes of access control lists: numbers in requests, words in ZooKeeper and for people."""

from __future__ import annotations

from enum import IntEnum
from functools import cached_property
from typing import Final

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""


class _Code(IntEnum):
    @cached_property
    def word(self) -> str:
        """The spelling in ZooKeeper: no underscores, and each word starts with a capital."""
        return "".join(part.capitalize() for part in self.name.split("_"))

    @property
    def label(self) -> str:
        """The name as commands take and print it."""
        return self.name.lower().replace("_", "-")


class AclOperation(_Code):
    """What is done with a resource. ANY is only for filters."""

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


OPERATIONS: Final = tuple(operation for operation in AclOperation if operation > AclOperation.ANY)


class AclPermissionType(_Code):
    """Whether an ACL allows or denies. ANY is only for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ResourceType(_Code):
    """The kind of resource that an ACL is about. ANY is only for filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Code):
    """How an ACL names resources: by name (`*` for all), or by prefix. ANY and MATCH are only for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4
