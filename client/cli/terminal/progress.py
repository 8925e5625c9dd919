"""Progress bars for long commands, on standard error of a terminal; they disappear at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from ottla.client.cli.terminal.output import printable

T = TypeVar("T")
Tell = Callable[[int], None]


def untold(done: int) -> None:
    """Show no progress."""


@contextmanager
def progress(label: str, total: int | None = None) -> Iterator[Tell]:
    """Return a function to call with the progress; without a total, the bar shows activity and elapsed time."""
    if not sys.stderr.isatty():
        yield untold
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}"),
        TimeElapsedColumn() if total is None else TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task(printable(label), total=total)
        yield lambda done: bars.update(bar, completed=done)


def with_progress(items: Sequence[T], label: str) -> Iterable[T]:
    """Yield the items, and show how many are done."""
    with progress(label, len(items)) as tell:
        for number, item in enumerate(items):
            tell(number)
            yield item
