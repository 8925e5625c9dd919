"""What the three APIs about ACLs share: the ACL store, and the conversion of requests to ACLs and filters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from ottla.broker.requests.access import CLUSTER, check
from ottla.broker.requests.audited import note_change
from ottla.broker.requests.outcome import DONE, Outcome
from ottla.broker.requests.request import SecurityRequest
from ottla.broker.security.acls.acl import AclEntry, ResourceAcl, ResourceAclFilter, ResourcePattern
from ottla.broker.security.acls.acl_store import AclStore, check_name
from ottla.protocol.acls import CLUSTER_NAME, AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_acls import AclCreation
from ottla.protocol.messages.delete_acls import DeleteAclsFilter
from ottla.protocol.messages.describe_acls import DescribeAclsRequest

Code = TypeVar("Code", ResourceType, PatternType, AclOperation, AclPermissionType)

_PRINCIPAL: Final = re.compile(r"[^:]+:.+", re.DOTALL)


def acl_store(request: SecurityRequest) -> AclStore:
    """Return the ACL store; raise KafkaError if the client has no right, or if there is no authorizer."""
    check(request, CLUSTER)
    store = request.services.security.acls
    if store is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED)
    return store


def binding_of(creation: AclCreation) -> ResourceAcl:
    """Return the ACL to create; raise INVALID_REQUEST if it is not valid."""
    pattern = ResourcePattern(
        _single(ResourceType, creation.resource_type),
        creation.resource_name,
        _single(PatternType, creation.resource_pattern_type, PatternType.MATCH),
    )
    if pattern.resource_type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the name of a cluster must be {CLUSTER_NAME}")
    check_name(pattern.name)
    if not _PRINCIPAL.fullmatch(creation.principal) or not creation.host:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "an ACL needs a principal, such as User:alice, and a host")
    operation = _single(AclOperation, creation.operation)
    permission = _single(AclPermissionType, creation.permission_type)
    return ResourceAcl(pattern, AclEntry(creation.principal, creation.host, operation, permission))


def filter_of(wanted: DescribeAclsRequest | DeleteAclsFilter) -> ResourceAclFilter:
    """Return a filter; raise INVALID_REQUEST if it has unknown codes."""
    return ResourceAclFilter(
        _known(ResourceType, wanted.resource_type_filter),
        wanted.resource_name_filter,
        _known(PatternType, wanted.pattern_type_filter),
        wanted.principal_filter,
        wanted.host_filter,
        _known(AclOperation, wanted.operation),
        _known(AclPermissionType, wanted.permission_type),
    )


def change_each(
    request: SecurityRequest,
    event: str,
    bindings: Iterable[ResourceAcl],
    change: Callable[[ResourcePattern, frozenset[AclEntry]], None],
) -> Mapping[ResourcePattern, Outcome]:
    """Change ACLs, all of one pattern at once, and note it as `event`; return the outcomes by pattern."""
    by_pattern: dict[ResourcePattern, set[AclEntry]] = {}
    for binding in bindings:
        by_pattern.setdefault(binding.pattern, set()).add(binding.entry)
    outcomes = {}
    for pattern, entries in by_pattern.items():
        try:
            change(pattern, frozenset(entries))
            outcomes[pattern] = DONE
        except KafkaError as error:
            outcomes[pattern] = Outcome.refused(error)
        else:
            rows = [
                f"{each.permission.word} {each.principal} {each.operation.word} from {each.host}" for each in entries
            ]
            noted = {"pattern": pattern.pattern_type.word, "acls": rows}
            note_change(request, event, f"{pattern.resource_type.word}:{pattern.name}", noted)
    return outcomes


def _known(codes: type[Code], code: int, above: int = 0) -> Code:
    try:
        known = codes(code)
    except ValueError:
        known = codes(0)
    if known <= above:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown {codes.__name__} {code}")
    return known


def _single(codes: type[Code], code: int, filters_up_to: int = 1) -> Code:
    """Return a code that names one thing. Lower codes, such as ANY, are only for filters."""
    return _known(codes, code, filters_up_to)
