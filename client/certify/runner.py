"""Runs checks: each one within a time limit, with connections and names of its own, and cleaned up after.

Several checks run at a time, because many of them wait. Those that stop a broker run at the end, one by one.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from ottla.client.certify.check import Check, CheckFailed, NotApplicable
from ottla.client.certify.harm import Harm
from ottla.client.certify.identity import Identity, identify
from ottla.client.certify.trial import Trial
from ottla.client.errors import KafkaError, UnsupportedVersionError
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.net.settings import ClientSettings

PREFIX: Final = "ottla-certify"
_AT_A_TIME: Final = 4
_CLEAN_SECONDS_MAX: Final = 20.0
_STILL_STOPPED: Final = "the check before it has stopped a broker: give --heal-command as well"
# A check that stops a broker waits for elections and for replicas that catch up.
_HARM_FACTOR: Final = 4


class Verdict(StrEnum):
    """How a check has ended."""

    PASSED = "passed"
    FAILED = "FAILED"
    NOT_APPLICABLE = "n/a"


@dataclass(frozen=True)
class Result:
    """The end of a check. `expected` and `seen` are words about a failure, `reason` says why it does not apply."""

    check: Check
    verdict: Verdict
    expected: str = ""
    seen: str = ""
    reason: str = ""
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return what scripts read."""
        return {
            "subject": self.check.subject,
            "check": self.check.name,
            "holds": self.check.holds,
            "result": str(self.verdict),
            "expected": self.expected,
            "seen": self.seen,
            "reason": self.reason,
            "seconds": round(self.seconds, 3),
        }


@dataclass
class ReportCard:
    """What a run has found. `left` names topics, groups and transactional ids that could not be removed."""

    identity: Identity
    prefix: str
    results: list[Result] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def count(self, verdict: Verdict, subject: str | None = None) -> int:
        """Return how many checks ended like this, in all or in one subject."""
        return sum(each.verdict is verdict and subject in (None, each.check.subject) for each in self.results)


async def certify(
    settings: ClientSettings,
    checks: Sequence[Check],
    *,
    seconds_max: float,
    harm: Harm | None = None,
    tell: Callable[[int], None] = lambda done: None,
    tell_left: Callable[[ReportCard], None] = lambda card: None,
) -> ReportCard:
    """Run checks on a cluster; return the report card, with the results in the order of the checks.

    KafkaError if the cluster cannot be reached. `tell` is called with the number of checks that are done. Whether this
    ends or is cancelled, all that the checks have made is removed; `tell_left` is called if some of it cannot be.
    """
    begun = time.monotonic()
    # Checks tell failures by themselves, and soon.
    settings = replace(settings, request_timeout_ms=min(settings.request_timeout_ms, int(seconds_max * 1000)))
    card = ReportCard(await identify(settings), f"{PREFIX}-{secrets.token_hex(4)}")
    found: dict[str, Result] = {}
    places = asyncio.Semaphore(_AT_A_TIME)

    async def run(check: Check) -> None:
        async with places:
            found[check.path] = await _result(settings, check, card, seconds_max, harm)
        tell(len(found))

    try:
        async with asyncio.TaskGroup() as group:
            for check in checks:
                if not check.harms:
                    group.create_task(run(check))
        is_harmed = False
        for check in checks:
            if check.harms and is_harmed and harm is not None and harm.start is None:
                found[check.path] = Result(check, Verdict.NOT_APPLICABLE, reason=_STILL_STOPPED)
            elif check.harms:
                await run(check)
                is_harmed = True
    finally:
        if card.left:
            tell_left(card)
    card.results = [found[check.path] for check in checks]
    card.seconds = time.monotonic() - begun
    return card


async def _result(
    settings: ClientSettings, check: Check, card: ReportCard, seconds_max: float, harm: Harm | None
) -> Result:
    begun = time.monotonic()
    if reason := _missing(check, card.identity, harm):
        return Result(check, Verdict.NOT_APPLICABLE, reason=reason)
    limit_s = seconds_max * (_HARM_FACTOR if check.harms else 1)
    client = ClusterClient(settings)
    trial = Trial(settings, client, f"{card.prefix}-{check.subject}-{check.name}", harm)
    try:
        result = await _judged(check, trial, limit_s)
    finally:
        await _to_its_end(_clean_up(trial, client, card))
    return replace(result, seconds=time.monotonic() - begun)


async def _judged(check: Check, trial: Trial, limit_s: float) -> Result:
    try:
        async with asyncio.timeout(limit_s):
            await trial.client.start()
            await check.run(trial)
    except CheckFailed as failure:
        return Result(check, Verdict.FAILED, failure.expected, failure.seen)
    except NotApplicable as reason:
        return Result(check, Verdict.NOT_APPLICABLE, reason=str(reason))
    except UnsupportedVersionError as error:
        return Result(check, Verdict.NOT_APPLICABLE, reason=error.detail)
    except TimeoutError:
        waited = f"; it waited for {trial.waiting_for}" if trial.waiting_for else ""
        return Result(check, Verdict.FAILED, f"an end within {limit_s:g} s", f"none{waited}")
    except KafkaError as error:
        return Result(check, Verdict.FAILED, "an answer", error.detail or str(error))
    except (ValueError, IndexError, TypeError) as error:
        # An answer that lacks what every answer of this kind has, such as the row of the topic that was asked about.
        return Result(check, Verdict.FAILED, "a complete answer", f"{type(error).__name__}: {error}")
    return Result(check, Verdict.PASSED)


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Await what a cancellation must not cut short: a run may be stopped while a check is being cleaned up."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


async def _clean_up(trial: Trial, client: ClusterClient, card: ReportCard) -> None:
    card.left += await _cleaned(trial)
    await client.close()


async def _cleaned(trial: Trial) -> list[str]:
    """Remove what a check has made; return what is left."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_CLEAN_SECONDS_MAX):
            return await trial.clean()
    return [trial.prefix]


def _missing(check: Check, identity: Identity, harm: Harm | None) -> str:
    """Return what the cluster lacks for a check; nothing if it has all."""
    if check.harms and harm is None:
        return "needs --harm-command"
    if check.brokers > identity.brokers:
        return f"needs {check.brokers} brokers, the cluster has {identity.brokers}"
    for api, version in check.apis.items():
        offered = identity.versions.get(api)
        if offered is None:
            return "not offered" if api.label == check.name else f"{api.label} is not offered"
        if offered.last < version or offered.first > api.versions.last:
            return f"needs {api.label} {version}, the cluster offers {offered}"
    return ""


def selected(checks: Sequence[Check], names: Collection[str]) -> list[Check]:
    """Return the checks with these subjects or full names, or all if none is given; ValueError for an unknown one."""
    for name in names:
        if not any(name in (check.subject, check.path) for check in checks):
            raise ValueError(name)
    return [check for check in checks if not names or check.subject in names or check.path in names]
