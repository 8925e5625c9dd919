"""Settings and their sources, problems with them, and how an option got its value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from msgspec import Struct

from ottla.broker.config.kinds import HIDDEN
from ottla.broker.config.option import Option


class ConfigSource(IntEnum):
    """Where a value comes from, numbered as in DescribeConfigs. The lowest number wins."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class Setting(Struct, frozen=True):
    """The text of a value, and the place where it was set, in words."""

    text: str
    origin: str


class Layer(Struct, frozen=True):
    """The settings of one source, by option name."""

    source: ConfigSource
    settings: Mapping[str, Setting]


class Synonym(Struct, frozen=True):
    """A value that an option has, or would have if the synonyms before it were not set."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class Resolved:
    """The value of an option as Kafka writes it, and its origin. The value is null if there is none or it is secret."""

    option: Option[Any]
    value: str | None
    source: ConfigSource
    synonyms: tuple[Synonym, ...]


@dataclass(frozen=True, slots=True)
class OptionCandidate:
    """A value that an option may have: the row that gives it, the name as used, the source, and the place in words."""

    row: Option[Any]
    name: str
    value: Any
    source: ConfigSource
    origin: str


class Problem(Struct, frozen=True):
    """Something that is wrong, and the options that it concerns."""

    names: tuple[str, ...]
    message: str


class ConfigError(Exception):
    """An unusable config, with all its problems."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        """Take the problems; there must be at least one."""
        self.problems = tuple(problems)
        super().__init__("\n".join(problem.message for problem in self.problems))


def parse(option: Option[Any], name: str, setting: Setting) -> Any:
    """Parse a setting; `name` is the name under which it was set. Raises ConfigError."""
    text = setting.text.strip()
    try:
        return option.kind.parse(text)
    except ValueError as reason:
        given = HIDDEN if option.sensitive else f'"{text}"'
        detail = f"; {reason}" if str(reason) and not option.sensitive else ""
        message = f"{name} = {given} ({setting.origin}): expected {option.kind.expected}{detail}"
        raise ConfigError([Problem((option.name,), message)]) from None


def resolved(option: Option[Any], candidates: Sequence[OptionCandidate]) -> Resolved:
    """Return the value of an option. The first candidate wins."""
    if not candidates:
        return Resolved(option, None, ConfigSource.DEFAULT, ())
    best = candidates[0]
    synonyms = (Synonym(each.name, _described(each.row, each.value), each.source) for each in candidates)
    return Resolved(option, _described(option, option.converted(best.value, best.row)), best.source, tuple(synonyms))


def _described(option: Option[Any], value: Any) -> str | None:
    return None if option.sensitive else option.kind.format(value)
