"""ACLs in ZooKeeper, where Apache Kafka's brokers and tools read and write them too.

    /kafka-acl/<Type>/<name>                        AclNode of one name, or of all ("*")
    /kafka-acl-extended/prefixed/<Type>/<name>      AclNode of a prefix
    /kafka-acl-changes/acl_changes_<n>              a note: TYPE:name, as plain text
    /kafka-acl-extended-changes/acl_changes_<n>     a note: AclChangeNode

All ACLs of a pattern are in one node, so a change of several takes effect as a whole. A node without ACLs is deleted.
Every change of a node is followed by a note. A note has no ACLs, so reading it twice does no harm.
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
# Characters that ZooKeeper refuses in a path, and the separator, which would take a name out of its folder.
_NO_NODE_NAME: Final = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]|^[.]{1,2}$")

# Replaces ACLs that cannot be read: only super users are allowed.
UNREADABLE: Final = frozenset({AclEntry(EVERYBODY, WILDCARD, AclOperation.ALL, AclPermissionType.DENY)})


def is_node_name(name: str) -> bool:
    """Whether a name can have ACLs."""
    return bool(name) and _NO_NODE_NAME.search(name) is None


def types_path(pattern_type: PatternType, resource_type: ResourceType) -> str:
    """Return the parent of the nodes of a type."""
    return f"{ACL_PATHS[pattern_type]}/{resource_type.word}"


def acl_path(pattern: ResourcePattern) -> str:
    """Return the path of a pattern's ACLs."""
    return f"{types_path(pattern.pattern_type, pattern.resource_type)}/{pattern.name}"


def permanent_paths() -> list[str]:
    """Return the nodes that every broker with an authorizer creates at its start if they are missing."""
    parents = [types_path(how, kind) for how in PATTERN_TYPES for kind in RESOURCE_TYPES]
    return parents + list(CHANGE_PATHS.values())


class AclRow(msgspec.Struct, frozen=True, kw_only=True):
    """One ACL as Kafka writes it; its words may be newer than those we know."""

    principal: str
    permission: str = msgspec.field(name="permissionType")
    operation: str
    host: str

    @classmethod
    def of(cls, entry: AclEntry) -> AclRow:
        """Return an ACL as Kafka writes it."""
        return cls(
            principal=entry.principal,
            permission=entry.permission.word,
            operation=entry.operation.word,
            host=entry.host,
        )

    def entry(self) -> AclEntry | None:
        """Return the ACL; None for an operation that no request here needs, so that it decides nothing."""
        permission, operation = _PERMISSIONS.get(self.permission), _OPERATIONS.get(self.operation)
        if permission is None:
            raise MalformedNodeError(f"an ACL has permission {self.permission[:200]!r}")
        return None if operation is None else AclEntry(self.principal, self.host, operation, permission)


class AclNode(Content, frozen=True, kw_only=True):
    """All ACLs of a pattern."""

    version: int = 1
    acls: list[AclRow]

    def entries(self) -> frozenset[AclEntry]:
        """Return the ACLs that we know."""
        return frozenset(entry for row in self.acls if (entry := row.entry()) is not None)

    def changed(self, added: Iterable[AclEntry], removed: Iterable[AclEntry]) -> AclNode:
        """Return the node with some ACLs added and some removed; ACLs that we do not know stay."""
        less = set(map(AclRow.of, removed))
        rows = dict.fromkeys(row for row in self.acls if row not in less)
        rows.update(dict.fromkeys(map(AclRow.of, added)))
        return AclNode(acls=list(rows))


class AclChangeNode(Content, frozen=True, kw_only=True):
    """Names the pattern whose ACLs have changed."""

    version: int = 1
    resource_type: str = msgspec.field(name="resourceType")
    name: str
    pattern_type: str = msgspec.field(name="patternType")


def encode_change(pattern: ResourcePattern) -> bytes:
    """Return the note of a change."""
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{pattern.resource_type.name}:{pattern.name}".encode()
    return AclChangeNode(
        resource_type=pattern.resource_type.name, name=pattern.name, pattern_type=pattern.pattern_type.name
    ).encode()


def decode_change(pattern_type: PatternType, data: bytes, path: str) -> ResourcePattern:
    """Parse the note of a change."""
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
