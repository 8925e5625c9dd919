"""Progress bars for long commands, on standard error of a terminal; they disappear at the end."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from ottla.client.cli.terminal.output import printable, say

_REMOVE_LINE: Final = "\r\x1b[K"

T = TypeVar("T")
Tell = Callable[[int], None]


def untold(done: int) -> None:
    """Show no progress."""


@contextmanager
def progress(label: str, total: int | None = None, *, is_bytes: bool = False) -> Iterator[Tell]:
    """Return a function to call with the progress; without a total, the bar shows activity and elapsed time."""
    if not sys.stderr.isatty():
        yield untold
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True) if is_bytes else TextColumn("{task.completed:,.0f}"),
        TimeElapsedColumn() if total is None else TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task(printable(label), total=total)
        yield lambda done: bars.update(bar, completed=done)


@contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """Return a function that shows a line on the terminal in place of the one before; "" removes it.

    Without a terminal it shows nothing.
    """
    if not sys.stderr.isatty():
        yield lambda line: None
        return

    def show(line: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"{_REMOVE_LINE}{printable(line)[:width]}")
        sys.stderr.flush()

    try:
        yield show
    finally:
        show("")


def say_above(line: str) -> None:
    """Say something while a status line is shown; the line comes back when it changes next."""
    if sys.stderr.isatty():
        sys.stderr.write(_REMOVE_LINE)
    say(line)


def with_progress(items: Sequence[T], label: str) -> Iterable[T]:
    """Yield the items, and show how many are done."""
    with progress(label, len(items)) as tell:
        for number, item in enumerate(items):
            tell(number)
            yield item
