"""`ottla quota`: how much of a broker users, client ids and addresses may use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.function_commands import Option
from ottla.client.cli.terminal.nouns import noun_app
from ottla.client.cli.terminal.outcomes import show_outcomes
from ottla.client.cli.terminal.target import Target, command

app = noun_app("quota")

_NONE: Final = "none"
_TYPES: Final = ("user", "client-id", "ip")
_KEYS: Final = {
    "PRODUCE": "producer_byte_rate",
    "FETCH": "consumer_byte_rate",
    "REQUEST": "request_percentage",
    "MUTATIONS": "controller_mutation_rate",
    "CONNECTIONS": "connection_creation_rate",
}

_User = Annotated[str | None, Option("--user", metavar="USER", help="A user.")]
_ClientId = Annotated[
    str | None, Option("--client-id", metavar="ID", help="A client id; with --user, the pair of both.")
]
_Ip = Annotated[str | None, Option("--ip", metavar="ADDRESS", help="An address.")]
_Defaults = Annotated[
    list[str] | None,
    Option("--default", metavar="TYPE", help="The default for those without their own quota: user, client-id or ip."),
]


@command(app, "list")
def list_quotas(
    target: Target, user: _User = None, client_id: _ClientId = None, ip: _Ip = None, defaults: _Defaults = None
) -> None:
    """List all quotas, or those of a name.

    JSON: entity (names by type, null for the default), quotas (by Kafka's names).

    \b
    Examples:
      ottla quota list
      ottla quota list --user alice
      ottla quota list --default user --format json
    """
    entity = _entity(user, client_id, ip, defaults)
    found = target.run(lambda admin: admin.describe_client_quotas(entity))
    rows = [
        (
            *(_shown(each.entity, kind) for kind in _TYPES),
            *(_number(each.quotas.get(key)) for key in _KEYS.values()),
        )
        for each in found
    ]
    target.show(("USER", "CLIENT-ID", "IP", *_KEYS), rows, [each.to_dict() for each in found])


@command(app)
def alter(
    target: Target,
    user: _User = None,
    client_id: _ClientId = None,
    ip: _Ip = None,
    defaults: _Defaults = None,
    produce: Annotated[str | None, Option(metavar="BYTES", help="Bytes per second to produce.")] = None,
    fetch: Annotated[str | None, Option(metavar="BYTES", help="Bytes per second to fetch.")] = None,
    request: Annotated[
        str | None, Option(metavar="PERCENT", help="Time on the broker's threads, in percent of one thread.")
    ] = None,
    mutations: Annotated[str | None, Option(metavar="RATE", help="Partitions created or deleted per second.")] = None,
    connections: Annotated[str | None, Option(metavar="RATE", help="New connections per second, for an ip.")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only check whether the change would work.")] = False,
) -> None:
    """Set quotas; others keep their values. `none` removes a quota. Each broker applies them on its own.

    JSON: entity, error.

    \b
    Examples:
      ottla quota alter --user alice --produce 1048576 --fetch 2097152
      ottla quota alter --default client-id --request 50
      ottla quota alter --user alice --client-id batch --produce none
      ottla quota alter --ip 10.0.0.7 --connections 10
    """
    entity = _entity(user, client_id, ip, defaults)
    given = zip(_KEYS.values(), (produce, fetch, request, mutations, connections), strict=True)
    changes = {key: _value(text) for key, text in given if text is not None}
    if not entity:
        raise CommandError("Whose quotas? Use --user, --client-id, --ip or --default.", 2)
    if not changes:
        raise CommandError("There is nothing to change: give --produce, --fetch, --request, ...", 2)
    results = target.change(
        lambda admin: admin.alter_client_quotas([(entity, changes)], validate_only=dry_run, raise_errors=False)
    )
    done = "ok to change" if dry_run else "changed"
    show_outcomes(target, "ENTITY", [(_name(each.entity), each) for each in results], done)


def _entity(
    user: str | None, client_id: str | None, ip: str | None, defaults: list[str] | None
) -> dict[str, str | None]:
    entity: dict[str, str | None] = {
        kind: name for kind, name in zip(_TYPES, (user, client_id, ip), strict=True) if name is not None
    }
    for kind in defaults or ():
        if kind not in _TYPES:
            raise CommandError(f"--default takes {', '.join(_TYPES)}, not {kind}.", 2)
        if kind in entity:
            raise CommandError(f"Name a {kind} or use --default {kind}, not both.", 2)
        entity[kind] = None
    return entity


def _value(text: str) -> float | None:
    if text.lower() == _NONE:
        return None
    try:
        return float(text)
    except ValueError:
        raise CommandError(f"A quota is a number or `{_NONE}`, not {text!r}.", 2) from None


def _shown(entity: Mapping[str, str | None], kind: str) -> str | None:
    if kind not in entity:
        return None
    name = entity[kind]
    return "<default>" if name is None else name


def _name(entity: Mapping[str, str | None]) -> str:
    return ",".join(f"{kind}={_shown(entity, kind)}" for kind in entity)


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:g}" if value < 1e6 else str(round(value))
