"""`ottla certify`: whether a cluster does what Kafka's protocol promises, as a report card."""

from __future__ import annotations

import shutil
import textwrap
from typing import TYPE_CHECKING, Annotated, Final

import click

from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.function_commands import Option
from ottla.client.cli.terminal.nouns import noun_app
from ottla.client.cli.terminal.output import confirm, echo, say
from ottla.client.cli.terminal.progress import progress
from ottla.client.cli.terminal.target import Target, command, run

if TYPE_CHECKING:
    from ottla.client.certify.check import Check
    from ottla.client.certify.harm import Harm
    from ottla.client.certify.runner import ReportCard

app = noun_app("certify")

_WIDTH: Final = 79
_WIDTH_MIN: Final = 40
_LEFT_MAX: Final = 10


@command(app)
def certify(
    target: Target,
    only: Annotated[
        list[str] | None, Option("--only", metavar="SUBJECT", help="A subject, or subject/check; can be repeated.")
    ] = None,
    list_checks: Annotated[bool, Option("--list", help="List the checks and run none.")] = False,
    harm_command: Annotated[
        str | None,
        Option(metavar="COMMAND", help="Shell command that stops a broker; {broker} is its id. Enables `failures`."),
    ] = None,
    heal_command: Annotated[
        str | None, Option(metavar="COMMAND", help="Shell command that starts the broker again.")
    ] = None,
    allow_harm: Annotated[bool, Option("--allow-harm", help="Do not ask before the harm command is used.")] = False,
) -> None:
    """Check that a cluster behaves as Kafka does: every API and version, writing, reading, groups, transactions.

    Checks use topics, groups and transactional ids of their own, whose names begin with ottla-certify-, and remove
    them at the end, also after Ctrl-C. Four checks run at a time, each for at most --timeout seconds. A check that
    makes no sense on this cluster is n/a, with the reason. docs/CERTIFY.md says what each one expects.

    Exits with 0 if no check failed, 1 if one did.

    JSON: software, cluster_id, subject, check, holds (what must hold), result (passed, FAILED, n/a), expected, seen,
    reason, seconds.

    \b
    Examples:
      ottla certify -b broker1.example.com:9092
      ottla certify --only transactions --only fetch/session
      ottla certify --harm-command 'docker kill kafka{broker}' --heal-command 'docker start kafka{broker}'
    """
    from ottla.client.certify.runner import selected
    from ottla.client.certify.table import all_checks

    try:
        checks = selected(all_checks(), only or ())
    except ValueError as unknown:
        raise CommandError(f"There is no check {str(unknown)!r}; `ottla certify --list` shows them.", 2) from unknown
    if list_checks:
        _list(target, checks)
        return
    card = _run(target, checks, _harm(harm_command, heal_command, allow_harm))
    if target.is_data:
        cluster = {"software": card.identity.software, "cluster_id": card.identity.cluster_id}
        target.print_items(cluster | result.to_dict() for result in card.results)
    else:
        _show(target, card)
    if _failed(card):
        raise click.exceptions.Exit(1)


def _list(target: Target, checks: list[Check]) -> None:
    if target.is_data:
        target.print_items({"subject": each.subject, "check": each.name, "holds": each.holds} for each in checks)
        return
    for check in checks:
        echo(check.path)
        _wrapped(check.holds, "  ")


def _harm(harm_command: str | None, heal_command: str | None, allow_harm: bool) -> Harm | None:
    from ottla.client.certify.harm import BROKER, Harm

    if harm_command is None:
        if heal_command is not None or allow_harm:
            raise CommandError("Give the command that stops a broker with --harm-command.", 2)
        return None
    if BROKER not in harm_command:
        raise CommandError(f"--harm-command needs {BROKER}, which becomes the id of the broker: {harm_command!r}", 2)
    confirm("The checks of `failures` stop a broker of this cluster twice. Go on?", allow_harm)
    return Harm(harm_command, heal_command)


def _run(target: Target, checks: list[Check], harm: Harm | None) -> ReportCard:
    import asyncio
    import logging
    import signal

    from ottla.client.certify import runner
    from ottla.client.errors import KafkaConfigurationError
    from ottla.client.net.settings import ClientSettings

    try:
        settings = ClientSettings.from_kwargs(target.settings(ClientSettings))
    except KafkaConfigurationError as error:
        raise CommandError(str(error), 2) from error

    async def work() -> ReportCard:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, task.cancel)
        return await runner.certify(
            settings, checks, seconds_max=target.timeout_s, harm=harm, tell=tell, tell_left=_say_left
        )

    # Broken connections are what some checks want.
    log = logging.getLogger("ottla.client.net")
    level = log.level
    log.setLevel(logging.CRITICAL)
    with progress("checking", len(checks)) as tell:
        try:
            return run(work)
        except asyncio.CancelledError as error:
            raise CommandError("Stopped by a signal; what the checks had made is removed.") from error
        finally:
            log.setLevel(level)


def _say_left(card: ReportCard) -> None:
    names = "\n  ".join(sorted(set(card.left))[:_LEFT_MAX])
    say(f"{len(set(card.left))} topics, groups or transactional ids could not be removed:\n  {names}")


def _failed(card: ReportCard) -> bool:
    from ottla.client.certify.runner import Verdict

    return card.count(Verdict.FAILED) > 0


def _show(target: Target, card: ReportCard) -> None:
    from ottla.client.certify.runner import Verdict
    from ottla.client.certify.table import SUBJECTS

    identity = card.identity
    echo(f"software:  {identity.software}")
    echo(f"cluster:   {identity.cluster_id or 'no id'}, {identity.brokers} broker{'s' if identity.brokers > 1 else ''}")
    if identity.features:
        _wrapped(", ".join(identity.features), "features:  ")
    if identity.newer_versions or identity.unknown_apis:
        unknown = [f"API {key}" for key in identity.unknown_apis]
        _wrapped(", ".join([*identity.newer_versions, *unknown]), "unchecked: ")
    echo()
    run_subjects = {result.check.subject for result in card.results}
    verdicts = (Verdict.PASSED, Verdict.FAILED, Verdict.NOT_APPLICABLE)
    rows = [
        (each.subject, *(card.count(verdict, each.subject) for verdict in verdicts), _mark(card, each.subject))
        for each in SUBJECTS
        if each.subject in run_subjects
    ]
    rows.append(("all", *(card.count(verdict) for verdict in verdicts), _mark(card, None)))
    target.show(("SUBJECT", "PASSED", "FAILED", "N/A", "RESULT"), rows, ())
    for result in card.results:
        if result.verdict is Verdict.FAILED:
            echo(f"\n{result.check.path}")
            _wrapped(result.check.holds, "  ")
            _wrapped(result.expected, "  expected: ")
            _wrapped(result.seen, "  seen:     ")
    reasons: dict[str, list[str]] = {}
    for result in card.results:
        if result.verdict is Verdict.NOT_APPLICABLE:
            reasons.setdefault(result.reason, []).append(result.check.path)
    if reasons:
        echo("\nnot applicable:")
    for reason, paths in reasons.items():
        _wrapped(f"{', '.join(paths)}: {reason}", "  ", "    ")
    echo(f"\n{len(card.results)} checks in {card.seconds:.1f} s")


def _mark(card: ReportCard, subject: str | None) -> str:
    from ottla.client.certify.runner import Verdict

    if card.count(Verdict.FAILED, subject):
        return "FAILED"
    return "ok" if card.count(Verdict.PASSED, subject) else "-"


def _wrapped(text: str, start: str, next_start: str | None = None) -> None:
    later = " " * len(start) if next_start is None else next_start
    width = max(_WIDTH_MIN, min(_WIDTH, shutil.get_terminal_size().columns - 1))
    for line in textwrap.wrap(
        text, width, initial_indent=start, subsequent_indent=later, break_long_words=False, break_on_hyphens=False
    ):
        echo(line)
