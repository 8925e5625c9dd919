"""`ottla console` as a command: what it says when it cannot run."""

from __future__ import annotations

import socket

import pytest
from tests.client.cli.conftest import Ottla, config_home, ottla

__all__ = ["config_home", "ottla"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--host", "0.0.0.0"), "--public-url"),
        (("--host", "0.0.0.0", "--public-url", "http://c.example"), "--open"),
        (("-X", "security.protocol=SASL_SSL", "--host", "0.0.0.0", "--public-url", "http://c"), "in the clear"),
        (("-X", "nothing=1"), "there is no option nothing"),
        (("-X", "security.protocol=SASL"), "security_protocol must be one of"),
        (("--key", "x.pem"), "--certificate and --key go together"),
    ],
)
def test_unsafe_or_wrong_options_are_refused(ottla: Ottla, arguments: tuple[str, ...], words: str) -> None:
    """With exit code 2, and what to write instead."""
    refused = ottla("console", *arguments)
    assert (refused.code, words in refused.err) == (2, True), refused.err


def test_a_port_that_is_taken_is_named(ottla: Ottla) -> None:
    """So that the user chooses another one."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        failed = ottla("console", "--port", str(port))
    assert (failed.code, f"Cannot listen on 127.0.0.1:{port}" in failed.err) == (1, True), failed.err


def test_a_missing_library_is_named(ottla: Ottla, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the line that installs it."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    failed = ottla("console")
    assert (failed.code, "pip install 'ottla[console]'" in failed.err) == (1, True)
