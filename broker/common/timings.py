"""Counters of requests by API, with histograms of the time spent in each phase.

Workers count each request, so counting is only a few additions under one lock. The names and formats for monitoring are
made when somebody reads the metrics.
"""

from __future__ import annotations

import threading
from bisect import bisect_left

from ottla.protocol.api import Api

# Upper bounds of the buckets in seconds, from 10 µs to 60 s, each about 1.5 times the one before.
BUCKETS = tuple(round(1e-5 * 1.5**index, 9) for index in range(39))


class Timing:
    """A histogram of durations, for example of one phase of the requests of one API."""

    __slots__ = ("counts", "total_seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total_seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total_seconds += seconds

    def include(self, other: Timing) -> None:
        """Add everything that another histogram has counted."""
        self.counts = [own + more for own, more in zip(self.counts, other.counts, strict=True)]
        self.total_seconds += other.total_seconds

    def quantile(self, share: float, requests: int) -> float:
        """Return the time in seconds within which `share` of the requests finished: the upper bound of a bucket.

        `requests` is the number of all requests. Those without this phase are in no bucket and count as 0 seconds.
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
    """The times of the requests of one API, by phase."""

    __slots__ = ("local", "queue", "remote", "requests", "send", "total")

    def __init__(self) -> None:
        self.requests = 0
        self.queue = Timing()
        self.local = Timing()
        self.remote = Timing()
        self.send = Timing()
        self.total = Timing()


class RequestMetrics:
    """The timings of all APIs. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.by_api: dict[Api, ApiTimings] = {}

    def observe(self, api: Api, queue: float, local: float, remote: float, send: float) -> None:
        """Count a request with the seconds spent in the queue, on a worker, in purgatory and on sending."""
        timings = self.by_api.get(api) or self._begin(api)
        total = queue + local + remote + send
        with self._lock:
            timings.requests += 1
            timings.queue.counts[bisect_left(BUCKETS, queue)] += 1
            timings.queue.total_seconds += queue
            timings.local.counts[bisect_left(BUCKETS, local)] += 1
            timings.local.total_seconds += local
            if remote:
                timings.remote.add(remote)
            timings.send.counts[bisect_left(BUCKETS, send)] += 1
            timings.send.total_seconds += send
            timings.total.counts[bisect_left(BUCKETS, total)] += 1
            timings.total.total_seconds += total

    def _begin(self, api: Api) -> ApiTimings:
        with self._lock:
            return self.by_api.setdefault(api, ApiTimings())

    def handling_seconds(self) -> float:
        """Return the total time that workers have spent on requests."""
        with self._lock:
            return sum(timings.local.total_seconds for timings in self.by_api.values())
