"""What every change answers: what changed, or would change, and the command that does the same."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import cast

import msgspec

from ottla.client.admin.routing import HasError
from ottla.client.errors import KafkaError


class ChangeRow(msgspec.Struct, kw_only=True):
    """One thing that changes; `error` says why it did not."""

    subject: str
    before: str | None = None
    after: str | None = None
    error: str | None = None


class Change(msgspec.Struct, kw_only=True):
    """The outcome of a change, or its preview."""

    is_dry_run: bool
    changes: list[ChangeRow]
    warnings: list[str] = []
    command: str
    """The `ottla` command that does the same."""


def command_line(*arguments: str) -> str:
    """Return a command that can be pasted into a shell, whatever names it has in it."""
    return shlex.join(["ottla", *arguments])


def raise_if_all_failed(outcomes: Sequence[HasError]) -> None:
    """Raise the first error if nothing was changed; if a part was, the rows of the answer say which."""
    errors = [each.error for each in outcomes]
    if errors and None not in errors:
        raise cast("KafkaError", errors[0])
