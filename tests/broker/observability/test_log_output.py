"""What clients choose to be called cannot do anything to whoever reads the log."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.observability.log_output import configure_logging


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    kazoo_level = logging.getLogger("kazoo").level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("kazoo").setLevel(kazoo_level)
    structlog.reset_defaults()


@pytest.mark.parametrize("as_json", [False, True])
@given(name=st.text(st.characters(max_codepoint=0x100)) | st.sampled_from(["\x1b[31mred", "a\nb", "a\r\x07", "\x9b2J"]))
def test_a_name_stays_within_its_line(as_json: bool, name: str) -> None:
    """Whatever is in it, there is one line, and nothing in it that a terminal obeys."""
    output = io.StringIO()
    configure_logging(as_json=as_json, output=output)
    structlog.get_logger("test").warning("request_refused", client_id=name)
    line = output.getvalue()
    assert line.endswith("\n")
    assert not [sign for sign in line[:-1] if ord(sign) < 32 or 127 <= ord(sign) < 160]
