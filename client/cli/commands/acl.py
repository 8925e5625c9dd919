"""`ottla acl`: who may do what with topics, groups and the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from ottla.client.cli.access.acl_rules import any_matching, rights
from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.function_commands import Option
from ottla.client.cli.terminal.nouns import noun_app
from ottla.client.cli.terminal.options import YesOption
from ottla.client.cli.terminal.outcomes import tell_errors
from ottla.client.cli.terminal.output import confirm
from ottla.client.cli.terminal.target import Target, command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.client.admin.admin import Admin
    from ottla.client.admin.security_results import AclBinding, AclOutcome

app = noun_app("acl")

_Principals = Annotated[
    list[str] | None, Option("--principal", metavar="USER", help="A user, as alice or User:alice; `*` means all.")
]
_Hosts = Annotated[list[str] | None, Option("--host", metavar="ADDRESS", help="Client host; `*` means any.")]
_Operations = Annotated[
    list[str] | None,
    Option("--operation", metavar="NAME", help="read, write, describe, ..., or all."),
]
_Topics = Annotated[list[str] | None, Option("--topic", metavar="TOPIC", help="A topic; `*` means all.")]
_Groups = Annotated[list[str] | None, Option("--group", metavar="GROUP", help="A group; `*` means all.")]
_Ids = Annotated[
    list[str] | None, Option("--transactional-id", metavar="ID", help="A transactional id; `*` means all.")
]
_Cluster = Annotated[bool, Option("--cluster", help="The cluster itself.")]
_Prefix = Annotated[bool, Option("--prefix", help="Treat names as prefixes.")]
_Deny = Annotated[bool, Option("--deny", help="Deny the operations.")]
_Allow = Annotated[bool, Option("--allow", help="Allow the operations.")]
_Producer = Annotated[bool, Option("--producer", help="Allow what a producer needs: write, describe and create.")]
_Consumer = Annotated[bool, Option("--consumer", help="Allow what a consumer needs: read and describe, in a group.")]

_HEADINGS = ("PRINCIPAL", "HOST", "PERMISSION", "OPERATION", "RESOURCE", "NAME", "PATTERN")


@command(app, "list")
def list_acls(
    target: Target,
    principals: _Principals = None,
    hosts: _Hosts = None,
    operations: _Operations = None,
    topics: _Topics = None,
    groups: _Groups = None,
    transactional_ids: _Ids = None,
    cluster: _Cluster = False,
    prefix: _Prefix = False,
) -> None:
    """List ACLs. With a name, lists those that apply to it, including prefixed ones and those for all names.

    JSON: principal, host, operation, permission_type, resource_type, resource_name, pattern_type.

    \b
    Examples:
      ottla acl list
      ottla acl list --principal alice
      ottla acl list --topic orders
    """
    filters = any_matching(
        principals, hosts, operations, topics, groups, transactional_ids, cluster, prefix, is_exact=prefix
    )

    async def work(admin: Admin) -> list[AclBinding]:
        return [acl for each in filters for acl in await admin.describe_acls(each)]

    unique = list(dict.fromkeys(target.run(work)))
    target.show(_HEADINGS, [_row(acl) for acl in unique], [acl.to_dict() for acl in unique])


@command(app)
def create(
    target: Target,
    principals: _Principals = None,
    hosts: _Hosts = None,
    allow: _Allow = False,
    deny: _Deny = False,
    operations: _Operations = None,
    topics: _Topics = None,
    groups: _Groups = None,
    transactional_ids: _Ids = None,
    cluster: _Cluster = False,
    prefix: _Prefix = False,
    producer: _Producer = False,
    consumer: _Consumer = False,
) -> None:
    """Allow or deny operations to users. Deny takes precedence over allow.

    JSON: principal, host, operation, permission_type, resource_type, resource_name, pattern_type, error.

    \b
    Examples:
      ottla acl create --principal alice --producer --topic orders
      ottla acl create --principal bob --consumer --topic orders --group billing
      ottla acl create --principal bob --allow --operation read --topic team- --prefix
      ottla acl create --principal eve --deny --operation all --topic '*'
    """
    if allow and deny:
        raise CommandError("Use either --allow or --deny, not both.", 2)
    wanted = rights(
        principals,
        hosts,
        operations,
        topics,
        groups,
        transactional_ids,
        is_cluster=cluster,
        is_prefix=prefix,
        is_deny=deny,
        is_producer=producer,
        is_consumer=consumer,
    )
    _show(target, target.change(lambda admin: admin.create_acls(wanted, raise_errors=False)))


@command(app)
def delete(
    target: Target,
    principals: _Principals = None,
    hosts: _Hosts = None,
    operations: _Operations = None,
    topics: _Topics = None,
    groups: _Groups = None,
    transactional_ids: _Ids = None,
    cluster: _Cluster = False,
    prefix: _Prefix = False,
    yes: YesOption = False,
) -> None:
    """Delete all ACLs that match the options.

    JSON: as `ottla acl create`.

    \b
    Examples:
      ottla acl delete --principal alice --topic orders
      ottla acl delete --principal bob --yes
    """
    filters = any_matching(
        principals, hosts, operations, topics, groups, transactional_ids, cluster, prefix, is_exact=True
    )
    if filters == any_matching(None, None, None, None, None, None, False, False, is_exact=True):
        raise CommandError("Which ACLs? Name a user with --principal, or a resource.", 2)
    confirm("Delete all matching ACLs?", yes)
    results = target.change(lambda admin: admin.delete_acls(filters))
    _show(target, [outcome for result in results for outcome in result.acls])


def _show(target: Target, outcomes: Sequence[AclOutcome]) -> None:
    done = [each.acl for each in outcomes if each.error is None]
    if done or target.is_data:
        target.show(_HEADINGS, [_row(acl) for acl in done], [each.to_dict() for each in outcomes])
    tell_errors(outcomes)


def _row(acl: AclBinding) -> tuple[object, ...]:
    return (
        acl.principal,
        acl.host,
        acl.permission_type.label,
        acl.operation.label,
        acl.resource_type.label,
        acl.resource_name,
        acl.pattern_type.label,
    )
