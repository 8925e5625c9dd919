"""What the broker counts: requests by API with the times of their phases.

Counting happens on the workers for each request, so it is a few additions under one lock; the names and forms that
monitoring wants are made when somebody asks.
"""

from __future__ import annotations

import threading
from bisect import bisect_left

from ottla.protocol.api import Api

# Upper ends of the buckets in seconds, a factor of about 1.5 apart: 10 µs to 60 s.
BUCKETS = tuple(round(1e-5 * 1.5**index, 9) for index in range(39))


class Timing:
    """How long something took each time, such as one phase of the requests of one API."""

    __slots__ = ("counts", "total_seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total_seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total_seconds += seconds

    def include(self, other: Timing) -> None:
        """Count all that another one has counted."""
        self.counts = [own + more for own, more in zip(self.counts, other.counts, strict=True)]
        self.total_seconds += other.total_seconds

    def quantile(self, share: float, requests: int) -> float:
        """Return the time, in seconds, that `share` of so many requests did not pass; the upper end of a bucket.

        Requests that did not have this phase are not in the buckets: they took no time.
        """
        counted = sum(self.counts)
        seen = max(requests - counted, 0)
        if not counted or seen >= share * requests:
            return 0.0
        for upper, count in zip(BUCKETS, self.counts, strict=False):
            seen += count
            if seen >= share * requests:
                return upper
        return BUCKETS[-1]


class ApiTimings:
    """The phases of the requests of one API."""

    __slots__ = ("local", "queue", "remote", "requests", "send", "total")

    def __init__(self) -> None:
        self.requests = 0
        self.queue = Timing()
        self.local = Timing()
        self.remote = Timing()
        self.send = Timing()
        self.total = Timing()


class RequestMetrics:
    """Requests by API. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.by_api: dict[Api, ApiTimings] = {}

    def observe(self, api: Api, queue: float, local: float, remote: float, send: float) -> None:
        """Count a request with the seconds it waited for a worker, was handled, waited in purgatory, was sent."""
        with self._lock:
            timings = self.by_api.get(api)
            if timings is None:
                timings = self.by_api[api] = ApiTimings()
            timings.requests += 1
            timings.queue.add(queue)
            timings.local.add(local)
            if remote:
                timings.remote.add(remote)
            timings.send.add(send)
            timings.total.add(queue + local + remote + send)

    def handling_seconds(self) -> float:
        """Return the time that workers have spent on all requests so far."""
        with self._lock:
            return sum(timings.local.total_seconds for timings in self.by_api.values())
