"""How one item of a request ended, where the response has a code and a text for each."""

from __future__ import annotations

from typing import NamedTuple

from ottla.protocol.errors import ErrorCode, KafkaError


class Outcome(NamedTuple):
    """An error code with what is said about it; no text where all went well."""

    code: ErrorCode
    message: str | None

    @classmethod
    def of(cls, code: ErrorCode, detail: str = "") -> Outcome:
        """Say what a code means, and what was wrong in this very case."""
        return cls(code, f"{code.description} {detail}".rstrip())

    @classmethod
    def refused(cls, error: KafkaError) -> Outcome:
        """Make an outcome of what was raised."""
        return cls.of(error.code, error.detail)


DONE = Outcome(ErrorCode.NONE, None)
