"""CreateAcls (30), versions 0-3.

Behavior: adds ACLs; an ACL that exists already is no error. All ACLs of one resource are written at once. They take
effect on this broker before the response, and on the others a moment later. INVALID_REQUEST: unknown codes, an empty
name or one with a slash, a cluster that is not called `kafka-cluster`, a principal that is not `Type:name`.
SECURITY_DISABLED, for each ACL: there is no authorizer.

Version notes: version 0 has literal names only.
"""

from __future__ import annotations

from ottla.broker.requests.acl_requests import acl_store, binding_of, change_each
from ottla.broker.requests.outcome import Outcome
from ottla.broker.requests.request import SecurityRequest
from ottla.broker.security.acls.acl import ResourceAcl
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse


def create_acls(request: SecurityRequest) -> CreateAclsResponse:
    """Add ACLs."""
    body: CreateAclsRequest = request.body
    try:
        store = acl_store(request)
    except KafkaError as error:
        outcomes = [Outcome.refused(error)] * len(body.creations)
    else:
        wanted = [_binding(creation) for creation in body.creations]
        valid = [each for each in wanted if isinstance(each, ResourceAcl)]
        done = change_each(
            request, "acls_created", valid, lambda pattern, entries: store.change(pattern, added=entries)
        )
        outcomes = [done[each.pattern] if isinstance(each, ResourceAcl) else each for each in wanted]
    return CreateAclsResponse(
        throttle_time_ms=0,
        results=[AclCreationResult(error_code=outcome.code, error_message=outcome.message) for outcome in outcomes],
    )


def _binding(creation: AclCreation) -> ResourceAcl | Outcome:
    try:
        return binding_of(creation)
    except KafkaError as error:
        return Outcome.refused(error)
