"""Read Java's properties format, as `java.util.Properties.load` does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_BLANKS: Final = " \t\f"
# A key ends at the first blank, `=` or `:` that has no backslash before it.
_ENTRY: Final = re.compile(r"((?:\\.|[^\\ \t\f=:])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|[^u])|(\\u.{0,4})", re.DOTALL)
_CHARACTERS: Final = {"t": "\t", "n": "\n", "f": "\f", "r": "\r"}


class Property(NamedTuple):
    """One entry, and the line that it begins on, counted from 1."""

    key: str
    value: str
    line: int


class PropertiesError(ValueError):
    """The file is not in the format; the text says in which line, and why."""


def parse_properties(content: bytes) -> Iterator[Property]:
    """Return the entries in order, repeated keys included; PropertiesError at the first that is broken."""
    numbered = enumerate(_LINE_END.split(content.decode("latin-1")), 1)
    for number, natural in numbered:
        line = natural.lstrip(_BLANKS)
        if line.startswith(("#", "!")):
            continue
        while _goes_on(line):
            _, following = next(numbered, (0, ""))
            line = line[:-1] + following.lstrip(_BLANKS)
        if line:
            found = _ENTRY.fullmatch(line)
            assert found is not None
            key, value = found.groups()
            yield Property(_unescaped(key, number), _unescaped(value, number), number)


def _goes_on(line: str) -> bool:
    """Whether the last backslash of a line is not itself escaped."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str, line: int) -> str:
    def character(found: re.Match[str]) -> str:
        escape, broken = found.groups()
        if broken is not None:
            raise PropertiesError(f"line {line}: {broken} is not \\uXXXX")
        return _CHARACTERS.get(escape, escape) if len(escape) == 1 else chr(int(escape[1:], 16))

    if "\\" not in text:
        return text
    # Characters beyond 16 bits are written as two escapes.
    units = _ESCAPE.sub(character, text).encode("utf-16-be", "surrogatepass")
    return units.decode("utf-16-be", "surrogatepass")
