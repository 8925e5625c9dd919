"""The checks of `ottla doctor`, from where the console runs and as the user who asks."""

from __future__ import annotations

import asyncio
import time
from typing import Final, Literal

import msgspec

from ottla.client.cli.health.diagnosis import diagnose
from ottla.client.cli.health.findings import Finding, Status
from ottla.client.cli.terminal.options import default_directory
from ottla.client.errors import KafkaError
from ottla.client.net.settings import ClientSettings
from ottla.console.web.call import Call

_TIMEOUT_S: Final = 25.0
_STATUSES: Final = {Status.OK: "ok", Status.WARNING: "warning", Status.BROKEN: "broken"}


class FindingRow(msgspec.Struct, kw_only=True):
    """The result of one check."""

    status: Literal["ok", "warning", "broken"]
    check: str
    found: str
    advice: str
    change: str
    """The line to write, or the command to run."""


class Diagnosis(msgspec.Struct, kw_only=True):
    """All results, those with problems first."""

    as_of_ms: int
    items: list[FindingRow]
    command: str


async def run_doctor(call: Call) -> Diagnosis:
    """Run the checks of `ottla doctor`, also if no broker answers; that takes some seconds if something is broken."""
    settings = ClientSettings.from_kwargs(call.user.client)
    findings: list[Finding] = []
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            async for finding in diagnose(settings, default_directory()):
                findings.append(finding)
    except TimeoutError:
        findings.append(Finding(Status.WARNING, "doctor", f"not finished within {_TIMEOUT_S:g} s"))
    except KafkaError as error:
        findings.append(Finding(Status.BROKEN, "cluster", str(error)))
    order = {Status.BROKEN: 0, Status.WARNING: 1, Status.OK: 2}
    findings.sort(key=lambda each: order[each.status])
    return Diagnosis(
        as_of_ms=int(time.time() * 1000),
        items=[
            FindingRow(
                status=_STATUSES[each.status],  # type: ignore[arg-type]
                check=each.check,
                found=str(each.found),
                advice=each.advice,
                change=each.change,
            )
            for each in findings
        ],
        command="ottla doctor",
    )
