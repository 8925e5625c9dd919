"""The page about all options, written from the table."""

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
key=value`; of several, the last one counts. The names are Kafka's, those that begin with `ottla.` are our own.

- In the environment, a name is in upper case with `KAFKA_` before it and `_` for each dot:
  `KAFKA_LOG_SEGMENT_BYTES`. `KAFKA_CFG_` does as well. An underscore in a name is `__`, a hyphen `___`.
- `listener.name.<listener>.<option>`, with the listener in lower case, sets a TLS or SASL option, `max.connections`,
  `max.connection.creation.rate` or `num.network.threads` for one listener, and
  `listener.name.<listener>.<mechanism>.sasl.jaas.config` one for a SASL mechanism there.
- The column "Dynamic" says whether an option can change while the broker runs: *per-broker* for one broker,
  *cluster-wide* for one or for all, *read-only* not without a restart. Secrets are read-only, other than in Kafka: what
  changes while brokers run stands in ZooKeeper.
- A value that is not valid stops the start, and the message names the key, the value, what is valid and the place.
  An unknown name only gives a warning.
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
    # AlterConfigs refuses them.
    return (READ_ONLY if row.sensitive else row.dynamic).value


def _topic_options() -> Iterator[str]:
    yield "## Topic options\n"
    yield "All of them can be changed at any time. Where a topic does not set one, the broker option named with the"
    yield "default counts.\n"
    yield from _table(
        ("Option", "Type", "Default", "Valid values", "Meaning"),
        (
            (_code(row.name), _type(row), _default(row), row.kind.valid, _meaning(row))
            for row in TopicOptions.rows().values()
        ),
    )


def _ignored_options() -> Iterator[str]:
    yield "## Options of Kafka without effect\n"
    yield "They are accepted, as are those above that say so. A line of the log names those that are set, once at the"
    yield "start. A name that ends with a dot stands for all that begin so.\n"
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
    """Give a number in the largest unit that leaves it whole."""
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
