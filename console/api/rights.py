"""Who may do what, decided as Kafka's authorizer does: super users, denials, permissions, and then the default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.client.admin.security_results import AclBinding
from ottla.protocol.acls import AclOperation, AclPermissionType, PatternType, ResourceType

_WILDCARD: Final = "*"
_ANYBODY: Final = "User:*"
# Whoever may do one of these may also describe the resource.
_IMPLY: Final[Mapping[AclOperation, frozenset[AclOperation]]] = {
    AclOperation.DESCRIBE: frozenset({AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS}),
}


@dataclass(frozen=True, slots=True)
class RightsOptions:
    """The options of brokers that decide besides ACLs; None if they could not be read."""

    super_users: frozenset[str] | None = None
    allows_without_acls: bool | None = None
    has_authorizer: bool = True

    @classmethod
    def of(cls, values: Mapping[str, str | None]) -> RightsOptions:
        """Read the options of a broker."""
        users = frozenset(each.strip() for each in (values.get("super.users") or "").split(";") if each.strip())
        return cls(users, values.get("allow.everyone.if.no.acl.found") == "true")

    def without_authorizer(self) -> RightsOptions:
        """Return the options of a cluster that checks nothing."""
        return RightsOptions(self.super_users, self.allows_without_acls, has_authorizer=False)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision, in words, and the ACLs that made it."""

    is_allowed: bool
    sentence: str
    decided_by: Sequence[AclBinding] = ()
    is_denied: bool = False


def explained(
    acls: Sequence[AclBinding],
    options: RightsOptions,
    principal: str,
    host: str,
    operation: AclOperation,
    resource_type: ResourceType,
    resource_name: str,
) -> Verdict:
    """Decide whether a principal may do an operation on a resource; `acls` may have others, too."""
    what = f"{operation.label} {resource_type.label}"
    if resource_type is not ResourceType.CLUSTER:
        what += f" {resource_name}"
    if not options.has_authorizer:
        return Verdict(True, f"Yes: the cluster has no authorizer, so everybody may {what}.")
    if options.super_users and principal in options.super_users:
        return Verdict(True, f"Yes: {principal} is a super user, and may do everything.")
    of_resource = [each for each in acls if _covers(each, resource_type, resource_name)]
    applying = [
        each
        for each in of_resource
        if each.principal in (principal, _ANYBODY) and (each.host == _WILDCARD or host in (each.host, _WILDCARD))
    ]
    denials = [
        each
        for each in applying
        if each.permission_type is AclPermissionType.DENY and each.operation in (operation, AclOperation.ALL)
    ]
    if denials:
        return Verdict(
            False, f"No: an ACL denies {principal} to {what}. A denial is stronger than any permission.", denials, True
        )
    enough = {operation, AclOperation.ALL, *_IMPLY.get(operation, ())}
    permissions = [
        each for each in applying if each.permission_type is AclPermissionType.ALLOW and each.operation in enough
    ]
    if permissions:
        return Verdict(True, f"Yes: {principal} may {what}{_because(permissions[0], operation)}.", permissions)
    if not of_resource and options.allows_without_acls:
        return Verdict(True, "Yes: there is no ACL for it, and allow.everyone.if.no.acl.found is true.")
    unknown = "" if options.super_users is not None else " (unless it is a super user, which you may not see)"
    return Verdict(False, f"No: no ACL allows {principal} to {what}{unknown}.")


def _covers(acl: AclBinding, resource_type: ResourceType, resource_name: str) -> bool:
    if acl.resource_type is not resource_type:
        return False
    if acl.pattern_type is PatternType.PREFIXED:
        return resource_name.startswith(acl.resource_name)
    return acl.resource_name in (resource_name, _WILDCARD)


def _because(acl: AclBinding, operation: AclOperation) -> str:
    parts = []
    if acl.operation is AclOperation.ALL:
        parts.append("it may do everything there")
    elif acl.operation is not operation:
        parts.append(f"it may {acl.operation.label} it, which includes {operation.label}")
    if acl.principal == _ANYBODY:
        parts.append("everybody may")
    if acl.pattern_type is PatternType.PREFIXED:
        parts.append(f"the name begins with {acl.resource_name}")
    elif acl.resource_name == _WILDCARD:
        parts.append("the ACL is for all names")
    return f", because {' and '.join(parts)}" if parts else ", because of an ACL for exactly that"
