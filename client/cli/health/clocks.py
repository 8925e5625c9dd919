"""Whether the clocks of brokers agree with ours.

Kafka's protocol has no field for the current time, but the HTTP responses of a broker do, to the second. If a broker
serves no HTTP, or this host cannot reach it, its clock is unknown.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Final

from ottla.client.admin.results import BrokerDescription
from ottla.client.cli.health.findings import Finding, Status
from ottla.client.cli.health.http_pages import get_page, page_url

_CHECK: Final = "clocks"
_PAGE: Final = "/health/live"
_TIMEOUT_S: Final = 3.0
# The Date header has whole seconds, and the response takes part of a second to arrive.
_APART_S_MAX: Final = 3.0


async def compare_clocks(
    brokers: Sequence[BrokerDescription], listeners: Mapping[int, str], now: Callable[[], float] = time.time
) -> Finding:
    """Ask each broker that serves HTTP for its time."""

    async def ahead(broker: BrokerDescription) -> float | None:
        listener = listeners.get(broker.broker_id)
        if not listener:
            return None
        return await asyncio.to_thread(seconds_ahead, page_url(listener, broker.host, _PAGE), now)

    answers = await asyncio.gather(*map(ahead, brokers))
    return clock_finding({broker.broker_id: answer for broker, answer in zip(brokers, answers, strict=True)})


def seconds_ahead(url: str, now: Callable[[], float] = time.time) -> float | None:
    """Return how many seconds the clock of an HTTP server is ahead of ours; None if it does not send its time."""
    try:
        asked_at = now()
        with get_page(url, _TIMEOUT_S) as response:
            told = parsedate_to_datetime(response.headers["Date"]).timestamp()
        # Add half a second for the missing fraction, and half of the round trip.
        return told + 0.5 - (asked_at + now()) / 2
    except (OSError, TypeError, ValueError):
        return None


def clock_finding(ahead: Mapping[int, float | None]) -> Finding:
    """Judge the clocks of brokers by how much they are ahead of ours; None means unknown."""
    known = {broker_id: seconds for broker_id, seconds in ahead.items() if seconds is not None}
    silent = [broker_id for broker_id in ahead if broker_id not in known]
    unknown = f"not compared: {_named(silent)} (no HTTP response)" if silent else ""
    wrong = {broker_id: seconds for broker_id, seconds in known.items() if abs(seconds) > _APART_S_MAX}
    if not wrong:
        agreed = f"{_named(list(known))} and this host agree" if known else ""
        return Finding(Status.OK, _CHECK, "; ".join(part for part in (agreed, unknown) if part))
    apart = [
        f"broker {broker_id} is {abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} this host"
        for broker_id, seconds in wrong.items()
    ]
    # If all brokers differ by the same amount, our own clock is wrong.
    is_ours = len(known) > 1 and len(wrong) == len(known) and max(known.values()) - min(known.values()) <= _APART_S_MAX
    where = "this host" if is_ours else f"the host of {_named(list(wrong))}"
    advice = f"Records get wrong timestamps, and are kept too long or not long enough. Set the clock of {where}:"
    found = "; ".join((*apart, *([unknown] if unknown else [])))
    return Finding(Status.WARNING, _CHECK, found, advice, "sudo timedatectl set-ntp true")


def _named(broker_ids: Sequence[int]) -> str:
    return f"broker{'s' if len(broker_ids) > 1 else ''} {', '.join(map(str, broker_ids))}"
