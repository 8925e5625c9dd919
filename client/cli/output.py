"""What commands print: tables and JSON on standard output, talk on standard error."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum

import typer


class Format(StrEnum):
    """How a result is printed."""

    TABLE = "table"
    JSON = "json"


def say(line: str) -> None:
    """Tell what happens."""
    typer.echo(line, err=True)


def error(message: str) -> None:
    """Tell what went wrong."""
    typer.secho("Error: ", err=True, nl=False, fg=typer.colors.RED, bold=True)
    typer.echo(message, err=True)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], styles: Mapping[str, str]) -> None:
    """Print aligned columns; on a terminal, `styles` has the colours of certain cells."""
    if sys.stdout.isatty():
        _print_rich_table(headings, rows, styles)
        return
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    for row in (headings, *rows):
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _print_rich_table(headings: Sequence[str], rows: Sequence[Sequence[str]], styles: Mapping[str, str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell, style=styles.get(cell, "")) for cell in row))
    Console().print(table)
