"""The page of all options, generated from the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ottla.broker.config.ignored import IGNORED_BROKER_OPTIONS, IGNORED_TOPIC_OPTIONS
from ottla.broker.config.kinds import ConfigType
from ottla.broker.config.option import (
    DAYS,
    HOURS,
    INT_MAX,
    LONG_MAX,
    MINUTES,
    MS_OF_UNIT,
    READ_ONLY,
    SECONDS,
    GiB,
    KiB,
    MiB,
    Option,
    Options,
)
from ottla.broker.config.rows.broker import BrokerOptions
from ottla.broker.config.rows.topics import TopicOptions

_INTRODUCTION = """\
# Configuration

This page is generated from the table of options by `make docs`.

A broker reads a file in Java's properties format (`--config FILE`), then environment variables, then `--override
key=value`; the last value counts. The names are Kafka's; names that begin with `ottla.` are our own.

- Environment variables are in upper case, with the prefix `KAFKA_` and `_` for each dot: `KAFKA_LOG_SEGMENT_BYTES`. The
  prefix `KAFKA_CFG_` works too. An underscore in a name is written `__`, a hyphen `___`.
- `listener.name.<listener>.<option>`, with the listener in lower case, sets an option for one listener: a TLS or SASL
  option, `max.connections`, `max.connection.creation.rate` or `num.network.threads`.
  `listener.name.<listener>.<mechanism>.sasl.jaas.config` sets the option for one SASL mechanism of a listener.
- The column "Dynamic" says whether an option can be changed while the broker runs: *per-broker* for one broker,
  *cluster-wide* for one or for all brokers, *read-only* only with a restart. Unlike in Kafka, secrets are read-only,
  because dynamic values are stored in ZooKeeper.
- A broker does not start with an invalid value. The message names the key, the value, the valid values and the place.
  An unknown name only causes a warning.
"""

_SIZES = ((GiB, "GiB"), (MiB, "MiB"), (KiB, "KiB"))
_TIMES = ((DAYS, "days"), (HOURS, "hours"), (MINUTES, "minutes"), (SECONDS, "seconds"))
_NO_LIMIT = (INT_MAX, LONG_MAX, 1.7976931348623157e308)


def page() -> str:
    """Write the whole page."""
    return "\n".join([_INTRODUCTION, *_broker_options(), *_topic_options(), *_ignored_options()])


def _broker_options() -> Iterator[str]:
    yield "## Broker options\n"
    for theme in BrokerOptions.__bases__:
        assert issubclass(theme, Options)
        yield f"### {theme.theme}\n"
        yield from _table(
            ("Option", "Type", "Default", "Valid values", "Dynamic", "Meaning"),
            (
                (_code(row.name), _type(row), _default(row), row.kind.valid, _dynamic(row), _meaning(row))
                for row in theme.rows().values()
            ),
        )


def _dynamic(row: Option[Any]) -> str:
    # AlterConfigs refuses secrets.
    return (READ_ONLY if row.sensitive else row.dynamic).value


def _topic_options() -> Iterator[str]:
    yield "## Topic options\n"
    yield "All of them can be changed at any time. If a topic does not set an option, the broker option in the column"
    yield '"Default" counts.\n'
    yield from _table(
        ("Option", "Type", "Default", "Valid values", "Meaning"),
        (
            (_code(row.name), _type(row), _default(row), row.kind.valid, _meaning(row))
            for row in TopicOptions.rows().values()
        ),
    )


def _ignored_options() -> Iterator[str]:
    yield "## Kafka options without effect\n"
    yield "They are accepted, like those above that are marked so. The broker logs the ones that are set, once at the"
    yield "start. A name that ends with a dot stands for all names that begin with it.\n"
    yield from _table(
        ("Why", "Options"),
        (
            (reason[0].upper() + reason[1:], ", ".join(map(_code, names.split())))
            for reason, names in IGNORED_BROKER_OPTIONS.items()
        ),
    )
    yield "For topics: " + ", ".join(map(_code, sorted(IGNORED_TOPIC_OPTIONS))) + ".\n"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for cells in (head, ("---",) * len(head), *rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""


def _meaning(row: Option[Any]) -> str:
    return row.documentation + (f" Kafka's default is `{row.kafka_default}`." if row.kafka_default else "")


def _type(row: Option[Any]) -> str:
    return row.kind.type.name.lower()


def _default(row: Option[Any]) -> str:
    if row.fallback is not None:
        origin = next(origin for origin in row.chain if origin.fallback is None)
        value = origin.default_note or _value(row, row.converted(origin.default, origin))
        return f"as {_code(row.fallback.name)}: {value}"
    return row.default_note or ("none" if row.default is None else _value(row, row.default))


def _value(row: Option[Any], value: Any) -> str:
    text = row.kind.format(value)
    note = "" if row.kind.type is ConfigType.STRING else _in_words(row.name.rpartition(".")[2], value)
    return (_code(text) if text else "empty") + (f" ({note})" if note else "")


def _in_words(unit: str, value: Any) -> str:
    """Return a number in the largest unit in which it is whole."""
    if value in _NO_LIMIT:
        return "no limit"
    if unit in ("bytes", "size"):
        return _in_largest(value, _SIZES)
    return _in_largest(value * MS_OF_UNIT[unit], _TIMES) if unit in MS_OF_UNIT else ""


def _in_largest(value: int, units: tuple[tuple[int, str], ...]) -> str:
    count, name = next(((value // size, name) for size, name in units if value > 0 and value % size == 0), (0, ""))
    return f"{count} {name.removesuffix('s') if count == 1 else name}" if count else ""


def _code(text: str) -> str:
    return f"`{text}`"
