"""Write docs/CLI.md: all commands with their options, from the commands themselves.

Run with `make docs`; a test compares the page with the commands.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from ottla.client.cli.terminal.nouns import LOCAL, NOUNS, load
from ottla.client.cli.terminal.options import default_directory
from ottla.client.cli.terminal.target import shared_parameters

_HEAD: Final = """# The command line

`make docs` writes this page from the commands. `ottla COMMAND --help` shows the same in a terminal, and
[QUICKSTART.md](QUICKSTART.md) is a first walk.

- Results go to standard output as tables, with `--format json` as one object per line, with `--format yaml` as a list.
  Everything else goes to standard error.
- Exit codes: 0 success, 1 failure, 2 a wrong command line. `check` and `doctor` have their own.
- Commands that destroy something ask first; `--yes` skips the question.
- The cluster is the one of `-b`, of `OTTLA_BOOTSTRAP_SERVERS`, of `-X` or `--command-config`, of the profile in use,
  the one that `ottla up` runs here, or localhost:9092: the first of these that there is.

"""
_SHARED: Final = "Options of every command that talks to a cluster"


def main() -> None:
    """Print the page."""
    print(page(), end="")


def page() -> str:
    """Return the page."""
    shared = _rows(_shared())
    parts = [_HEAD, f"## {_SHARED}\n\n{_table(shared)}\n"]
    for noun, text in (LOCAL | NOUNS).items():
        parts.append(f"## {noun}\n\n{text}\n")
        for words, command in _commands(load(noun), (noun,)):
            parts.append(_described(words, command, shared))
    return "\n".join(parts)


def _shared() -> click.Command:
    return click.Command("shared", params=shared_parameters())


def _commands(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield " ".join(words), command
        return
    for name, each in command.commands.items():
        yield from _commands(each, (*words, name))


def _described(words: str, command: click.Command, shared: list[tuple[str, str]]) -> str:
    text, _, examples = inspect.cleandoc(command.help or "").partition("\b\nExamples:\n")
    rows = _rows(command)
    own = [row for row in rows if row not in shared]
    usage = " ".join(command.collect_usage_pieces(_context(command))[1:])
    parts = [f"### ottla {words}\n", f"`ottla {words} {usage}`".replace(" `", "`") + "\n", _paragraphs(text)]
    if own:
        parts.append(_table(own))
    if len(own) < len(rows):
        parts.append(f"And the [shared options](#{_SHARED.lower().replace(' ', '-')}).\n")
    parts.append("```\n" + inspect.cleandoc(examples) + "\n```\n")
    return "\n".join(parts)


def _context(command: click.Command) -> click.Context:
    return click.Context(command, max_content_width=10_000, terminal_width=10_000)


def _rows(command: click.Command) -> list[tuple[str, str]]:
    context = _context(command)
    found = [each.get_help_record(context) for each in command.params]
    return [(name, _portable(" ".join(text.split()))) for name, text in filter(None, found)]


def _portable(text: str) -> str:
    """Return text without the home of whoever makes the page."""
    shown = str(default_directory())
    return text.replace(shown, "~/.local/share/ottla").replace(str(Path.home()), "~")


def _table(rows: list[tuple[str, str]]) -> str:
    cells = [f"| `{name.replace('|', chr(92) + '|')}` | {text.replace('|', chr(92) + '|')} |" for name, text in rows]
    return "\n".join(["| | |", "|---|---|", *cells]) + "\n"


def _paragraphs(text: str) -> str:
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text.strip()) + "\n"


if __name__ == "__main__":
    main()
