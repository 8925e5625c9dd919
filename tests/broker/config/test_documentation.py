"""The page about the options is the one that the table gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ottla.broker.config import BROKER_OPTIONS, TOPIC_OPTIONS
from ottla.broker.config.documentation import page

PAGE = Path(__file__).parents[3] / "docs" / "CONFIG.md"


def test_the_page_is_current() -> None:
    """`make docs` was run after the last change of the table."""
    assert PAGE.read_text("utf-8") == page()


def test_the_page_is_printed_by_the_module() -> None:
    """`python -m ottla.broker.config` writes it to standard output."""
    command = [sys.executable, "-m", "ottla.broker.config"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

    assert printed == page()


def test_the_page_has_a_row_for_each_option() -> None:
    """Broker and topic options with the same name have one each."""
    rows = [line.split("`")[1] for line in page().splitlines() if line.startswith("| `")]

    assert sorted(rows) == sorted([*BROKER_OPTIONS, *TOPIC_OPTIONS])


def test_defaults_are_explained() -> None:
    """Numbers come with a unit, inherited ones with their origin, and differences from Kafka are told."""
    text = page()

    assert "| `log.segment.bytes` | int | `1073741824` (1 GiB) | at least 14 | cluster-wide |" in text
    assert "| `log.retention.ms` | long | as `log.retention.minutes`: `604800000` (7 days) |" in text
    assert "| `max.connections` | int | `2147483647` (no limit) |" in text
    assert "Kafka's default is `JKS`." in text
