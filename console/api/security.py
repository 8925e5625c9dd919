"""Users, ACLs and quotas, and the answer to "may alice read orders, and why?"."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ottla.client.admin.results import ConfigResource
from ottla.client.admin.security_results import (
    AclBinding,
    AclFilter,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.client.errors import KafkaError, SecurityDisabledError
from ottla.console.api.changes import Change, ChangeRow, command_line, raise_if_all_failed
from ottla.console.api.rights import RightsOptions, explained
from ottla.console.cluster.brokers_http import path_of
from ottla.console.cluster.view import ClusterView, MissingBroker
from ottla.console.problems import Problem
from ottla.console.web.call import Call
from ottla.protocol.acls import CLUSTER_NAME, AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.protocol.config_resources import ConfigResourceType
from ottla.protocol.scram import ScramMechanism

Operation = Literal[
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "cluster-action",
    "describe-configs",
    "alter-configs",
    "idempotent-write",
    "create-tokens",
    "describe-tokens",
]
_QUOTA_OPTIONS = {
    "producer_byte_rate": "--produce",
    "consumer_byte_rate": "--fetch",
    "request_percentage": "--request",
    "controller_mutation_rate": "--mutations",
    "connection_creation_rate": "--connections",
}
Resource = Literal["topic", "group", "cluster", "transactional-id", "delegation-token", "user"]


class CredentialRow(msgspec.Struct, kw_only=True):
    """A SCRAM credential of a user."""

    mechanism: str
    iterations: int


class UserRow(msgspec.Struct, kw_only=True):
    """A user that logs in with a password."""

    user: str
    credentials: list[CredentialRow]


class UserRows(msgspec.Struct, kw_only=True):
    """All users with SCRAM credentials."""

    items: list[UserRow]


class NewUser(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A user to create, or a password to change."""

    user: Annotated[str, Meta(min_length=1, max_length=256)]
    password: Annotated[str, Meta(min_length=1, max_length=1024)]
    mechanism: Literal["SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    dry_run: bool = False


class UserDeletion(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A deletion; the name is typed again."""

    confirm: str
    dry_run: bool = False


class AclRow(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An ACL."""

    principal: Annotated[str, Meta(min_length=1, max_length=512)]
    operation: Operation
    resource_type: Resource
    resource_name: Annotated[str, Meta(min_length=1, max_length=512)] = CLUSTER_NAME
    pattern_type: Literal["literal", "prefixed"] = "literal"
    permission_type: Literal["allow", "deny"] = "allow"
    host: str = "*"


class AclRows(msgspec.Struct, kw_only=True):
    """ACLs; without an authorizer there are none, and everybody may do everything."""

    items: list[AclRow]
    is_enabled: bool


class AclsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which ACLs to return."""

    principal: str | None = None
    resource_type: Resource | None = None
    resource_name: Annotated[str | None, Meta(description="Also prefixes that match it are returned.")] = None


class AclChange(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """ACLs to create or to delete; exactly these."""

    acls: Annotated[list[AclRow], Meta(min_length=1, max_length=100)]
    dry_run: bool = True


class ExplainQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Who wants to do what; a principal without a type is a User."""

    principal: Annotated[str, Meta(min_length=1, max_length=512)]
    operation: Operation
    resource_type: Resource = "topic"
    resource_name: str = CLUSTER_NAME
    host: str = "*"


class Explanation(msgspec.Struct, kw_only=True):
    """Whether somebody may do something, and why."""

    is_allowed: bool
    sentence: str
    """Such as: Yes: User:alice may read topic orders, because of the ACL below."""
    decided_by: list[AclRow]
    """The ACLs that decide; empty if a super user or an option does."""
    related: list[AclRow]
    """Other ACLs of this resource or user, for orientation."""
    command: str
    """The command that would allow it, or shows the ACLs."""


class QuotaUse(msgspec.Struct, kw_only=True):
    """What an entity uses on one broker now."""

    broker_id: int
    kind: str
    user: str
    client_id: str
    value: float
    throttle_ms: float


class QuotaRow(msgspec.Struct, kw_only=True):
    """The quotas of an entity."""

    entity: dict[str, str | None]
    """Names by type (user, client-id, ip); null means the default of the type."""
    quotas: dict[str, float]


class QuotaRows(msgspec.Struct, kw_only=True):
    """All quotas, and what is used of them."""

    items: list[QuotaRow]
    use: list[QuotaUse]
    use_unknown: str | None
    missing: list[MissingBroker]


class QuotaChange(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Quotas of an entity to set, or to remove with null; others keep their values."""

    entity: dict[Literal["user", "client-id", "ip"], str | None]
    quotas: dict[str, float | None]
    dry_run: bool = True


async def list_users(call: Call) -> UserRows:
    """List users that have SCRAM passwords."""
    found = await (await call.admin()).describe_user_scram_credentials()
    return UserRows(
        items=[
            UserRow(
                user=each.user,
                credentials=[
                    CredentialRow(mechanism=one.mechanism, iterations=one.iterations) for one in each.credentials
                ],
            )
            for each in found
        ]
    )


async def set_user(call: Call, body: NewUser) -> Change:
    """Create a user, or change the password, which is hashed here and never sent; a dry run shows which of the two."""
    mechanism = next(each for each in ScramMechanism if _mechanism_name(each) == body.mechanism)
    admin = await call.admin()
    known = await admin.describe_user_scram_credentials([body.user], raise_errors=False)
    credentials = [one for each in known if each.error is None for one in each.credentials]
    if not body.dry_run:
        await admin.alter_user_scram_credentials([ScramCredentialUpsertion(body.user, body.password, mechanism)])
    before = next((one for one in credentials if one.mechanism == body.mechanism), None)
    return Change(
        is_dry_run=body.dry_run,
        changes=[
            ChangeRow(
                subject=body.user,
                before=None if before is None else f"password for {body.mechanism}",
                after=f"{'new ' if before else ''}password for {body.mechanism}",
            )
        ],
        warnings=[] if credentials else ["This user is new, and may do only what ACLs allow."],
        command=command_line("user", "update" if credentials else "create", body.user, "--mechanism", body.mechanism),
    )


async def delete_user(call: Call, user: str, body: UserDeletion) -> Change:
    """Delete all passwords of a user; the name must be given again."""
    admin = await call.admin()
    (found,) = await admin.describe_user_scram_credentials([user])
    names = {each.mechanism for each in found.credentials}
    if not body.dry_run:
        if body.confirm != user:
            raise Problem(400, "Type the name of the user", "`confirm` must be the name of the user.")
        deletions = [ScramCredentialDeletion(user, each) for each in ScramMechanism if _mechanism_name(each) in names]
        await admin.alter_user_scram_credentials(deletions)
    return Change(
        is_dry_run=body.dry_run,
        changes=[ChangeRow(subject=user, before=f"passwords for {', '.join(sorted(names))}")],
        warnings=["Connections that are open stay open."],
        command=command_line("user", "delete", user),
    )


async def list_acls(call: Call, query: AclsQuery) -> AclRows:
    """List ACLs."""
    admin = await call.admin()
    matching = AclFilter(
        resource_type=_resource_type(query.resource_type) if query.resource_type else ResourceType.ANY,
        resource_name=query.resource_name,
        pattern_type=PatternType.MATCH if query.resource_name else PatternType.ANY,
        principal=None if query.principal is None else _principal(query.principal),
    )
    try:
        found = await admin.describe_acls(matching)
    except SecurityDisabledError:
        return AclRows(items=[], is_enabled=False)
    return AclRows(items=[_row(each) for each in found], is_enabled=True)


async def create_acls(call: Call, body: AclChange) -> Change:
    """Create ACLs."""
    bindings = [_binding(each) for each in body.acls]
    rows = [ChangeRow(subject=_sentence(each), after="created") for each in body.acls]
    if not body.dry_run:
        outcomes = await (await call.admin()).create_acls(bindings, raise_errors=False)
        raise_if_all_failed(outcomes)
        for row, outcome in zip(rows, outcomes, strict=True):
            row.error = None if outcome.error is None else str(outcome.error)
    command = " && ".join(_acl_command("create", each) for each in body.acls)
    return Change(is_dry_run=body.dry_run, changes=rows, command=command)


async def delete_acls(call: Call, body: AclChange) -> Change:
    """Delete exactly these ACLs."""
    rows = [ChangeRow(subject=_sentence(each), before="exists") for each in body.acls]
    if not body.dry_run:
        filters = [_exact(each) for each in body.acls]
        outcomes = await (await call.admin()).delete_acls(filters, raise_errors=False)
        raise_if_all_failed(outcomes)
        for row, outcome in zip(rows, outcomes, strict=True):
            row.error = str(outcome.error) if outcome.error else None if outcome.acls else "there is no such ACL"
    command = " && ".join(_acl_command("delete", each) for each in body.acls)
    return Change(is_dry_run=body.dry_run, changes=rows, command=command)


async def explain_acls(call: Call, query: ExplainQuery) -> Explanation:
    """Tell whether somebody may do something, and which ACL decides that."""
    view = await call.view()
    name = CLUSTER_NAME if query.resource_type == "cluster" else query.resource_name
    kind = _resource_type(query.resource_type)
    options = await _rights_options(view)
    principal = _principal(query.principal)
    try:
        acls = await view.admin.describe_acls(
            AclFilter(resource_type=kind, resource_name=name, pattern_type=PatternType.MATCH)
        )
    except SecurityDisabledError:
        acls = ()
        options = options.without_authorizer()
    verdict = explained(acls, options, principal, query.host, _operation(query.operation), kind, name)
    own = AclRow(principal=principal, operation=query.operation, resource_type=query.resource_type, resource_name=name)
    allow = _acl_command("create", own)
    show = command_line("acl", "list", *_resource_arguments(own))
    return Explanation(
        is_allowed=verdict.is_allowed,
        sentence=verdict.sentence,
        decided_by=[_row(each) for each in verdict.decided_by],
        related=[_row(each) for each in acls if each not in verdict.decided_by],
        command=show if verdict.is_allowed or verdict.is_denied else allow,
    )


async def list_quotas(call: Call) -> QuotaRows:
    """List quotas, and beside them what clients use."""
    view = await call.view()
    found = await view.admin.describe_client_quotas()
    state = await view.state()
    pages, failures = await view.brokers_http.get_all(state.brokers, path_of("quotas"))
    use: list[QuotaUse] = []
    for broker_id, page in pages.items():
        for row in page.get("use", ()) if isinstance(page, dict) else ():
            use.append(msgspec.convert({**row, "broker_id": broker_id}, QuotaUse))
    return QuotaRows(
        items=[QuotaRow(entity=dict(each.entity), quotas=dict(each.quotas)) for each in found],
        use=use,
        use_unknown=None if pages or not failures else next(iter(failures.values())),
        missing=state.missing,
    )


async def change_quotas(call: Call, body: QuotaChange) -> Change:
    """Check a change of quotas, and make it unless it is a dry run."""
    if not body.entity or not body.quotas:
        raise Problem(400, "Nothing to change", "Give an entity, and its quotas.")
    unknown = set(body.quotas) - set(_QUOTA_OPTIONS)
    if unknown:
        raise Problem(400, "Unknown quota", f"There are {', '.join(_QUOTA_OPTIONS)}.")
    admin = await call.admin()
    entity: dict[str, str | None] = {str(kind): name for kind, name in body.entity.items()}
    known = [each for each in await admin.describe_client_quotas(entity, strict=True) if dict(each.entity) == entity]
    before = dict(known[0].quotas) if known else {}
    await admin.alter_client_quotas([(entity, body.quotas)], validate_only=body.dry_run)
    arguments = ["quota", "alter"]
    for kind, name in entity.items():
        arguments += ["--default", kind] if name is None else [f"--{kind}", name]
    for quota, value in body.quotas.items():
        arguments += [_QUOTA_OPTIONS[quota], "none" if value is None else _amount(value)]
    return Change(
        is_dry_run=body.dry_run,
        changes=[
            ChangeRow(
                subject=quota,
                before=_amount(before[quota]) if quota in before else None,
                after=None if value is None else _amount(value),
            )
            for quota, value in body.quotas.items()
        ],
        command=command_line(*arguments),
    )


async def _rights_options(view: ClusterView) -> RightsOptions:
    """Read the options that decide besides ACLs; unknown ones stay None."""
    state = await view.state()
    names = ["super.users", "allow.everyone.if.no.acl.found", "authorizer.class.name"]
    for broker_id in state.brokers:
        try:
            (described,) = await view.admin.describe_configs(
                [ConfigResource(ConfigResourceType.BROKER, str(broker_id))], names=names
            )
        except KafkaError:
            continue
        return RightsOptions.of({each.name: each.value for each in described.entries})
    return RightsOptions()


def _amount(value: float) -> str:
    """Return a number as people write it; bytes a second are whole, and may be many."""
    return str(int(value)) if value == int(value) else str(value)


def _mechanism_name(mechanism: ScramMechanism) -> str:
    return mechanism.name.replace("_", "-")


def _principal(text: str) -> str:
    return text if ":" in text else f"User:{text}"


def _operation(label: str) -> AclOperation:
    return next(each for each in AclOperation if each.label == label)


def _resource_type(label: str) -> ResourceType:
    return next(each for each in ResourceType if each.label == label)


def _row(acl: AclBinding) -> AclRow:
    return msgspec.convert(acl.to_dict(), AclRow)


def _binding(row: AclRow) -> AclBinding:
    return AclBinding(
        principal=_principal(row.principal),
        operation=_operation(row.operation),
        resource_type=_resource_type(row.resource_type),
        resource_name=CLUSTER_NAME if row.resource_type == "cluster" else row.resource_name,
        pattern_type=PatternType.PREFIXED if row.pattern_type == "prefixed" else PatternType.LITERAL,
        permission_type=AclPermissionType.DENY if row.permission_type == "deny" else AclPermissionType.ALLOW,
        host=row.host,
    )


def _exact(row: AclRow) -> AclFilter:
    binding = _binding(row)
    return AclFilter(
        resource_type=binding.resource_type,
        resource_name=binding.resource_name,
        pattern_type=binding.pattern_type,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission_type,
    )


def _sentence(row: AclRow) -> str:
    prefix = "with prefix " if row.pattern_type == "prefixed" else ""
    where = "" if row.host == "*" else f" from {row.host}"
    name = "" if row.resource_type == "cluster" else f" {prefix}{row.resource_name}"
    verb = "may" if row.permission_type == "allow" else "may not"
    return f"{row.principal} {verb} {row.operation} {row.resource_type}{name}{where}"


def _resource_arguments(row: AclRow) -> list[str]:
    if row.resource_type == "cluster":
        return ["--cluster"]
    if row.resource_type not in ("topic", "group", "transactional-id"):
        raise Problem(400, "No such resource", "The command line knows topics, groups, transactional ids, the cluster.")
    prefix = ["--prefix"] if row.pattern_type == "prefixed" else []
    return [f"--{row.resource_type}", row.resource_name, *prefix]


def _acl_command(verb: str, row: AclRow) -> str:
    arguments = ["acl", verb, "--principal", row.principal, *_resource_arguments(row), "--operation", row.operation]
    if verb == "create":
        arguments.append("--deny" if row.permission_type == "deny" else "--allow")
    if row.host != "*":
        arguments += ["--host", row.host]
    return command_line(*arguments)
