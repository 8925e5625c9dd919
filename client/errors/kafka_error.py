"""The base class of all client errors."""

from __future__ import annotations

from typing import ClassVar, Final

from ottla.protocol import errors as protocol_errors
from ottla.protocol.errors import ErrorCode

_ABORTABLE_STEP: Final = "Abort the transaction; the producer can then begin another."
_FATAL_STEP: Final = "This producer cannot go on: close it and create a new one."

# Each class registers itself when it is declared.
CLASS_BY_CODE: dict[ErrorCode, type[KafkaError]] = {}


class KafkaError(protocol_errors.KafkaError):
    """An error from a broker, or from the client before it reached one; each error code has its own class."""

    wire_code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR
    # That of the class, or of the case at hand.
    advice: str = ""

    # What the error means for a transaction. The same code may mean either, so the producer sets it on the error.
    abortable: bool = False
    """Whether the transaction has to be aborted. The producer can then go on."""
    fatal: bool = False
    """Whether the producer cannot go on at all."""

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
        return self._sentences(f"{self.description} [{self.message}]")

    def _sentences(self, meaning: str) -> str:
        after = _FATAL_STEP if self.fatal else _ABORTABLE_STEP if self.abortable else ""
        # Brokers begin their own text with what the code means, which must not be said twice.
        detail = f"{self.detail.strip()}.".removeprefix(self.description).rstrip(".").strip()
        if detail and detail[-1] not in "?!":
            detail += "."
        parts = (detail, meaning, self.advice, after)
        return " ".join(part for part in parts if part)


class LocalError(KafkaError):
    """An error of the client itself, without an error code from a broker."""

    def __str__(self) -> str:
        return self._sentences("")
