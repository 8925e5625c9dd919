"""What tests of storage share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict


@pytest.fixture
def log_lines() -> Iterator[list[EventDict]]:
    """The lines that are logged during the test."""
    with capture_logs() as lines:
        yield lines
