"""`ottla config`: options of topics and brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.function_commands import Argument, Option
from ottla.client.cli.terminal.nouns import noun_app
from ottla.client.cli.terminal.outcomes import show_outcomes
from ottla.client.cli.terminal.target import Target, command, key_values

if TYPE_CHECKING:
    from ottla.client.admin.results import ConfigEntry, ConfigResource

app = noun_app("config")

_Kind = Annotated[str, Argument(metavar="topic|broker", help="Whose options.")]
_Name = Annotated[str, Argument(metavar="NAME", help='Name of the topic, or id of the broker; "all" brokers.')]
_Keys = Annotated[list[str], Argument(metavar="KEY...", help="Names of options.")]
_DryRun = Annotated[bool, Option("--dry-run", help="Only check whether the change would work.")]


@command(app, "list")
def list_configs(
    target: Target,
    kind: _Kind,
    name: _Name,
    changed: Annotated[bool, Option("--changed", help="Only options that are not at their defaults.")] = False,
) -> None:
    """List the options of a topic or a broker, with the source of each value.

    JSON: name, value, source, is_default, is_sensitive, is_read_only, documentation.

    \b
    Examples:
      ottla config list topic orders --changed
      ottla config list broker 1
      ottla config list broker all      options set for all brokers
    """
    entries = _entries(target, kind, name, None)
    _show(target, [each for each in entries if not (changed and each.is_default)])


@command(app)
def get(target: Target, kind: _Kind, name: _Name, keys: _Keys) -> None:
    """Show options of a topic or a broker; exits with 1 if there is no such option.

    JSON: as `ottla config list`.

    \b
    Examples:
      ottla config get topic orders retention.ms cleanup.policy
      ottla config get broker 1 log.dirs
    """
    entries = _entries(target, kind, name, keys)
    missing = [key for key in keys if key not in {each.name for each in entries}]
    if missing:
        raise CommandError(f"There is no option {', '.join(missing)}. `ottla config list {kind} {name}` shows all.")
    _show(target, entries)


@command(app, "set")
def set_configs(
    target: Target,
    kind: _Kind,
    name: _Name,
    pairs: Annotated[list[str], Argument(metavar="KEY=VALUE...", help="Options with their new values.")],
    dry_run: _DryRun = False,
) -> None:
    """Set options of a topic or a broker; other options keep their values.

    JSON: resource_type, resource_name, error.

    \b
    Examples:
      ottla config set topic orders retention.ms=3600000 cleanup.policy=compact
      ottla config set broker all log.cleaner.threads=2
    """
    change(target, kind, name, pairs, (), dry_run=dry_run)


@command(app)
def unset(target: Target, kind: _Kind, name: _Name, keys: _Keys, dry_run: _DryRun = False) -> None:
    """Reset options of a topic or a broker to their defaults.

    JSON: resource_type, resource_name, error.

    \b
    Examples:
      ottla config unset topic orders retention.ms
    """
    change(target, kind, name, (), keys, dry_run=dry_run)


def change(
    target: Target, kind: str, name: str, pairs: Sequence[str], keys: Sequence[str], *, dry_run: bool = False
) -> None:
    """Set some options, reset others to their defaults, and print the results."""
    changes: dict[str, str | None] = {**key_values(pairs, "An option"), **dict.fromkeys(keys)}
    if not changes:
        raise CommandError("There is nothing to change: give options as KEY=VALUE, or names to unset.", 2)
    resource = _resource(kind, name)
    results = target.change(
        lambda admin: admin.alter_configs({resource: changes}, validate_only=dry_run, raise_errors=False)
    )
    done = "ok to change" if dry_run else "changed"
    show_outcomes(target, kind.upper(), [(each.resource_name or "all", each) for each in results], done)


def _resource(kind: str, name: str) -> ConfigResource:
    from ottla.client.admin.results import ConfigResource
    from ottla.protocol.config_resources import ConfigResourceType

    if kind == "topic":
        return ConfigResource(ConfigResourceType.TOPIC, name)
    if kind != "broker":
        raise CommandError(f"Options belong to a topic or a broker, not to {kind!r}.", 2)
    if name != "all" and not (name.isascii() and name.isdigit()):
        raise CommandError(f'A broker is named by its id, or "all", not {name!r}.', 2)
    return ConfigResource(ConfigResourceType.BROKER, "" if name == "all" else name)


def _entries(target: Target, kind: str, name: str, keys: Sequence[str] | None) -> tuple[ConfigEntry, ...]:
    resource = _resource(kind, name)
    (described,) = target.run(lambda admin: admin.describe_configs([resource], names=keys, include_documentation=True))
    return described.entries


def _show(target: Target, entries: Sequence[ConfigEntry]) -> None:
    rows = [
        (each.name, "(secret)" if each.is_sensitive else each.value, each.source, each.is_read_only) for each in entries
    ]
    headings = ("OPTION", "VALUE", "SOURCE", "READ-ONLY")
    target.show(headings, rows, [each.to_dict() for each in entries], spare=("READ-ONLY", "SOURCE"))
