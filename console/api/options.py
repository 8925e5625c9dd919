"""Options of topics and brokers: value, where it comes from, documentation; and changes, which are checked first."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import ConfigEntry, ConfigResource
from ottla.console.api.changes import Change, ChangeRow, command_line
from ottla.console.problems import Problem
from ottla.console.web.call import Call
from ottla.protocol.config_resources import ConfigResourceType

_ALL = "all"
# Options of brokers that topics have in milliseconds.
_UNITS_MS = {".hours": 3_600_000, ".minutes": 60_000}
_KINDS = {"topic": ConfigResourceType.TOPIC, "broker": ConfigResourceType.BROKER}


class OptionSource(msgspec.Struct, kw_only=True):
    """A place that an option could take its value from."""

    name: str
    value: str | None
    source: str


class OptionRow(msgspec.Struct, kw_only=True):
    """An option; the value of a secret is null."""

    name: str
    value: str | None
    source: str
    """topic, broker (dynamic), cluster (dynamic), broker (static) or default."""
    is_default: bool
    is_sensitive: bool
    is_read_only: bool
    default_value: str | None
    """The value without any setting, if the broker tells it."""
    documentation: str | None
    synonyms: list[OptionSource]
    """Where the value may come from, the strongest first."""


class Options(msgspec.Struct, kw_only=True):
    """The options of a topic or of a broker."""

    kind: Literal["topic", "broker"]
    name: str
    items: list[OptionRow]


class OptionsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which options to return."""

    changed: Annotated[bool, Meta(description="Only options that are not at their defaults.")] = False


class OptionsChange(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Options to set and to unset; by default, the change is only checked."""

    set: dict[str, str] = {}
    unset: list[str] = []
    dry_run: bool = True


async def list_options(call: Call, kind: str, name: str, query: OptionsQuery) -> Options:
    """List the options of a topic or of a broker; the broker `all` has the options for all brokers."""
    entries = await _entries(await call.admin(), _resource(kind, name))
    return Options(
        kind="topic" if kind == "topic" else "broker",
        name=name,
        items=[_row(entry) for entry in entries if not (query.changed and entry.is_default)],
    )


async def change_options(call: Call, kind: str, name: str, body: OptionsChange) -> Change:
    """Check a change of options, and make it unless it is a dry run."""
    if not body.set and not body.unset:
        raise Problem(400, "Nothing to change", "Give options in `set` or names in `unset`.")
    if both := set(body.set) & set(body.unset):
        raise Problem(400, "Contradiction", f"{', '.join(sorted(both))}: set and unset at the same time.")
    admin = await call.admin()
    resource = _resource(kind, name)
    before = {entry.name: entry for entry in await _entries(admin, resource)}
    changes: dict[str, str | None] = {**body.set, **dict.fromkeys(body.unset)}
    await admin.alter_configs({resource: changes}, validate_only=True)
    if not body.dry_run:
        await admin.alter_configs({resource: changes})
    rows = []
    for option, value in changes.items():
        known = before.get(option)
        after = value if value is not None else (_default(known) if known is not None else None)
        is_secret = known is not None and known.is_sensitive
        rows.append(
            ChangeRow(
                subject=option,
                before=None if known is None else known.value,
                after="(secret)" if is_secret and after is not None else after,
            )
        )
    commands = []
    if body.set:
        pairs = [f"{option}={value}" for option, value in body.set.items()]
        commands.append(command_line("config", "set", kind, name, *pairs))
    if body.unset:
        commands.append(command_line("config", "unset", kind, name, *body.unset))
    return Change(is_dry_run=body.dry_run, changes=rows, command=" && ".join(commands))


async def _entries(admin: Admin, resource: ConfigResource) -> tuple[ConfigEntry, ...]:
    (described,) = await admin.describe_configs([resource], include_documentation=True, include_synonyms=True)
    return described.entries


def _row(entry: ConfigEntry) -> OptionRow:
    return OptionRow(
        name=entry.name,
        value=entry.value,
        source=entry.source,
        is_default=entry.is_default,
        is_sensitive=entry.is_sensitive,
        is_read_only=entry.is_read_only,
        default_value=_default(entry),
        documentation=entry.documentation,
        synonyms=[OptionSource(name=each.name, value=each.value, source=each.source) for each in entry.synonyms],
    )


def _default(entry: ConfigEntry) -> str | None:
    if entry.is_default:
        return entry.value
    # Without the first place, the next one gives the value.
    rest = [each for each in entry.synonyms if each.source not in ("topic", entry.source)]
    if not rest or rest[0].value is None:
        return None
    unit_ms = next((unit for name, unit in _UNITS_MS.items() if rest[0].name.endswith(name)), 1)
    is_other_unit = entry.name.endswith(".ms") and unit_ms > 1 and rest[0].value.isdigit()
    return str(int(rest[0].value) * unit_ms) if is_other_unit else rest[0].value


def _resource(kind: str, name: str) -> ConfigResource:
    if kind not in _KINDS:
        raise Problem(404, "There are options of topics and brokers", "Use topic or broker.")
    if kind == "broker" and name != _ALL and not name.isdigit():
        raise Problem(404, "There is no such broker", "Brokers have numbers; all means the options for all brokers.")
    return ConfigResource(_KINDS[kind], "" if kind == "broker" and name == _ALL else name)
