"""What goes wrong in a job, in words for whoever started it."""

from __future__ import annotations

import re
from typing import Final

EXIT_FAILED: Final = 1
EXIT_UNUSABLE: Final = 2


class PipelineError(Exception):
    """A job cannot go on; its text says why, and what to do."""

    exit_code = EXIT_FAILED


class SettingsError(PipelineError):
    """A setting does not make sense; its text says which one, and where it was set."""

    exit_code = EXIT_UNUSABLE


class AuditError(PipelineError):
    """A comparison could not be made."""

    exit_code = EXIT_UNUSABLE


class ArchiveError(PipelineError):
    """An archive is not what its manifests say, so that nothing can be added to it."""


def reason_of(error: BaseException) -> str:
    """Return what went wrong in Spark without the traces of two languages: the last line that names an error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"(Caused by: )?[\w.]+(Error|Exception|Available|Exceeded): ", line)]
    return (named or lines or [type(error).__name__])[-1 if named else 0]
