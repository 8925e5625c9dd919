"""Turn the options of `ottla acl` into ACLs to create, and into filters to list or delete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from ottla.client.admin.security_results import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from ottla.client.cli.terminal.errors import CommandError
from ottla.protocol.acls import CLUSTER_NAME, OPERATIONS

Names = Sequence[str] | None
_Resource = tuple[ResourceType, str]

_PRODUCER = (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE)
_CONSUMER = (AclOperation.READ, AclOperation.DESCRIBE)
_WILDCARD = "*"


def rights(
    principals: Names,
    hosts: Names,
    operations: Names,
    topics: Names,
    groups: Names,
    transactional_ids: Names,
    *,
    is_cluster: bool,
    is_prefix: bool,
    is_deny: bool,
    is_producer: bool,
    is_consumer: bool,
) -> list[AclBinding]:
    """Return the ACLs to create; CommandError if options are missing or contradict each other."""
    if not principals:
        raise CommandError("For whom? Name users with --principal.", 2)
    resources = list(_resources(topics, groups, transactional_ids, is_cluster))
    if is_producer or is_consumer:
        if operations or is_deny:
            raise CommandError("--producer and --consumer already imply the operations.", 2)
        pairs = _convenient(resources, is_producer=is_producer, is_consumer=is_consumer)
    else:
        if not operations:
            raise CommandError("Which operations? Name them with --operation, or use --producer or --consumer.", 2)
        if not resources:
            raise CommandError("On which resource? Name it with --topic, --group, --transactional-id or --cluster.", 2)
        pairs = list(product(resources, [_operation(name) for name in operations]))
    return [
        AclBinding(
            principal=_principal(principal),
            host=host,
            operation=operation,
            resource_type=kind,
            resource_name=name,
            pattern_type=_pattern(kind, name, is_prefix=is_prefix),
            permission_type=AclPermissionType.DENY if is_deny else AclPermissionType.ALLOW,
        )
        for principal, host in product(principals, hosts or [_WILDCARD])
        for (kind, name), operation in pairs
    ]


def any_matching(
    principals: Names,
    hosts: Names,
    operations: Names,
    topics: Names,
    groups: Names,
    transactional_ids: Names,
    is_cluster: bool,
    is_prefix: bool,
    *,
    is_exact: bool,
) -> list[AclFilter]:
    """Return one filter for each combination of the options; an option that was not given matches anything.

    An exact filter matches one pattern type; the others match all patterns that apply to a name.
    """
    pattern = PatternType.PREFIXED if is_prefix else PatternType.LITERAL if is_exact else PatternType.MATCH
    resources: list[tuple[ResourceType, str | None]] = [*_resources(topics, groups, transactional_ids, is_cluster)]
    anybody: Sequence[str | None] = principals or [None]
    anywhere: Sequence[str | None] = hosts or [None]
    anything: Sequence[str | None] = operations or [None]
    return [
        AclFilter(
            resource_type=kind,
            resource_name=name,
            pattern_type=PatternType.ANY if name is None else pattern,
            principal=None if principal is None else _principal(principal),
            host=host,
            operation=AclOperation.ANY if operation is None else _operation(operation),
        )
        for (kind, name), principal, host, operation in product(
            resources or [(ResourceType.ANY, None)], anybody, anywhere, anything
        )
    ]


def _resources(topics: Names, groups: Names, transactional_ids: Names, is_cluster: bool) -> Iterator[_Resource]:
    yield from ((ResourceType.TOPIC, name) for name in topics or ())
    yield from ((ResourceType.GROUP, name) for name in groups or ())
    yield from ((ResourceType.TRANSACTIONAL_ID, name) for name in transactional_ids or ())
    if is_cluster:
        yield ResourceType.CLUSTER, CLUSTER_NAME


def _convenient(
    resources: Sequence[_Resource], *, is_producer: bool, is_consumer: bool
) -> list[tuple[_Resource, AclOperation]]:
    kinds = {kind for kind, _ in resources}
    if ResourceType.TOPIC not in kinds or (is_consumer and ResourceType.GROUP not in kinds):
        raise CommandError("A producer needs --topic, a consumer --topic and --group.", 2)
    pairs: dict[tuple[_Resource, AclOperation], None] = {}
    for resource in resources:
        kind = resource[0]
        wanted: list[AclOperation] = []
        if kind is ResourceType.TOPIC:
            wanted = [*(_PRODUCER if is_producer else ()), *(_CONSUMER if is_consumer else ())]
        elif kind is ResourceType.GROUP and is_consumer:
            wanted = [AclOperation.READ]
        elif kind is ResourceType.TRANSACTIONAL_ID and is_producer:
            wanted = [AclOperation.WRITE, AclOperation.DESCRIBE]
        pairs.update(((resource, operation), None) for operation in wanted)
    return list(pairs)


def _pattern(kind: ResourceType, name: str, *, is_prefix: bool) -> PatternType:
    is_whole = not is_prefix or kind is ResourceType.CLUSTER or name == _WILDCARD
    return PatternType.LITERAL if is_whole else PatternType.PREFIXED


def _principal(text: str) -> str:
    return text if ":" in text else f"User:{text}"


def _operation(text: str) -> AclOperation:
    for operation in OPERATIONS:
        if operation.label == text.lower().replace("_", "-"):
            return operation
    known = ", ".join(each.label for each in OPERATIONS)
    raise CommandError(f"There is no operation {text}; there are {known}.", 2)
