"""The result of one check of `ottla doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ottla.client.admin.results import Result


class Status(StrEnum):
    """The state of what was checked."""

    OK = "ok"
    WARNING = "WARNING"
    BROKEN = "BROKEN"


@dataclass(frozen=True, slots=True)
class Finding(Result):
    """The result of one check; `advice` says what to do, and `change` is the line to write."""

    status: Status
    check: str
    found: str
    advice: str = ""
    change: str = ""
