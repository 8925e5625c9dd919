"""Errors about sockets that nobody closed."""

from __future__ import annotations

import socket
import sys
from typing import Any

import pytest
from tests.kit.open_sockets import explaining


def test_an_unclosed_socket_names_the_test_that_opened_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """And where it did, however much later the collector finds it."""
    errors: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", explaining(lambda unraisable: errors.append(unraisable.exc_value)))
    opened = socket.socket()
    del opened

    (error,) = errors
    assert isinstance(error, ResourceWarning)
    (note,) = error.__notes__
    assert "test_an_unclosed_socket_names_the_test_that_opened_it" in note.splitlines()[0]
    assert __file__ in note
