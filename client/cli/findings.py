"""What `ottla doctor` says of one thing that it looked at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ottla.client.admin.results import Result


class Status(StrEnum):
    """How something is."""

    OK = "ok"
    WARNING = "WARNING"
    BROKEN = "BROKEN"


@dataclass(frozen=True, slots=True)
class Finding(Result):
    """Something that was looked at; `advice` says what to do, and `change` is the line to write."""

    status: Status
    check: str
    found: str
    advice: str = ""
    change: str = ""
