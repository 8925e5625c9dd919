"""DeleteAcls (31), versions 0-3.

Behavior: removes the ACLs that match filters, and returns them; the filters are those of DescribeAcls. All removals
from one resource are made at once, even if several filters match. They take effect on this broker before the response,
and on the others a moment later. INVALID_REQUEST: a filter with unknown codes. SECURITY_DISABLED, for each filter:
there is no authorizer.

Version notes: version 0 has literal names only.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.requests.acl_requests import acl_store, change_each, filter_of
from ottla.broker.requests.outcome import Outcome
from ottla.broker.requests.request import SecurityRequest
from ottla.broker.security.acls.acl import ResourceAcl, ResourcePattern
from ottla.broker.security.acls.acl_snapshot import AclSnapshot
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


def delete_acls(request: SecurityRequest) -> DeleteAclsResponse:
    """Remove ACLs."""
    body: DeleteAclsRequest = request.body
    try:
        store = acl_store(request)
    except KafkaError as error:
        return _response([_refused(Outcome.refused(error))] * len(body.filters))
    snapshot = store.snapshot
    found = [_found(snapshot, wanted) for wanted in body.filters]
    removed = [binding for each in found if isinstance(each, list) for binding in each]
    outcomes = change_each(
        request, "acls_deleted", removed, lambda pattern, entries: store.change(pattern, removed=entries)
    )
    return _response([_removed(each, outcomes) if isinstance(each, list) else _refused(each) for each in found])


def _found(snapshot: AclSnapshot, wanted: DeleteAclsFilter) -> list[ResourceAcl] | Outcome:
    try:
        return list(snapshot.bindings(filter_of(wanted)))
    except KafkaError as error:
        return Outcome.refused(error)


def _removed(bindings: list[ResourceAcl], outcomes: Mapping[ResourcePattern, Outcome]) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        matching_acls=[
            DeleteAclsMatchingAcl(
                error_code=outcomes[pattern].code,
                error_message=outcomes[pattern].message,
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                pattern_type=pattern.pattern_type,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            for pattern, entry in bindings
        ],
    )


def _refused(outcome: Outcome) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=outcome.code, error_message=outcome.message, matching_acls=[])


def _response(results: list[DeleteAclsFilterResult]) -> DeleteAclsResponse:
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=results)
