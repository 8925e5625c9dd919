"""The types of option values: they read and write Kafka's text, and describe the valid values.

`parse` takes stripped text and raises `ValueError`, with a reason if `valid` does not explain the error.
For every valid value, `parse(format(value)) == value`.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from decimal import Decimal
from enum import IntEnum
from typing import ClassVar, Generic, TypeVar

T = TypeVar("T")

HIDDEN = "[hidden]"

_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")


class ConfigType(IntEnum):
    """The type of an option, as DescribeConfigs numbers it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


class OptionKind(ABC, Generic[T]):
    """The type of an option's values."""

    type: ClassVar[ConfigType]

    @property
    def valid(self) -> str:
        """Which values of the type are valid; empty if all are."""
        return ""

    @property
    def expected(self) -> str:
        """What a value has to be, for messages."""
        return f"type {self.type.name.lower()}" + (f", {self.valid}" if self.valid else "")

    @abstractmethod
    def parse(self, text: str) -> T:
        """Read a value."""

    @abstractmethod
    def format(self, value: T) -> str:
        """Write a value as Kafka does."""


class Boolean(OptionKind[bool]):
    """`true` or `false`, in any case."""

    type = ConfigType.BOOLEAN

    @property
    def valid(self) -> str:
        return "true or false"

    def parse(self, text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise ValueError
        return text.lower() == "true"

    def format(self, value: bool) -> str:
        return "true" if value else "false"


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole(OptionKind[int]):
    """A whole number within the width of its type. `or_exactly` is one valid value outside the bounds."""

    bits: ClassVar[int]
    at_least: int | None = None
    at_most: int | None = None
    or_exactly: int | None = None

    @property
    def valid(self) -> str:
        bounds = _bounds(self.at_least, self.at_most)
        return bounds if self.or_exactly is None else f"{bounds}, or {self.or_exactly}"

    def parse(self, text: str) -> int:
        if not _WHOLE.fullmatch(text):
            raise ValueError
        value = int(text)
        if value.bit_length() >= self.bits and value != -(1 << (self.bits - 1)):
            raise ValueError(f"it does not fit in {self.bits} bits")
        if value != self.or_exactly and not _within(value, self.at_least, self.at_most):
            raise ValueError
        return value

    def format(self, value: int) -> str:
        return str(value)


class Short(Whole):
    """A whole number of 16 bits."""

    type = ConfigType.SHORT
    bits = 16


class Int(Whole):
    """A whole number of 32 bits."""

    type = ConfigType.INT
    bits = 32


class Long(Whole):
    """A whole number of 64 bits."""

    type = ConfigType.LONG
    bits = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Double(OptionKind[float]):
    """A finite number."""

    type = ConfigType.DOUBLE
    at_least: float | None = None
    at_most: float | None = None

    @property
    def valid(self) -> str:
        return _bounds(self.at_least, self.at_most)

    def parse(self, text: str) -> float:
        value = float(text) if _DECIMAL.fullmatch(text) else math.nan
        if not math.isfinite(value) or not _within(value, self.at_least, self.at_most):
            raise ValueError
        return value

    def format(self, value: float) -> str:
        """Return the shortest digits that read back as the same value, exponents as in Java: 0.5, 1.0E7, 9.0E-4."""
        if value == 0 or 1e-3 <= abs(value) < 1e7:
            return repr(float(value))
        sign, digits, _ = Decimal(repr(value)).normalize().as_tuple()
        fraction = "".join(map(str, digits[1:])) or "0"
        return f"{'-' if sign else ''}{digits[0]}.{fraction}E{Decimal(repr(value)).adjusted()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class String(OptionKind[str]):
    """Text; with `one_of`, exactly one of these."""

    type = ConfigType.STRING
    one_of: tuple[str, ...] = ()

    @property
    def valid(self) -> str:
        return _choices(self.one_of)

    def parse(self, text: str) -> str:
        if self.one_of and text not in self.one_of:
            raise ValueError
        return text

    def format(self, value: str) -> str:
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class List(OptionKind[tuple[str, ...]]):
    """Items separated by commas. `matching` is a pattern for the whole list; `explained` describes it."""

    type = ConfigType.LIST
    one_of: tuple[str, ...] = ()
    matching: str = ""
    explained: str = ""

    @property
    def valid(self) -> str:
        return self.explained or (self.one_of and f"any of {_choices(self.one_of)}") or ""

    def parse(self, text: str) -> tuple[str, ...]:
        items = tuple(item.strip() for item in text.split(",")) if text else ()
        if not all(items):
            raise ValueError("an item is empty")
        if self.one_of and not set(items) <= set(self.one_of):
            raise ValueError
        if self.matching and not re.fullmatch(self.matching, ",".join(items), re.ASCII):
            raise ValueError
        return items

    def format(self, value: tuple[str, ...]) -> str:
        return ",".join(value)


@dataclass(frozen=True, slots=True)
class Password:
    """A secret. Only code that reads `value` sees it."""

    value: str = field(repr=False)

    def __str__(self) -> str:
        return HIDDEN


class Secret(OptionKind[Password]):
    """Text that is never shown."""

    type = ConfigType.PASSWORD

    def parse(self, text: str) -> Password:
        return Password(text)

    def format(self, value: Password) -> str:
        return value.value


def _within(value: float, at_least: float | None, at_most: float | None) -> bool:
    return (at_least is None or value >= at_least) and (at_most is None or value <= at_most)


def _bounds(at_least: float | None, at_most: float | None) -> str:
    if at_most is None:
        return "" if at_least is None else f"at least {at_least}"
    return f"at most {at_most}" if at_least is None else f"{at_least} to {at_most}"


def _choices(values: tuple[str, ...]) -> str:
    return ", ".join(value or "(empty)" for value in values)
