"""Files that list the wanted topics, in JSON, TOML or YAML.

[[topics]]
name = "orders"
partitions = 6               # the broker's default if missing
replication_factor = 3       # the same
configs = { "retention.ms" = 86400000 }
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ottla.client.cli.terminal.errors import CommandError

_FILE_BYTES_MAX: Final = 16 * 1024 * 1024
_KEYS: Final = frozenset(("name", "partitions", "replication_factor", "configs"))
_NUMBER_MAX: Final = {"partitions": (1 << 31) - 1, "replication_factor": (1 << 15) - 1}


@dataclass(frozen=True, slots=True)
class WantedTopic:
    """A topic in the file; None where the file says nothing, and for an option to reset to its default."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str | None] = field(default_factory=dict)


def read_topics(path: Path) -> list[WantedTopic]:
    """Read a file; CommandError that names the mistake and its place."""
    try:
        with path.open("rb") as file:
            text = file.read(_FILE_BYTES_MAX).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"Cannot read {path}: {error}", 2) from error
    content = _parsed(path, text)
    rows = content.get("topics") if isinstance(content, dict) else None
    if not isinstance(rows, list) or set(content) != {"topics"}:
        raise CommandError(f'{path} must have a list "topics" and nothing else.', 2)
    topics = [_topic(row, f"{path}: topic {number}") for number, row in enumerate(rows, 1)]
    names = [topic.name for topic in topics]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise CommandError(f"{path} has {', '.join(twice)} more than once.", 2)
    return topics


def _parsed(path: Path, text: str) -> Any:
    try:
        if path.suffix == ".json":
            return json.loads(text)
        if path.suffix == ".toml":
            return tomllib.loads(text)
        if path.suffix in (".yaml", ".yml"):
            return _yaml(path, text)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path} does not parse: {error}", 2) from error
    raise CommandError(f"{path} is not a .json, .toml or .yaml file.", 2)


def _yaml(path: Path, text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise CommandError(f"{path} does not parse: {error}", 2) from error


def _topic(row: object, where: str) -> WantedTopic:
    if not isinstance(row, dict) or not isinstance(row.get("name"), str) or not row["name"]:
        raise CommandError(f"{where} has no name.", 2)
    where = f"{where} ({row['name']})"
    unknown = sorted(str(key) for key in set(row) - _KEYS)
    if unknown:
        known = ", ".join(sorted(_KEYS))
        raise CommandError(f"{where} has unknown keys: {', '.join(unknown)}. Known are {known}.", 2)
    configs = row.get("configs") or {}
    if not isinstance(configs, dict):
        raise CommandError(f"{where}: configs must map options to values.", 2)
    return WantedTopic(
        row["name"],
        _number(row, "partitions", where),
        _number(row, "replication_factor", where),
        {str(key): _config_value(value, f"{where}: {key}") for key, value in configs.items()},
    )


def _number(row: Mapping[str, Any], key: str, where: str) -> int | None:
    value = row.get(key)
    is_number = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _NUMBER_MAX[key]
    if value is not None and not is_number:
        raise CommandError(f"{where}: {key} is a whole number from 1 to {_NUMBER_MAX[key]}, not {value!r}.", 2)
    return value


def _config_value(value: object, where: str) -> str | None:
    """Return a value in Kafka's notation."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return ",".join(value)
    raise CommandError(f"{where} must be a text, a number, true or false, or a list of texts.", 2)
