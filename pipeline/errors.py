"""What goes wrong in a job, in words for whoever started it."""

from __future__ import annotations

from typing import Final

EXIT_FAILED: Final = 1
EXIT_UNUSABLE: Final = 2


class PipelineError(Exception):
    """A job cannot go on; its text says why, and what to do."""

    exit_code = EXIT_FAILED


class SettingsError(PipelineError):
    """A setting does not make sense; its text says which one, and where it was set."""

    exit_code = EXIT_UNUSABLE


class ArchiveError(PipelineError):
    """An archive is not what its manifests say, so that nothing can be added to it."""
