"""The command line of `ottla certify`; tests/client/certify has what the checks find."""

from __future__ import annotations

import logging

import pytest
from tests.client.cli.conftest import Ottla

from ottla.client.certify.table import all_checks


def test_checks_are_listed(ottla: Ottla) -> None:
    """With what must hold; nothing is sent."""
    listed = ottla("certify", "--list", "--only", "fetch", "--format", "json", bootstrap="127.0.0.1:1")
    expected = [(each.subject, each.name, each.holds) for each in all_checks() if each.subject == "fetch"]
    assert [tuple(item.values()) for item in listed.items] == expected
    lines = ottla("certify", "--list", "--only", "produce/wrong-crc", bootstrap="127.0.0.1:1").out.splitlines()
    assert lines == [
        "produce/wrong-crc",
        "  A batch with a wrong CRC is refused with CORRUPT_MESSAGE, and is not written.",
    ]


@pytest.mark.parametrize(
    ("options", "because"),
    [
        (("--only", "nothing"), "`ottla certify --list` shows them"),
        (("--allow-harm",), "--harm-command"),
        (("--harm-command", "true", "--allow-harm"), "{broker}"),
        (("--harm-command", "true {broker}"), "There is no terminal to ask on"),
    ],
)
def test_a_wrong_command_line_says_what_to_do(ottla: Ottla, options: tuple[str, ...], because: str) -> None:
    """Before anything is sent."""
    refused = ottla("certify", *options, bootstrap="127.0.0.1:1")
    assert (refused.code, because in refused.err) == (2, True), refused.err


def test_the_report_card_fits_a_narrow_terminal(ottla: Ottla) -> None:
    """A failure is told in words, and what does not apply with its reason."""
    only = ("--only", "produce/broken-compression", "--only", "produce/acks", "--only", "produce/not-the-leader")
    card = ottla("certify", *only)
    lines = card.out.splitlines()
    assert (card.code, max(map(len, lines)) < 80) == (1, True)
    assert "software:  Ottla" in lines
    assert ["produce", "1", "1", "1", "FAILED"] in [line.split() for line in lines]
    assert "  expected: an error for bytes that are no gzip" in lines
    assert "  produce/not-the-leader: needs 2 brokers, the cluster has 1" in lines
    assert lines[-1].startswith("3 checks in ")


def test_a_run_leaves_the_log_of_the_client_as_it_was(ottla: Ottla, caplog: pytest.LogCaptureFixture) -> None:
    """Connections that checks break are not logged; those of whoever else is in the process are."""
    caplog.set_level(logging.INFO, "ottla.client.net")
    ottla("certify", "--only", "metadata")
    assert logging.getLogger("ottla.client.net").level == logging.INFO
