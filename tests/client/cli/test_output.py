"""What reaches the screen of an administrator: names that strangers choose do not control the terminal."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import ottla.client.cli
from ottla.client.cli.terminal.output import Format, echo, error, print_items, print_table, say
from ottla.client.cli.terminal.progress import progress

# Clears the screen, renames the window, deletes what is before it, hides what follows, and turns text around.
HOSTILE = "a\x1b[2J\x1b]0;t\x07\x08\x9b2J\r\x7f\u202eb"
SHOWN = r"a\x1b[2J\x1b]0;t\x07\x08\x9b2J\r\x7f\u202eb"


def test_a_table_shows_controls_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    """Also a line break, which would look like another row; the columns stay aligned."""
    print_table(("GROUP", "STATE"), [(HOSTILE, "Empty"), ("b\nc", "Stable")], {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == [SHOWN, "Empty"]
    assert lines[2].split() == [r"b\nc", "Stable"]
    assert len({line.index(word) for line, word in zip(lines, ("STATE", "Empty", "Stable"), strict=True)}) == 1


def test_a_coloured_table_does_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Its own escapes are the only ones."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_table(("GROUP", "STATE"), [(HOSTILE, "Empty")], {"Empty": "red"})
    printed = capsys.readouterr().out
    assert SHOWN in printed
    assert not any(control in printed for control in ("\x1b[2J", "\x07", "\x9b", "\u202e"))


@pytest.mark.parametrize("print_line", [echo, say, error])
def test_lines_and_messages_do_too(print_line: object, capsys: pytest.CaptureFixture[str]) -> None:
    """Line breaks of our own stay."""
    assert callable(print_line)
    print_line(f"one\n{HOSTILE}\ttwo")
    printed = capsys.readouterr()
    assert (printed.out + printed.err).endswith(f"one\n{SHOWN}\ttwo\n")


def test_a_progress_bar_does_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It may be about a topic or a group."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress(HOSTILE, 2) as tell:
        tell(1)
    printed = capsys.readouterr().err
    assert not any(control in printed for control in ("\x1b[2J", "\x07", "\x9b", "\u202e"))


def test_scripts_get_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON has escapes of its own."""
    print_items([{"group": "a\x1b\n"}], Format.JSON)
    assert capsys.readouterr().out == '{"group": "a\\u001b\\n"}\n'


def test_nothing_else_writes_to_the_screen() -> None:
    """All lines for people go through the functions above; only the version is printed elsewhere."""
    folder = Path(ottla.client.cli.__path__[0])
    writers = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if any(call in path.read_text() for call in ("click.echo(", "click.secho("))
    }
    assert writers == {"terminal/output.py", "main.py"}
