"""Parses regular expressions over topic names: the syntax of RE2 without Unicode classes and word boundaries.

branch|branch   sequence   x* x+ x? x{2} x{2,} x{2,5}, lazy too (x*?)   (x) (?:x) (?P<name>x) (?i)x (?i:x)
.   [a-z]   [^a-z]   [[:alpha:]]   \\d \\D \\w \\W \\s \\S   ^ $ \\A \\z   \\. and other escaped signs   \\Q...\\E
"""

from __future__ import annotations

import string
from collections.abc import Callable
from enum import Enum
from typing import Final, NoReturn

from msgspec import Struct

# The characters of topic names. Expressions may contain other characters, but those match nothing.
ALPHABET: Final = frozenset(string.ascii_letters + string.digits + "._-")

_TEXT_MAX: Final = 10_000
_DEPTH_MAX: Final = 100
_REPEAT_MAX: Final = 1_000
_DIGITS: Final = frozenset(string.digits)
_WORD: Final = frozenset(string.ascii_letters + string.digits + "_")
_CLASSES: Final = {"d": _DIGITS, "w": _WORD, "s": frozenset[str]()}
_POSIX: Final = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": ALPHABET,
    "blank": frozenset[str](),
    "cntrl": frozenset[str](),
    "digit": _DIGITS,
    "graph": ALPHABET,
    "lower": frozenset(string.ascii_lowercase),
    "print": ALPHABET,
    "punct": frozenset("._-"),
    "space": frozenset[str](),
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}
_CONTROL: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS: Final = frozenset("imsU")


class PatternError(ValueError):
    """The expression is invalid or too large. The message says why."""


class OneOf(Struct, frozen=True):
    """One character of a set."""

    characters: frozenset[str]


class Anchor(Enum):
    """The start or the end of the name."""

    START = "^"
    END = "$"


class Sequence(Struct, frozen=True):
    """Several nodes, one after the other."""

    parts: tuple[Node, ...]


class Choice(Struct, frozen=True):
    """One of several branches."""

    branches: tuple[Node, ...]


class Repeat(Struct, frozen=True):
    """A node that is repeated; without a limit if `at_most` is None."""

    what: Node
    at_least: int
    at_most: int | None


Node = OneOf | Anchor | Sequence | Choice | Repeat


def parsed(text: str) -> Node:
    """Return the syntax tree of an expression; PatternError if it is invalid."""
    if len(text) > _TEXT_MAX:
        raise PatternError("the expression is too long")
    return _Parser(text).parse()


class _Parser:
    """A recursive descent parser."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._depth = 0
        self._ignores_case = False

    def parse(self) -> Node:
        node = self._choice()
        if self._position < len(self._text):
            self._fail("unexpected )")
        return node

    def _fail(self, why: str) -> NoReturn:
        raise PatternError(f"{why}, at position {self._position}")

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _next(self) -> str:
        character = self._peek()
        if not character:
            self._fail("unexpected end of the expression")
        self._position += 1
        return character

    def _take(self, expected: str) -> bool:
        is_there = self._text.startswith(expected, self._position)
        if is_there:
            self._position += len(expected)
        return is_there

    def _until(self, end: str) -> str:
        stop = self._text.find(end, self._position)
        if stop < 0:
            self._fail(f"{end} is missing")
        found = self._text[self._position : stop]
        self._position = stop + len(end)
        return found

    def _choice(self) -> Node:
        ignores_case = self._ignores_case
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        # Flags apply until the end of the group that contains them.
        self._ignores_case = ignores_case
        return branches[0] if len(branches) == 1 else Choice(tuple(branches))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._peek() not in ("", "|", ")"):
            if self._take(r"\Q"):
                end = self._text.find(r"\E", self._position)
                quoted = self._text[self._position :] if end < 0 else self._until(r"\E")
                self._position = len(self._text) if end < 0 else self._position
                parts += [self._one_of(frozenset(character)) for character in quoted]
            else:
                parts.append(self._repeats(self._atom()))
        return Sequence(tuple(parts))

    def _repeats(self, node: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return node
        at_least, at_most = bounds
        if at_least > _REPEAT_MAX or (at_most or 0) > _REPEAT_MAX or (at_most is not None and at_most < at_least):
            self._fail("invalid number of repetitions")
        # Lazy and greedy repetitions match the same names.
        self._take("?")
        if self._bounds() is not None:
            self._fail("nested repetition operators")
        return Repeat(node, at_least, at_most)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        if self._peek() != "{":
            return None
        # A brace that does not begin a repetition is an ordinary character.
        end = self._text.find("}", self._position)
        low, comma, high = self._text[self._position + 1 : max(end, 0)].partition(",")
        if end < 0 or not _is_number(low) or not (high == "" or _is_number(high)):
            return None
        self._position = end + 1
        if not comma:
            return int(low), int(low)
        return int(low), int(high) if high else None

    def _atom(self) -> Node:
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return self._one_of(self._class())
        if character == ".":
            return OneOf(ALPHABET)
        if character in "^$":
            return Anchor(character)
        if character in "*+?":
            self._fail(f"nothing to repeat before {character}")
        if character == "\\":
            return self._escape()
        return self._one_of(frozenset(character))

    def _group(self) -> Node:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            self._fail("groups are nested too deeply")
        outer = self._ignores_case
        if self._take("?"):
            if self._take("P<") or self._take("<"):
                name = self._until(">")
                if not name.isidentifier():
                    self._fail(f"invalid group name {name!r}")
            elif self._flags():
                # These flags apply to the rest of the surrounding group.
                self._depth -= 1
                return Sequence(())
        node = self._choice()
        self._ignores_case = outer
        if not self._take(")"):
            self._fail("a ) is missing")
        self._depth -= 1
        return node

    def _flags(self) -> bool:
        """Read flags; return whether the group ends after them."""
        is_on = True
        while True:
            character = self._next()
            if character in ":)":
                return character == ")"
            if character == "-":
                is_on = False
            elif character == "i":
                self._ignores_case = is_on
            elif character not in _FLAGS:
                self._fail("unsupported kind of group")

    def _class(self) -> frozenset[str]:
        is_negated = self._take("^")
        found: set[str] = set()
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            if self._take("[:"):
                found |= self._posix()
                continue
            low = self._class_member()
            if isinstance(low, frozenset):
                found |= low
                continue
            high: str | frozenset[str] = low
            if self._peek() == "-" and self._text[self._position + 1 : self._position + 2] not in ("]", ""):
                self._next()
                high = self._class_member()
            if isinstance(high, frozenset) or high < low:
                self._fail("invalid range of characters")
            found |= {character for character in ALPHABET if low <= character <= high}
        self._next()
        if self._ignores_case:
            found = _any_case(found)
        return ALPHABET - found if is_negated else frozenset(found)

    def _posix(self) -> frozenset[str]:
        name = self._until(":]")
        known = _POSIX.get(name.removeprefix("^"))
        if known is None:
            self._fail(f"unknown class [:{name}:]")
        return ALPHABET - known if name.startswith("^") else known

    def _class_member(self) -> str | frozenset[str]:
        character = self._next()
        return self._escaped() if character == "\\" else character

    def _escape(self) -> Node:
        if self._take("A"):
            return Anchor.START
        if self._take("z"):
            return Anchor.END
        escaped = self._escaped()
        return self._one_of(escaped if isinstance(escaped, frozenset) else frozenset(escaped))

    def _escaped(self) -> str | frozenset[str]:
        character = self._next()
        if character in _CLASSES:
            return _CLASSES[character]
        if character.lower() in _CLASSES:
            return ALPHABET - _CLASSES[character.lower()]
        if character in _CONTROL:
            return _CONTROL[character]
        if character == "x":
            return self._hexadecimal()
        if character.isascii() and character.isalnum():
            self._fail(f"\\{character} is not supported")
        return character

    def _hexadecimal(self) -> str:
        digits = self._until("}") if self._take("{") else self._next() + self._next()
        if not 1 <= len(digits) <= 6 or not set(digits) <= set(string.hexdigits) or int(digits, 16) > 0x10FFFF:
            self._fail(f"\\x{digits} is not a character")
        return chr(int(digits, 16))

    def _one_of(self, characters: frozenset[str]) -> OneOf:
        return OneOf(frozenset(_any_case(characters)) & ALPHABET if self._ignores_case else characters & ALPHABET)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(_REPEAT_MAX))


def _any_case(characters: set[str] | frozenset[str]) -> set[str]:
    convert: tuple[Callable[[str], str], ...] = (str.lower, str.upper)
    return {change(character) for character in characters for change in convert}
