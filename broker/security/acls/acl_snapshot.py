"""All ACLs at one moment, arranged for decisions. Immutable: a change makes a new snapshot, which replaces the old one.

A decision about a resource looks at the ACLs of its name, of "*", and of the prefixes of its name:

    no ACL at any of them                       the default
    a DENY that applies to the client           no, whatever else there is
    an ALLOW that applies to the client         yes; ALLOW of some operations implies others
    otherwise                                   no

Prefixes are looked up by the lengths in use, so the time does not grow with the number of other ACLs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ottla.broker.security.acls.acl import IMPLYING, WILDCARD, AclEntry, ResourceAcl, ResourceAclFilter, ResourcePattern
from ottla.protocol.acls import AclOperation, AclPermissionType, PatternType, ResourceType

Entries = frozenset[AclEntry]

_LITERAL, _PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
_NOTHING: Final[Entries] = frozenset()


class AclSnapshot:
    """ACLs by their patterns."""

    __slots__ = ("_prefix_lengths", "acls")

    def __init__(self, acls: Mapping[ResourcePattern, Entries] | None = None) -> None:
        """A pattern without ACLs is the same as no pattern."""
        self.acls: Mapping[ResourcePattern, Entries] = {
            pattern: entries for pattern, entries in (acls or {}).items() if entries
        }
        lengths: dict[ResourceType, set[int]] = {}
        for pattern in self.acls:
            if pattern.pattern_type is _PREFIXED:
                lengths.setdefault(pattern.resource_type, set()).add(len(pattern.name))
        self._prefix_lengths = {kind: tuple(sorted(found)) for kind, found in lengths.items()}

    def replacing(self, changed: Mapping[ResourcePattern, Entries]) -> AclSnapshot:
        """Return a snapshot with new ACLs for some patterns, or with none."""
        return AclSnapshot({**self.acls, **changed})

    def bindings(self, wanted: ResourceAclFilter) -> Iterator[ResourceAcl]:
        """Yield the ACLs that a filter selects."""
        for pattern, entries in self.acls.items():
            if wanted.matches_pattern(pattern):
                for entry in entries:
                    if wanted.matches_entry(entry):
                        yield ResourceAcl(pattern, entry)

    def decide(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool | None:
        """Return whether something is allowed; None if no ACL applies to the resource."""
        found = self._concerning(resource_type, name)
        if not found:
            return None
        concerned = [entry for entries in found for entry in entries if entry.concerns(principal, host)]
        if _has(concerned, AclPermissionType.DENY, {operation}):
            return False
        return _has(concerned, AclPermissionType.ALLOW, IMPLYING.get(operation, {operation}))

    def _concerning(self, resource_type: ResourceType, name: str) -> list[Entries]:
        acls = self.acls
        patterns = [ResourcePattern(resource_type, name, _LITERAL), ResourcePattern(resource_type, WILDCARD, _LITERAL)]
        for length in self._prefix_lengths.get(resource_type, ()):
            if length > len(name):
                break
            patterns.append(ResourcePattern(resource_type, name[:length], _PREFIXED))
        return [entries for pattern in patterns if (entries := acls.get(pattern))]

    def decide_any(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, *, default: bool
    ) -> bool:
        """Return whether something is allowed with at least one resource of a type, whatever its name.

        A DENY for all names means no. Otherwise an ALLOW counts unless a DENY covers all that it allows, at the same
        name or at a prefix of it. The default counts if there are names without any ACL.
        """
        allowed: list[ResourcePattern] = []
        denied: set[ResourcePattern] = set()
        for pattern, entries in self.acls.items():
            if pattern.resource_type is not resource_type:
                continue
            concerned = [entry for entry in entries if entry.concerns(principal, host)]
            if _has(concerned, AclPermissionType.DENY, {operation}):
                denied.add(pattern)
            elif _has(concerned, AclPermissionType.ALLOW, {operation}):
                allowed.append(pattern)
        everything = ResourcePattern(resource_type, WILDCARD)
        if everything in denied:
            return False
        return (default and everything not in self.acls) or any(
            not self._is_covered(pattern, denied) for pattern in allowed
        )

    def _is_covered(self, pattern: ResourcePattern, denied: set[ResourcePattern]) -> bool:
        if pattern.pattern_type is _LITERAL and pattern.name == WILDCARD:
            return False
        lengths = self._prefix_lengths.get(pattern.resource_type, ())
        return any(
            ResourcePattern(pattern.resource_type, pattern.name[:length], _PREFIXED) in denied
            for length in lengths
            if length <= len(pattern.name)
        )


def _has(entries: Iterable[AclEntry], permission: AclPermissionType, operations: Iterable[AclOperation]) -> bool:
    return any(
        entry.permission is permission and (entry.operation is AclOperation.ALL or entry.operation in operations)
        for entry in entries
    )
