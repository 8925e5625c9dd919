"""Requests about ACLs, quotas and SCRAM users."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.client.admin.routing import AdminRequests, error_of
from ottla.client.admin.security_results import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclOutcome,
    AclPermissionType,
    ClientQuota,
    ClientQuotaOutcome,
    DeletedAcls,
    PatternType,
    ResourceType,
    ScramCredentialDeletion,
    ScramCredentialInfo,
    ScramCredentialUpsertion,
    UserOutcome,
    UserScramCredentials,
)
from ottla.client.errors import error_for
from ottla.protocol.api import Api
from ottla.protocol.messages import alter_user_scram_credentials as scram
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ottla.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from ottla.protocol.scram import ScramMechanism, salted_password

_SALT_BYTES: Final = 24
_EXACT, _DEFAULT, _ANY = 0, 1, 2
# Matches any name of a type in `describe_client_quotas`.
ANY_NAME: Final = "*any*"


async def create_acls(requests: AdminRequests, acls: Sequence[AclBinding]) -> list[AclOutcome]:
    """Ask the controller to add ACLs."""
    rows = [
        AclCreation(
            resource_type=acl.resource_type,
            resource_name=acl.resource_name,
            resource_pattern_type=acl.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission_type,
        )
        for acl in acls
    ]
    response = await requests.cluster.send_controller(Api.CREATE_ACLS, CreateAclsRequest(creations=rows))
    return [
        AclOutcome(acl, error_of(row.error_code, row.error_message, acl.principal))
        for acl, row in zip(acls, response.results, strict=True)
    ]


async def describe_acls(requests: AdminRequests, matching: AclFilter | None) -> tuple[AclBinding, ...]:
    """Ask any broker for the ACLs that match a filter."""
    wanted = AclFilter() if matching is None else matching
    response = await requests.cluster.send_any(Api.DESCRIBE_ACLS, DescribeAclsRequest(**_filter(wanted)))
    if response.error_code:
        raise error_for(response.error_code, response.error_message or "")
    return tuple(_binding(resource, acl) for resource in response.resources for acl in resource.acls)


async def delete_acls(requests: AdminRequests, filters: Sequence[AclFilter]) -> list[DeletedAcls]:
    """Ask the controller to delete the ACLs that match filters."""
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**_filter(each)) for each in filters])
    response = await requests.cluster.send_controller(Api.DELETE_ACLS, request)
    return [
        DeletedAcls(
            tuple(
                AclOutcome(_binding(row, row), error_of(row.error_code, row.error_message, row.principal))
                for row in result.matching_acls
            ),
            error_of(result.error_code, result.error_message, "a filter"),
        )
        for result in response.filter_results
    ]


async def describe_client_quotas(
    requests: AdminRequests, entity: Mapping[str, str | None] | None, *, strict: bool
) -> tuple[ClientQuota, ...]:
    """Ask any broker for quotas."""
    components = [
        ComponentData(
            entity_type=entity_type,
            match_type=_ANY if name == ANY_NAME else _DEFAULT if name is None else _EXACT,
            match=None if name == ANY_NAME else name,
        )
        for entity_type, name in (entity or {}).items()
    ]
    request = DescribeClientQuotasRequest(components=components, strict=strict)
    response = await requests.cluster.send_any(Api.DESCRIBE_CLIENT_QUOTAS, request)
    if response.error_code:
        raise error_for(response.error_code, response.error_message or "")
    return tuple(
        ClientQuota(
            {each.entity_type: each.entity_name for each in entry.entity},
            {each.key: each.value for each in entry.values},
        )
        for entry in response.entries or ()
    )


async def alter_client_quotas(
    requests: AdminRequests,
    changes: Sequence[tuple[Mapping[str, str | None], Mapping[str, float | None]]],
    *,
    validate_only: bool,
) -> list[ClientQuotaOutcome]:
    """Ask any broker to change quotas."""
    entries = [
        RequestEntryData(
            entity=[RequestEntityData(entity_type=each, entity_name=name) for each, name in entity.items()],
            ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
        )
        for entity, quotas in changes
    ]
    request = AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
    response = await requests.cluster.send_any(Api.ALTER_CLIENT_QUOTAS, request)
    outcomes = []
    for entry in response.entries:
        entity = {each.entity_type: each.entity_name for each in entry.entity}
        outcomes.append(ClientQuotaOutcome(entity, error_of(entry.error_code, entry.error_message, "/".join(entity))))
    return outcomes


async def describe_user_scram_credentials(
    requests: AdminRequests, users: Sequence[str] | None
) -> list[UserScramCredentials]:
    """Ask the controller which SCRAM credentials users have, sorted by user."""
    named = None if users is None else [UserName(name=user) for user in users]
    request = DescribeUserScramCredentialsRequest(users=named)
    response = await requests.cluster.send_controller(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, request)
    if response.error_code:
        raise error_for(response.error_code, response.error_message or "")
    found = [
        UserScramCredentials(
            row.user,
            tuple(
                ScramCredentialInfo(_mechanism_label(info.mechanism), info.iterations) for info in row.credential_infos
            ),
            error_of(row.error_code, row.error_message, f"user {row.user!r}"),
        )
        for row in response.results
    ]
    return sorted(found, key=lambda each: each.user)


async def alter_user_scram_credentials(
    requests: AdminRequests,
    alterations: Sequence[ScramCredentialUpsertion | ScramCredentialDeletion],
) -> list[UserOutcome]:
    """Ask the controller to set and delete SCRAM credentials. Passwords are salted here and never sent."""
    request = scram.AlterUserScramCredentialsRequest(
        deletions=[
            scram.ScramCredentialDeletion(name=each.user, mechanism=each.mechanism)
            for each in alterations
            if isinstance(each, ScramCredentialDeletion)
        ],
        upsertions=[_salted(each) for each in alterations if isinstance(each, ScramCredentialUpsertion)],
    )
    response = await requests.cluster.send_controller(Api.ALTER_USER_SCRAM_CREDENTIALS, request)
    return [
        UserOutcome(row.user, error_of(row.error_code, row.error_message, f"user {row.user!r}"))
        for row in response.results
    ]


def _filter(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission_type,
    }


def _binding(resource: Any, acl: Any) -> AclBinding:
    return AclBinding(
        principal=acl.principal,
        operation=AclOperation(acl.operation),
        resource_type=ResourceType(resource.resource_type),
        resource_name=resource.resource_name,
        pattern_type=PatternType(resource.pattern_type),
        permission_type=AclPermissionType(acl.permission_type),
        host=acl.host,
    )


def _mechanism_label(number: int) -> str:
    return ScramMechanism(number).label if number in ScramMechanism.__members__.values() else f"mechanism {number}"


def _salted(wanted: ScramCredentialUpsertion) -> scram.ScramCredentialUpsertion:
    salt = secrets.token_bytes(_SALT_BYTES) if wanted.salt is None else wanted.salt
    return scram.ScramCredentialUpsertion(
        name=wanted.user,
        mechanism=wanted.mechanism,
        iterations=wanted.iterations,
        salt=salt,
        salted_password=salted_password(wanted.mechanism, wanted.password, salt, wanted.iterations),
    )
