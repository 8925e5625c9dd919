"""Admin's calls about users, rights and quotas."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.client.admin.routing import AdminRequests, error_of, raised
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
# Stands for any name of a type in `describe_client_quotas`.
ANY_NAME: Final = "*any*"


class SecurityCalls(AdminRequests):
    """Read and change who may do what, and how much of it."""

    # Rights

    async def create_acls(self, acls: Sequence[AclBinding], *, raise_errors: bool = True) -> tuple[AclOutcome, ...]:
        """Add ACLs; one that is there already is no error."""
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
        response = await self._cluster.send_controller(Api.CREATE_ACLS, CreateAclsRequest(creations=rows))
        outcomes = [
            AclOutcome(acl, error_of(row.error_code, row.error_message, acl.principal))
            for acl, row in zip(acls, response.results, strict=True)
        ]
        return raised(outcomes, raise_errors)

    async def describe_acls(self, matching: AclFilter | None = None) -> tuple[AclBinding, ...]:
        """Return the ACLs that a filter matches; without one, all."""
        wanted = AclFilter() if matching is None else matching
        response = await self._cluster.send_any(Api.DESCRIBE_ACLS, DescribeAclsRequest(**_filter(wanted)))
        if response.error_code:
            raise error_for(response.error_code, response.error_message or "")
        return tuple(_binding(resource, acl) for resource in response.resources for acl in resource.acls)

    async def delete_acls(self, filters: Sequence[AclFilter], *, raise_errors: bool = True) -> tuple[DeletedAcls, ...]:
        """Delete the ACLs that each filter matches."""
        request = DeleteAclsRequest(filters=[DeleteAclsFilter(**_filter(each)) for each in filters])
        response = await self._cluster.send_controller(Api.DELETE_ACLS, request)
        results = [
            DeletedAcls(
                tuple(
                    AclOutcome(_binding(row, row), error_of(row.error_code, row.error_message, row.principal))
                    for row in result.matching_acls
                ),
                error_of(result.error_code, result.error_message, "a filter"),
            )
            for result in response.filter_results
        ]
        return raised(results, raise_errors)

    # Quotas

    async def describe_client_quotas(
        self, entity: Mapping[str, str | None] | None = None, *, strict: bool = False
    ) -> tuple[ClientQuota, ...]:
        """Return the quotas of all entities that have these names; None is the default, ANY_NAME any name.

        With `strict` only of those that have no other names besides.
        """
        components = [
            ComponentData(
                entity_type=entity_type,
                match_type=_ANY if name == ANY_NAME else _DEFAULT if name is None else _EXACT,
                match=None if name == ANY_NAME else name,
            )
            for entity_type, name in (entity or {}).items()
        ]
        request = DescribeClientQuotasRequest(components=components, strict=strict)
        response = await self._cluster.send_any(Api.DESCRIBE_CLIENT_QUOTAS, request)
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
        self,
        changes: Sequence[tuple[Mapping[str, str | None], Mapping[str, float | None]]],
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> tuple[ClientQuotaOutcome, ...]:
        """Change quotas of entities and leave all others; None removes one."""
        entries = [
            RequestEntryData(
                entity=[RequestEntityData(entity_type=each, entity_name=name) for each, name in entity.items()],
                ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
            )
            for entity, quotas in changes
        ]
        request = AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
        response = await self._cluster.send_any(Api.ALTER_CLIENT_QUOTAS, request)
        outcomes = []
        for entry in response.entries:
            entity = {each.entity_type: each.entity_name for each in entry.entity}
            outcomes.append(
                ClientQuotaOutcome(entity, error_of(entry.error_code, entry.error_message, "/".join(entity)))
            )
        return raised(outcomes, raise_errors)

    # Users

    async def describe_user_scram_credentials(
        self, users: Sequence[str] | None = None, *, raise_errors: bool = True
    ) -> tuple[UserScramCredentials, ...]:
        """Return which SCRAM mechanisms users have; without names, of all users."""
        named = None if users is None else [UserName(name=user) for user in users]
        request = DescribeUserScramCredentialsRequest(users=named)
        response = await self._cluster.send_controller(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, request)
        if response.error_code:
            raise error_for(response.error_code, response.error_message or "")
        found = [
            UserScramCredentials(
                row.user,
                tuple(
                    ScramCredentialInfo(_mechanism_label(info.mechanism), info.iterations)
                    for info in row.credential_infos
                ),
                error_of(row.error_code, row.error_message, f"user {row.user!r}"),
            )
            for row in response.results
        ]
        return raised(sorted(found, key=lambda each: each.user), raise_errors)

    async def alter_user_scram_credentials(
        self,
        alterations: Sequence[ScramCredentialUpsertion | ScramCredentialDeletion],
        *,
        raise_errors: bool = True,
    ) -> tuple[UserOutcome, ...]:
        """Set and delete SCRAM credentials; all that concerns one user happens at once."""
        request = scram.AlterUserScramCredentialsRequest(
            deletions=[
                scram.ScramCredentialDeletion(name=each.user, mechanism=each.mechanism)
                for each in alterations
                if isinstance(each, ScramCredentialDeletion)
            ],
            upsertions=[_salted(each) for each in alterations if isinstance(each, ScramCredentialUpsertion)],
        )
        response = await self._cluster.send_controller(Api.ALTER_USER_SCRAM_CREDENTIALS, request)
        outcomes = [
            UserOutcome(row.user, error_of(row.error_code, row.error_message, f"user {row.user!r}"))
            for row in response.results
        ]
        return raised(outcomes, raise_errors)


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
