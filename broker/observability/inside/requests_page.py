"""Where the time of requests goes: in the queue, on a worker, waiting for others, and on sending; and in throttling."""

from __future__ import annotations

from typing import Any, Final

from ottla.broker.common.timings import ApiTimings, RequestMetrics, Timing
from ottla.broker.quotas.client_quotas import ClientQuotas

_PHASES: Final = ("queue", "local", "remote", "send", "total")


class RequestsPage:
    """Reads the histograms of one broker."""

    def __init__(self, requests: RequestMetrics, quotas: ClientQuotas) -> None:
        self._requests = requests
        self._quotas = quotas

    def __call__(self, subject: str) -> dict[str, Any] | None:
        """Return the page; there is only one."""
        if subject:
            return None
        quotas = self._quotas
        throttled = {
            kind: max((row.throttle_ms for row in quota.rows()), default=0.0)
            for kind, quota in (("produce", quotas.produce), ("fetch", quotas.fetch), ("request", quotas.request))
        }
        by_api = dict(self._requests.by_api)
        return {
            "apis": [{"api": api.label, **_row(timings)} for api, timings in by_api.items()],
            "throttled": throttled,
        }


def _row(timings: ApiTimings) -> dict[str, Any]:
    requests = timings.requests
    total_seconds = timings.total.total_seconds
    phases = {name: _phase(getattr(timings, name), requests, total_seconds) for name in _PHASES}
    return {"requests": str(requests), **phases}


def _phase(timing: Timing, requests: int, total_seconds: float) -> dict[str, float]:
    return {
        "mean_ms": timing.total_seconds / requests * 1000 if requests else 0.0,
        "p50_ms": timing.quantile(0.5, requests) * 1000,
        "p99_ms": timing.quantile(0.99, requests) * 1000,
        "share": timing.total_seconds / total_seconds if total_seconds else 0.0,
    }
