"""The base class of all client errors."""

from __future__ import annotations

from typing import ClassVar

from ottla.protocol import errors as protocol_errors
from ottla.protocol.errors import ErrorCode

# Each class registers itself when it is declared.
CLASS_BY_CODE: dict[ErrorCode, type[KafkaError]] = {}


class KafkaError(protocol_errors.KafkaError):
    """An error from a broker, or from the client before it reached one; each error code has its own class."""

    wire_code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR
    advice: ClassVar[str] = ""

    def __init_subclass__(cls, *, code: ErrorCode | None = None, advice: str = "") -> None:
        """Register the class for its code, with advice for the user."""
        super().__init_subclass__()
        if code is not None:
            cls.wire_code = code
            CLASS_BY_CODE.setdefault(code, cls)
        if advice:
            cls.advice = advice

    def __init__(self, detail: str = "") -> None:
        """`detail` says what was wrong in this case: the name, the number, the limit."""
        super().__init__(self.wire_code, detail)
        # The arguments for unpickling.
        self.args = (detail,)

    @property
    def errno(self) -> int:
        """Kafka's number for the error."""
        return int(self.code)

    @property
    def invalid_metadata(self) -> bool:
        """Whether the error means that our metadata is out of date."""
        return self.code.refresh_metadata

    @property
    def description(self) -> str:
        """What the code means."""
        return self.code.description

    @property
    def message(self) -> str:
        """Kafka's name for the code."""
        return self.code.name

    def __str__(self) -> str:
        """The detail, what the code means, and what to do."""
        parts = (self.detail and f"{self.detail}.", f"{self.description} [{self.message}]", self.advice)
        return " ".join(part for part in parts if part)


class LocalError(KafkaError):
    """An error of the client itself, without an error code from a broker."""

    def __str__(self) -> str:
        return " ".join(part for part in (self.detail and f"{self.detail}.", self.advice) if part)
