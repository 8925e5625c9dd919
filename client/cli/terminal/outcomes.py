"""Print the results of commands that act on several things."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import click

from ottla.client.cli.terminal.errors import explained
from ottla.client.cli.terminal.output import error
from ottla.client.cli.terminal.target import Target

if TYPE_CHECKING:
    from ottla.client.errors.kafka_error import KafkaError


class AdminOutcome(Protocol):
    """What Admin returns for each thing that a call acts on."""

    @property
    def error(self) -> KafkaError | None: ...

    def to_dict(self) -> dict[str, Any]: ...


def show_outcomes(target: Target, heading: str, outcomes: Sequence[tuple[str, AdminOutcome]], done: str) -> None:
    """Print results to standard output and errors to standard error; exit with 1 if there are errors."""
    if target.is_data:
        target.print_items(outcome.to_dict() for _, outcome in outcomes)
    elif any(outcome.error is None for _, outcome in outcomes):
        rows = [(name, done) for name, outcome in outcomes if outcome.error is None]
        target.show((heading, "STATUS"), rows, ())
    tell_errors([outcome for _, outcome in outcomes])


def tell_errors(outcomes: Sequence[AdminOutcome], *, is_change: bool = True) -> None:
    """Print errors to standard error, equal texts once; exit with 1 if there are any."""
    told = [explained(outcome.error, is_change=is_change) for outcome in outcomes if outcome.error is not None]
    for each in dict.fromkeys(told):
        error(each)
    if told:
        raise click.exceptions.Exit(1)
