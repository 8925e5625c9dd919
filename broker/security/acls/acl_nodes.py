"""ACLs as they stand in ZooKeeper, where Apache Kafka's brokers and tools read and write them too.

    /kafka-acl/<Type>/<name>                        AclNode of one name, or of all ("*")
    /kafka-acl-extended/prefixed/<Type>/<name>      AclNode of a prefix
    /kafka-acl-changes/acl_changes_<n>              a note: TYPE:name, as plain text
    /kafka-acl-extended-changes/acl_changes_<n>     a note: AclChangeNode

All ACLs of a pattern stand in one node, so a change of several is seen whole. A node without ACLs is deleted. Who
changes a node adds a note; a note holds no ACLs, so reading one twice does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from ottla.broker.cluster.znodes import Content, MalformedNodeError
from ottla.broker.security.acls.acl import EVERYBODY, PATTERN_TYPES, RESOURCE_TYPES, WILDCARD, AclEntry, ResourcePattern
from ottla.protocol.acls import OPERATIONS, AclOperation, AclPermissionType, PatternType, ResourceType

ACL_PATHS: Final = {PatternType.LITERAL: "/kafka-acl", PatternType.PREFIXED: "/kafka-acl-extended/prefixed"}
CHANGE_PATHS: Final = {
    PatternType.LITERAL: "/kafka-acl-changes",
    PatternType.PREFIXED: "/kafka-acl-extended-changes",
}
CHANGE_PREFIX: Final = "acl_changes_"

_OPERATIONS: Final = {operation.word: operation for operation in OPERATIONS}
_PERMISSIONS: Final = {each.word: each for each in (AclPermissionType.DENY, AclPermissionType.ALLOW)}
_TYPES: Final = {spelling: kind for kind in RESOURCE_TYPES for spelling in (kind.name, kind.word)}
# What ZooKeeper takes in no path, and the separator, which would make a name reach out of its folder.
_NO_NODE_NAME: Final = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]|^[.]{1,2}$")

# Stands for ACLs that cannot be read: nobody but super users is let in.
UNREADABLE: Final = frozenset({AclEntry(EVERYBODY, WILDCARD, AclOperation.ALL, AclPermissionType.DENY)})


def is_node_name(name: str) -> bool:
    """Whether ACLs can stand at a name."""
    return bool(name) and _NO_NODE_NAME.search(name) is None


def types_path(pattern_type: PatternType, resource_type: ResourceType) -> str:
    """The parent of the nodes of a type."""
    return f"{ACL_PATHS[pattern_type]}/{resource_type.word}"


def acl_path(pattern: ResourcePattern) -> str:
    """Where the ACLs of a pattern stand."""
    return f"{types_path(pattern.pattern_type, pattern.resource_type)}/{pattern.name}"


def permanent_paths() -> list[str]:
    """Every broker with an authorizer makes sure at its start that these are there."""
    parents = [types_path(how, kind) for how in PATTERN_TYPES for kind in RESOURCE_TYPES]
    return parents + list(CHANGE_PATHS.values())


class AclRow(msgspec.Struct, frozen=True, kw_only=True):
    """One ACL in Kafka's words, which may be newer than those we know."""

    principal: str
    permission: str = msgspec.field(name="permissionType")
    operation: str
    host: str

    @classmethod
    def of(cls, entry: AclEntry) -> AclRow:
        """Write an ACL."""
        return cls(
            principal=entry.principal,
            permission=entry.permission.word,
            operation=entry.operation.word,
            host=entry.host,
        )

    def entry(self) -> AclEntry | None:
        """Return the ACL; None for an operation that no request here needs, so that nothing is decided by it."""
        permission, operation = _PERMISSIONS.get(self.permission), _OPERATIONS.get(self.operation)
        if permission is None:
            raise MalformedNodeError(f"an ACL has permission {self.permission[:200]!r}")
        return None if operation is None else AclEntry(self.principal, self.host, operation, permission)


class AclNode(Content, frozen=True, kw_only=True):
    """All ACLs of a pattern."""

    version: int = 1
    acls: list[AclRow]

    def entries(self) -> frozenset[AclEntry]:
        """Return the ACLs that mean something here."""
        return frozenset(entry for row in self.acls if (entry := row.entry()) is not None)

    def changed(self, added: Iterable[AclEntry], removed: Iterable[AclEntry]) -> AclNode:
        """Return the node with some more and some fewer ACLs; those that we do not know stay."""
        less = set(map(AclRow.of, removed))
        rows = dict.fromkeys(row for row in self.acls if row not in less)
        rows.update(dict.fromkeys(map(AclRow.of, added)))
        return AclNode(acls=list(rows))


class AclChangeNode(Content, frozen=True, kw_only=True):
    """Says at which pattern ACLs have changed."""

    version: int = 1
    resource_type: str = msgspec.field(name="resourceType")
    name: str
    pattern_type: str = msgspec.field(name="patternType")


def encode_change(pattern: ResourcePattern) -> bytes:
    """Write the note of a change."""
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{pattern.resource_type.name}:{pattern.name}".encode()
    return AclChangeNode(
        resource_type=pattern.resource_type.name, name=pattern.name, pattern_type=pattern.pattern_type.name
    ).encode()


def decode_change(pattern_type: PatternType, data: bytes, path: str) -> ResourcePattern:
    """Read the note of a change."""
    if pattern_type is PatternType.PREFIXED:
        node = AclChangeNode.decode(data, path)
        type_name, name = node.resource_type, node.name
        is_known = node.pattern_type.upper() == PatternType.PREFIXED.name
    else:
        type_name, separator, name = data.decode("utf-8", "replace").partition(":")
        is_known = bool(separator)
    kind = _TYPES.get(type_name)
    if kind is None or not is_known or not is_node_name(name):
        raise MalformedNodeError(f"{path} holds {data[:200]!r}, which names no ACLs")
    return ResourcePattern(kind, name, pattern_type)
