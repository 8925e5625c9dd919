"""Which topics, groups and ACLs a mirror copies. No I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.client.admin.security_results import AclBinding
from ottla.protocol.acls import PatternType, ResourceType

# Topics and groups whose names begin with this belong to the cluster, or to a program that runs on it.
INTERNAL_PREFIX: Final = "__"
# The mirror's own group and transactional id in the destination.
OWN_PREFIX: Final = "ottla-mirror-"
_WILDCARD: Final = "*"


@dataclass(frozen=True, slots=True)
class Selection:
    """Regular expressions, each for a whole name."""

    topics: Sequence[re.Pattern[str]] = field(default_factory=lambda: (re.compile(".*"),))
    exclude: Sequence[re.Pattern[str]] = ()
    groups: Sequence[re.Pattern[str]] = field(default_factory=lambda: (re.compile(".*"),))

    def has_topic(self, name: str) -> bool:
        """Whether a topic is copied; internal ones never are."""
        return not name.startswith(INTERNAL_PREFIX) and _matches(self.topics, name) and not _matches(self.exclude, name)

    def has_group(self, name: str) -> bool:
        """Whether the offsets of a group are copied."""
        return not name.startswith((INTERNAL_PREFIX, OWN_PREFIX)) and _matches(self.groups, name)

    def has_acl(self, acl: AclBinding) -> bool:
        """Whether an ACL is copied: one that names no topic or group that is left out."""
        if acl.pattern_type is not PatternType.LITERAL or acl.resource_name == _WILDCARD:
            return True
        if acl.resource_type is ResourceType.TOPIC:
            return self.has_topic(acl.resource_name)
        if acl.resource_type is ResourceType.GROUP:
            return self.has_group(acl.resource_name)
        return True


def _matches(patterns: Sequence[re.Pattern[str]], name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in patterns)
