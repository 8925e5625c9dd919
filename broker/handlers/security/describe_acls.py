"""DescribeAcls (29), versions 0-3.

Behavior: returns the ACLs that match a filter, by resource, as this broker knows them. Null and 1 (ANY) match
everything. Pattern type 2 (MATCH) finds all ACLs that apply to a resource of that name: literal ones, prefixes of the
name, and "*". Unknown codes are INVALID_REQUEST. Without an authorizer: SECURITY_DISABLED.

Version notes: version 0 has literal names only.
"""

from __future__ import annotations

from ottla.broker.requests.acl_requests import acl_store, filter_of
from ottla.broker.requests.outcome import Outcome
from ottla.broker.requests.request import SecurityRequest
from ottla.broker.security.acls.acl import ResourcePattern
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_acls import AclDescription, DescribeAclsResource, DescribeAclsResponse


def describe_acls(request: SecurityRequest) -> DescribeAclsResponse:
    """List ACLs."""
    try:
        found = list(acl_store(request).snapshot.bindings(filter_of(request.body)))
    except KafkaError as error:
        outcome = Outcome.refused(error)
        return DescribeAclsResponse(
            throttle_time_ms=0, error_code=outcome.code, error_message=outcome.message, resources=[]
        )
    by_pattern: dict[ResourcePattern, list[AclDescription]] = {}
    for pattern, entry in found:
        by_pattern.setdefault(pattern, []).append(
            AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
        )
    return DescribeAclsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        resources=[
            DescribeAclsResource(
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                pattern_type=pattern.pattern_type,
                acls=acls,
            )
            for pattern, acls in by_pattern.items()
        ],
    )
