"""Log lines that are events are kept for the timeline, whatever the log level is, and only the last of them."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

import ottla.broker
from ottla.broker.observability.event_ring import _CHANGE_ROWS, _ROWS, BROKER_EVENTS, EventRing
from ottla.broker.observability.log_output import configure_logging
from ottla.broker.security.audit.audit import Audit, AuditSubject, Sink, to_log, to_nowhere
from ottla.broker.security.session import Session


@pytest.fixture
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    kazoo_level = logging.getLogger("kazoo").level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("kazoo").setLevel(kazoo_level)
    structlog.reset_defaults()


def noted(**fields: object) -> EventRing:
    ring = EventRing()
    ring.note(None, "info", dict(fields))
    return ring


def test_an_event_has_its_kind_words_and_partition() -> None:
    """The partition is told apart, so that a page can link to it."""
    (event,) = noted(event="replica_damaged", partition="my-topic-3").events()
    assert (event.kind, event.text) == ("disk", "the replica of my-topic-3 is damaged")
    assert (event.topic, event.partition) == ("my-topic", 3)


def test_lists_and_maps_are_shortened() -> None:
    """A change of thousands of partitions is one line of bounded length."""
    changed = {f"orders-{number}": (1, 2, 3) for number in range(5000)}
    (event,) = noted(event="isr_changed", count=5000, partitions=changed).events()
    assert event.text.startswith("ISR of 5000 partitions changed: orders-0: 1, 2, 3; orders-1: 1, 2, 3")
    assert len(event.text) <= 500


def test_a_line_with_missing_fields_is_kept() -> None:
    """A renamed field must not stop the broker from logging."""
    (event,) = noted(event="brokers_left").events()
    assert event.text.endswith("gone: ?")


def test_a_name_cannot_be_a_format() -> None:
    """Braces in names of clients are text."""
    (event,) = noted(event="topic_deleted", topic="{partitions.__class__}").events()
    assert event.text == "topic {partitions.__class__} was deleted"


@pytest.mark.parametrize("sink", [to_log, to_nowhere], ids=["log", "off"])
def test_changes_are_kept_once_wherever_the_audit_stream_goes(sink: Sink) -> None:
    """They say who made them. In the log they have the names of other lines, and are not kept again."""
    ring, audit = EventRing(), Audit(sink)
    audit.on_change = ring.note_change
    subject = AuditSubject(Session("CLIENTS", "10.0.0.1", "User:ada"), "app")
    with structlog.testing.capture_logs(processors=[ring.note]):
        audit.changed("topic_deleted", subject, "DeleteTopics", "Topic:orders", {})
    (event,) = ring.events()
    assert (event.kind, event.text, event.topic) == ("topic", "User:ada deleted topic orders", "orders")


def test_other_lines_are_passed_on_and_not_kept() -> None:
    """Most lines are no events."""
    ring = EventRing()
    fields = {"event": "request_refused"}
    assert ring.note(None, "info", fields) is fields
    assert len(ring) == 0


def test_only_the_last_events_are_kept() -> None:
    """Memory is bounded, and numbers go on."""
    ring = EventRing(kept=3)
    for _ in range(5):
        ring.note(None, "info", {"event": "zookeeper_session_expired"})
    assert [event.sequence for event in ring.events()] == [3, 4, 5]


@pytest.mark.usefixtures("_logging_as_it_was")
def test_events_are_kept_below_the_log_level() -> None:
    """Somebody who logs errors alone still has a timeline."""
    output = io.StringIO()
    configure_logging("ERROR", output=output)
    before = len(BROKER_EVENTS)
    structlog.get_logger("test").info("topic_deleted", topic="gone")
    assert output.getvalue() == ""
    assert len(BROKER_EVENTS) == min(before + 1, 1000)
    assert BROKER_EVENTS.events()[-1].text == "topic gone was deleted"


def test_every_row_is_logged_somewhere() -> None:
    """A line that is renamed would silently vanish from the timeline."""
    (folder,) = ottla.broker.__path__
    sources = "".join(path.read_text() for path in Path(folder).rglob("*.py") if path.name != "event_ring.py")
    logged = set(re.findall(r'"([a-z_]+)"', sources))
    assert set(_ROWS) - logged == set()
    assert set(_CHANGE_ROWS) - logged == set()
