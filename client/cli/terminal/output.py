"""What commands print: tables, JSON or YAML on standard output, messages on standard error."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final

import click

from ottla.client.cli.terminal.errors import CommandError

# Between the columns of a table.
_GAP: Final = 2
# All control characters but line breaks and tabs, and those that change the direction of text.
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class Format(StrEnum):
    """How a result is printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"

    @property
    def is_data(self) -> bool:
        """Whether a script reads the result."""
        return self is not Format.TABLE


def printable(text: str) -> str:
    """Return text in which no character controls the terminal; those that do are shown as escapes.

    Names of groups, clients, members and hosts come from strangers. In JSON and YAML they stay as they are.
    """
    return _CONTROLS.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def echo(line: str = "") -> None:
    """Print a line for people to standard output."""
    click.echo(printable(line))


def say(line: str) -> None:
    """Print a message to standard error."""
    click.echo(printable(line), err=True)


@contextmanager
def unread_is_fine() -> Iterator[None]:
    """Within this context, nobody has to read what is printed, as in `ottla up --detach | head -1`."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # The rest has nowhere to go. Without this, Python complains when it flushes at the end.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the end of the process


def error(message: str) -> None:
    """Print an error message to standard error."""
    click.secho("Error: ", err=True, nl=False, fg="red", bold=True)
    click.echo(printable(message), err=True)


def confirm(question: str, yes: bool) -> None:
    """Ask for confirmation unless `--yes` was given; CommandError if the user says no or there is no terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError(f"{question} There is no terminal to ask on; repeat the command with --yes.", 2)
    if not click.confirm(printable(question), err=True):
        raise CommandError("Nothing was done.")


def print_items(items: Iterable[Mapping[str, Any]], output_format: Format) -> None:
    """Print objects as they arrive: in JSON one per line, in YAML as entries of one list."""
    for item in items:
        click.echo(written(item, output_format), nl=False)


def written(item: Mapping[str, Any], output_format: Format) -> str:
    """Return an object as lines of text."""
    import json

    text = json.dumps(item, ensure_ascii=False)
    if output_format is Format.JSON:
        return f"{text}\n"
    import yaml

    # Through JSON first, because YAML's safe writer accepts plain types only.
    entry: str = yaml.safe_dump([json.loads(text)], sort_keys=False, allow_unicode=True)
    return entry


def print_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], styles: Mapping[str, str], spare: Sequence[str] = ()
) -> None:
    """Print aligned columns; on a terminal, cells whose text is in `styles` are coloured.

    No cell is cut. In a narrow terminal, the columns named in `spare` are left out, the first one first.
    """
    # A line break in a name must not look like another row.
    rows = [[printable(cell).replace("\n", "\\n") for cell in row] for row in rows]
    draw = _print_rich_table if sys.stdout.isatty() else _print_plain_table
    draw(headings, rows, styles, spare)


def _print_plain_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], styles: Mapping[str, str], spare: Sequence[str]
) -> None:
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    for row in (headings, *rows):
        click.echo((" " * _GAP).join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _print_rich_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], styles: Mapping[str, str], spare: Sequence[str]
) -> None:
    from rich.console import Console

    from ottla.client.cli.terminal.tables import fitted, in_blocks, in_lines

    console = Console()
    layout = fitted(headings, rows, console.width, _GAP, spare)
    for line in in_blocks(layout, _GAP, styles) if layout.is_in_blocks else in_lines(layout, _GAP, styles):
        # Neither shortened nor wrapped: the terminal goes on with a long line in the next.
        console.print(line, soft_wrap=True)
    if layout.left_out:
        say(f"A wider terminal also shows {', '.join(layout.left_out)}.")
