"""Every row of the option table is read by the broker, or says that it has no effect."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from ottla.broker import __main__ as command
from ottla.broker.config import BROKER_OPTIONS, TOPIC_OPTIONS
from ottla.broker.config.documentation import page
from ottla.broker.security.tls.tls_settings import TlsSettings

BROKER = Path(__file__).parents[3] / "broker"
ALL_OPTIONS = [*BROKER_OPTIONS.values(), *TOPIC_OPTIONS.values()]

# They declare options, or compare them with each other: neither gives an option an effect,
NOT_READERS = ("config/rows/", "config/checks.py", "requests/config_resources.py")
# except for those whose effect is that the start is refused.
CHECKS = {
    "broker.id.generation.enable",
    "group.consumer.max.heartbeat.interval.ms",
    "group.consumer.max.session.timeout.ms",
    "group.consumer.min.heartbeat.interval.ms",
    "group.consumer.min.session.timeout.ms",
    "ottla.sasl.plain.allow.without.tls",
}
# Whose attributes are options: `config.x`, `self._config().x`, `TopicConfig(...).x`, `BrokerOptions.x`.
HOLDER = re.compile("config|options", re.IGNORECASE)


def attributes_read_in(path: Path) -> Iterator[str]:
    """The attributes of configs that a file reads, by name, as text for `getattr`, or in a config's own methods."""
    is_config = path.parent == BROKER / "config"
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Attribute):
            holder = ast.unparse(node.value)
            if HOLDER.search(holder) or (is_config and holder == "self"):
                yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def attributes_read() -> set[str]:
    """The attributes of all options that something depends on."""
    readers = [path for path in BROKER.rglob("*.py") if not path.relative_to(BROKER).as_posix().startswith(NOT_READERS)]
    found = {attribute for path in readers for attribute in attributes_read_in(path)}
    # These are looked up by the names of the fields.
    found |= {f"ssl_{field.name}" for field in fields(TlsSettings)}
    # Where a row is not set, those that stand in for it are read.
    return found | {row.attribute for option in ALL_OPTIONS if option.attribute in found for row in option.chain}


def test_every_row_is_read_or_says_that_it_has_no_effect() -> None:
    """An option that is accepted and does nothing misleads whoever sets it."""
    read = attributes_read()

    assert {option.name for option in ALL_OPTIONS if option.attribute not in read and not option.no_effect} == CHECKS


def test_a_row_that_is_read_does_not_say_that_it_has_no_effect() -> None:
    """Who gives an option its effect takes the mark away."""
    read = attributes_read()

    assert {option.name for option in ALL_OPTIONS if option.attribute in read and option.no_effect} == set()


def test_the_page_says_which_rows_have_no_effect_and_why() -> None:
    """A topic option says what the broker option that is its default says."""
    lines = {line.split("`")[1]: line for line in page().splitlines() if line.startswith("| `")}
    reason = "No effect: space is always reserved ahead of the writes, in pieces that grow with the segment."

    assert reason in lines["log.preallocate"]
    assert reason in lines["preallocate"]
    assert {name for name, line in lines.items() if "No effect: " in line} == {
        option.name for option in ALL_OPTIONS if option.no_effect
    }


def lines_at_start(monkeypatch: pytest.MonkeyPatch, *overrides: str) -> list[structlog.typing.EventDict]:
    """What the log says of options without effect where a broker starts with some overrides."""
    monkeypatch.setattr("ottla.broker.observability.log_output.configure_logging", lambda *_, **__: None)
    # These change the process, which is that of the tests here.
    monkeypatch.setattr("os.umask", lambda _: None)
    monkeypatch.setattr("resource.setrlimit", lambda *_: None)
    monkeypatch.setattr("gc.freeze", lambda: None)
    # The start ends soon: nothing listens at port 1. And nobody would dismiss a guardian of the tests' own process.
    always = ("zookeeper.connect=127.0.0.1:1", "zookeeper.connection.timeout.ms=1", "ottla.guardian.enable=false")
    arguments = [part for override in (*always, *overrides) for part in ("--override", override)]
    with capture_logs() as lines:
        assert command.main(arguments) == 1
    return [line for line in lines if line["event"] == "options_without_effect"]


def test_one_line_at_the_start_names_what_was_set_without_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options that are only known to Kafka, and those of the table that say so, are named together."""
    overrides = ("log.preallocate=true", "num.io.threads=4", "process.roles=broker", "background.threads=4")

    (line,) = lines_at_start(monkeypatch, *overrides)

    assert line["names"] == "background.threads, log.preallocate, process.roles"


def test_the_start_says_nothing_where_all_that_was_set_has_an_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Defaults of options without effect are not worth a line."""
    assert lines_at_start(monkeypatch, "num.io.threads=4") == []
