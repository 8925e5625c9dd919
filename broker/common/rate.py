"""How fast something is used: a rate over a sliding window, and a token bucket.

Neither has a clock or a lock. Callers pass the time in milliseconds, and call from one thread at a time.
"""

from __future__ import annotations

from collections import deque


class Rate:
    """Amounts per second over the last `samples_max` samples. The newest sample is still being filled.

    A sample covers `sample_ms` from the first amount in it. The window always counts as at least all samples but one,
    as in Kafka's Rate. Otherwise the first amount after a pause would look like a huge rate.
    """

    __slots__ = ("_sample_ms", "_samples", "_samples_max", "_total")

    def __init__(self, samples_max: int, sample_ms: float) -> None:
        self._samples_max = samples_max
        self._sample_ms = sample_ms
        # The start and the amount of each sample, the oldest first.
        self._samples: deque[list[float]] = deque()
        # The sum of all samples.
        self._total = 0.0

    def record(self, amount: float, now_ms: float) -> None:
        """Count an amount."""
        samples = self._samples
        if samples and now_ms - samples[-1][0] < self._sample_ms:
            samples[-1][1] += amount
        else:
            samples.append([now_ms, amount])
            if len(samples) > self._samples_max:
                self._forget_oldest()
        self._total += amount

    def total(self, now_ms: float) -> float:
        """Return the sum of the amounts in the window."""
        samples = self._samples
        while samples and now_ms - samples[0][0] >= self._samples_max * self._sample_ms:
            self._forget_oldest()
        return self._total

    def elapsed_ms(self, now_ms: float) -> float:
        """Return the time since the oldest sample in the window began; 0 without samples."""
        return now_ms - self._samples[0][0] if self._samples else 0.0

    def _forget_oldest(self) -> None:
        self._total -= self._samples.popleft()[1]
        if not self._samples:
            # Clears rounding errors.
            self._total = 0.0

    def window_ms(self, now_ms: float) -> float:
        """Return the length of the window that `total` covers."""
        elapsed = self.elapsed_ms(now_ms)
        missing = self._samples_max - 1 - int(elapsed // self._sample_ms)
        return max(elapsed + max(missing, 0) * self._sample_ms, 1.0)

    def per_second(self, now_ms: float) -> float:
        """Return the rate."""
        return self.total(now_ms) * 1000 / self.window_ms(now_ms)

    def excess_ms(self, limit: float, now_ms: float, more: float = 0.0) -> float:
        """Return how long to pause until the rate is down to `limit`; 0 if it is within the limit.

        `more` is an amount that is not recorded yet, but counts as if it were.
        """
        total = self.total(now_ms) + more
        window = self.window_ms(now_ms)
        rate = total * 1000 / window
        if rate <= limit:
            return 0.0
        return (rate - limit) / limit * window if limit > 0 else window


class TokenBucket:
    """Allows `limit` a second in the long run, and bursts of `burst_seconds` times that. Callers may go into debt."""

    __slots__ = ("_burst_seconds", "_filled_ms", "_tokens")

    def __init__(self, burst_seconds: float) -> None:
        self._burst_seconds = burst_seconds
        # None while the bucket is full because nothing was taken yet.
        self._filled_ms: float | None = None
        self._tokens = 0.0

    def tokens(self, limit: float, now_ms: float) -> float:
        """Return the tokens left; negative while in debt."""
        burst = self._burst_seconds * limit
        if self._filled_ms is None:
            self._tokens = burst
        else:
            self._tokens = min(burst, self._tokens + limit * (now_ms - self._filled_ms) / 1000)
        self._filled_ms = now_ms
        return self._tokens

    def take(self, amount: float, limit: float, now_ms: float) -> None:
        """Take tokens, even more than there are."""
        self.tokens(limit, now_ms)
        self._tokens -= amount

    def debt_ms(self, limit: float, now_ms: float) -> float:
        """Return how long it takes to pay back the debt; 0 without one."""
        tokens = self.tokens(limit, now_ms)
        return -tokens / limit * 1000 if tokens < 0 else 0.0
