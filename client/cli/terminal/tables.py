"""Draw tables, also in a terminal that is too narrow for them, without cutting a cell.

First go the columns without content, then those that the command can spare. Then the last column is wrapped between
words. If even that leaves too little room, each row becomes a block of lines. A word that is wider than its place is
not cut either: the terminal goes on with it in the next line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

from rich.cells import cell_len
from rich.text import Text

# The last column is not made narrower than this.
_LAST_WIDTH_MIN = 16
# What a cell without content has.
_NOTHING = frozenset({"", "-"})
_HEADING_STYLE = "bold"


@dataclass(slots=True)
class Layout:
    """What of a table is shown, and how; only cells of the last column have line breaks."""

    headings: list[str]
    rows: list[list[str]]
    # Columns with content that are left out.
    left_out: tuple[str, ...] = ()
    is_in_blocks: bool = False


def fitted(
    headings: Sequence[str], rows: Sequence[Sequence[str]], width: int, gap: int, spare: Sequence[str] = ()
) -> Layout:
    """Return how a table is shown in `width` columns; those named in `spare` go in their order, if they must."""
    layout = Layout(list(headings), [list(row) for row in rows])
    if _width(layout, gap) <= width:
        return layout
    for index in reversed(range(len(headings))):
        if rows and all(row[index] in _NOTHING for row in layout.rows):
            _remove(layout, index)
            if _width(layout, gap) <= width:
                return layout
    whole = Layout(list(layout.headings), [list(row) for row in layout.rows], is_in_blocks=True)
    for heading in spare:
        if heading in layout.headings:
            _remove(layout, layout.headings.index(heading))
            layout.left_out += (heading,)
            if _width(layout, gap) <= width:
                return layout
    left = width - sum(_widths(layout)[:-1]) - gap * (len(layout.headings) - 1)
    if left < _LAST_WIDTH_MIN:
        return whole
    for row in layout.rows:
        row[-1] = "\n".join(wrap(row[-1], left, break_long_words=False, break_on_hyphens=False))
    return layout


def in_lines(layout: Layout, gap: int, styles: Mapping[str, str]) -> Iterator[Text]:
    """Yield the lines of a table: the headings, then its rows."""
    widths = _widths(layout)
    yield _line(layout.headings, widths, gap, dict.fromkeys(layout.headings, _HEADING_STYLE))
    for row in layout.rows:
        first, *more = row[-1].split("\n")
        yield _line([*row[:-1], first], widths, gap, styles)
        for part in more:
            yield _line([*[""] * (len(row) - 1), part], widths, gap, styles)


def in_blocks(layout: Layout, gap: int, styles: Mapping[str, str]) -> Iterator[Text]:
    """Yield the lines of a table with a line for each cell, and an empty one between two rows."""
    width = max(map(cell_len, layout.headings))
    for number, row in enumerate(layout.rows):
        if number:
            yield Text()
        for heading, cell in zip(layout.headings, row, strict=True):
            yield _line([heading, cell], [width, 0], gap, {heading: _HEADING_STYLE, **styles})


def _line(cells: Sequence[str], widths: Sequence[int], gap: int, styles: Mapping[str, str]) -> Text:
    line = Text()
    for cell, width in zip(cells[:-1], widths, strict=False):
        line.append(cell, styles.get(cell, ""))
        line.append(" " * (width - cell_len(cell) + gap))
    line.append(cells[-1], styles.get(cells[-1], ""))
    line.rstrip()
    return line


def _width(layout: Layout, gap: int) -> int:
    return sum(_widths(layout)) + gap * (len(layout.headings) - 1)


def _widths(layout: Layout) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(layout.headings, *layout.rows, strict=True)]


def _remove(layout: Layout, index: int) -> None:
    for cells in (layout.headings, *layout.rows):
        del cells[index]
