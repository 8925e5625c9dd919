"""How a check is declared, and how it says what it saw.

    CHECKS = Checks("produce", "Writing records")

    @CHECKS.check({Api.PRODUCE: 3})
    async def wrong_crc(trial: Trial) -> None:
        '''A batch with a wrong CRC is refused with CORRUPT_MESSAGE, and is not written.'''

The docstring is what must hold; the name of the function is the name of the check. A check that returns has passed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.certify.trial import Trial

Run = Callable[["Trial"], Awaitable[None]]


class CheckFailed(Exception):  # noqa: N818 - a result, not an error of ours
    """The cluster does not do what must hold."""

    def __init__(self, expected: str, seen: str) -> None:
        super().__init__(f"expected {expected}; saw {seen}")
        self.expected = expected
        self.seen = seen


class NotApplicable(Exception):  # noqa: N818 - a result, not an error of ours
    """The check makes no sense on this cluster; the text says why."""


@dataclass(frozen=True)
class Check:
    """One thing that must hold, and what a cluster needs for the question to make sense."""

    subject: str
    name: str
    holds: str
    run: Run
    # The APIs that it uses, each with the version that the cluster has to offer at least.
    apis: Mapping[Api, int] = field(default_factory=dict)
    brokers: int = 1
    # Whether a broker is stopped.
    harms: bool = False

    @property
    def path(self) -> str:
        """The full name: subject and name."""
        return f"{self.subject}/{self.name}"


class Checks:
    """The checks of one subject, in the order in which they are declared."""

    def __init__(self, subject: str, about: str) -> None:
        self.subject = subject
        self.about = about
        self.declared: list[Check] = []

    def check(
        self, apis: Mapping[Api, int] | None = None, *, brokers: int = 1, harms: bool = False
    ) -> Callable[[Run], Run]:
        """Declare the function as a check."""

        def declare(run: Run) -> Run:
            name = getattr(run, "__name__", "").replace("_", "-")
            self.add(Check(self.subject, name, (run.__doc__ or "").strip(), run, apis or {}, brokers, harms))
            return run

        return declare

    def add(self, check: Check) -> None:
        """Add a check that is made of a table."""
        self.declared.append(check)


def expect(what: str, seen: object, *allowed: object) -> None:
    """Raise CheckFailed unless what was seen is one of the allowed values."""
    if seen not in allowed:
        raise CheckFailed(f"{what} to be {' or '.join(map(_shown, allowed))}", _shown(seen))


def expect_error(what: str, seen: int, *allowed: ErrorCode) -> None:
    """Raise CheckFailed unless an error code is one of those allowed."""
    if seen not in allowed:
        names = " or ".join("no error" if code is ErrorCode.NONE else code.name for code in allowed)
        raise CheckFailed(f"{names} for {what}", error_name(seen))


def expect_that(holds: bool, expected: str, seen: object) -> None:
    """Raise CheckFailed with these words unless it holds."""
    if not holds:
        raise CheckFailed(expected, _shown(seen))


def error_name(code: int) -> str:
    """Return the name of an error code, also of one that nobody knows."""
    if code == ErrorCode.NONE:
        return "no error"
    known = ErrorCode.of(code)
    return known.name if known == code else f"error code {code}"


def error_names(codes: Iterable[int]) -> str:
    """Return the names of several codes."""
    return ", ".join(map(error_name, sorted(set(codes))))


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
