"""Pages below /inside/v1: found by name, shared for a second, bounded."""

from __future__ import annotations

from typing import Any

from tests.kit.clock import FakeClock

from ottla.broker.common.timings import RequestMetrics
from ottla.broker.observability.inside.pages import InsidePages
from ottla.broker.observability.inside.requests_page import RequestsPage
from ottla.broker.quotas.client_quotas import ClientQuotas
from ottla.protocol.api import Api


class Counting:
    """A page that shows how often it was made."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, subject: str) -> dict[str, Any] | None:
        self.made += 1
        return {"made": self.made, "subject": subject}


def test_pages_are_found_by_version_and_name() -> None:
    """What is not there is not found; the root lists what is."""
    pages = InsidePages({"broker": Counting()}, FakeClock(0.0))
    assert pages("v1") == {"pages": ["broker"]}
    assert pages("v1/other") is None
    assert pages("v2/broker") is None
    assert pages("v1/broker/a/b") == {"made": 1, "subject": "a/b"}


def test_an_answer_is_shared_for_a_second() -> None:
    """Five consoles cost as much as one."""
    clock = FakeClock(100.0)
    page = Counting()
    pages = InsidePages({"broker": page}, clock)
    assert [pages("v1/broker") for _ in range(5)] == [{"made": 1, "subject": ""}] * 5
    clock.now += 1.5
    pages("v1/broker")
    assert page.made == 2


def test_what_is_shared_is_bounded() -> None:
    """Somebody who asks for ever new subjects does not fill the memory."""
    pages = InsidePages({"segments": Counting()}, FakeClock(0.0))
    for number in range(1000):
        pages(f"v1/segments/topic/{number}")
    assert len(pages._kept) <= 64


def test_the_phases_of_requests_add_up() -> None:
    """Shares are of the total time, so that they can be drawn as one bar."""
    metrics = RequestMetrics()
    metrics.observe(Api.FETCH, queue=0.001, local=0.002, remote=0.006, send=0.001)

    class NoQuotas:
        class _None:
            @staticmethod
            def rows() -> list[Any]:
                return []

        produce = fetch = request = _None

    quotas: ClientQuotas = NoQuotas()  # type: ignore[assignment]
    page = RequestsPage(metrics, quotas)("")
    assert page is not None
    (row,) = page["apis"]
    assert (row["api"], row["requests"]) == ("Fetch", "1")
    shares = [round(row[phase]["share"], 3) for phase in ("queue", "local", "remote", "send")]
    assert shares == [0.1, 0.2, 0.6, 0.1]
    assert row["remote"]["mean_ms"] == 6
