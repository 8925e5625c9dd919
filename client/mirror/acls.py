"""ACLs in step: those of the source exist in the destination.

An ACL that disappears from the source while the mirror runs is removed from the destination. Those that the destination
has for itself stay, so a mirror that was not running cannot tell which ones were removed meanwhile.
"""

from __future__ import annotations

from ottla.client.admin.admin import Admin
from ottla.client.admin.security_results import AclBinding, AclFilter
from ottla.client.errors import SecurityDisabledError
from ottla.client.mirror.selection import Selection


class Acls:
    """Keeps ACLs in step."""

    def __init__(self, source: Admin, destination: Admin, selection: Selection) -> None:
        self._source = source
        self._destination = destination
        self._selection = selection
        self._seen: frozenset[AclBinding] = frozenset()
        # Why ACLs are not copied; None if they are.
        self.note: str | None = None

    async def mirror(self) -> None:
        """Add and remove ACLs in the destination; KafkaError if that fails."""
        wanted = await self.wanted()
        if not wanted and not self._seen:
            return
        try:
            present = frozenset(await self._destination.describe_acls())
        except SecurityDisabledError:
            self.note = "the destination has no authorizer, so ACLs are not copied"
            return
        missing = [acl for acl in wanted if acl not in present]
        if missing:
            await self._destination.create_acls(missing)
        removed = [acl for acl in self._seen - wanted if acl in present]
        if removed:
            await self._destination.delete_acls([_exactly(acl) for acl in removed])
        self._seen = wanted

    async def wanted(self) -> frozenset[AclBinding]:
        """Return the ACLs to copy; a source without an authorizer has none."""
        try:
            return frozenset(acl for acl in await self._source.describe_acls() if self._selection.has_acl(acl))
        except SecurityDisabledError:
            return frozenset()

    async def missing(self) -> list[AclBinding]:
        """Return the ACLs that the destination should have, but has not."""
        wanted = await self.wanted()
        if not wanted or self.note is not None:
            return []
        present = frozenset(await self._destination.describe_acls())
        return [acl for acl in wanted if acl not in present]


def _exactly(acl: AclBinding) -> AclFilter:
    return AclFilter(
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )
