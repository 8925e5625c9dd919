"""How much of something was used lately: as a rate over a sliding window, and as a bucket of tokens.

Both are pure: whoever uses them tells the time, in milliseconds, and keeps other threads out.
"""

from __future__ import annotations

from collections import deque


class Rate:
    """Amounts per second over the last samples, of which the newest is being filled.

    A sample begins with the first amount that the one before it is too old for. The window is never taken as shorter
    than all samples but one: else the first amount after a pause would look like a huge rate.
    """

    __slots__ = ("_sample_ms", "_samples", "_samples_max", "_total")

    def __init__(self, samples_max: int, sample_ms: float) -> None:
        self._samples_max = samples_max
        self._sample_ms = sample_ms
        # When each began, and what came in it.
        self._samples: deque[list[float]] = deque()
        # Of all samples.
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
        """Return what is in the window."""
        samples = self._samples
        while samples and now_ms - samples[0][0] >= self._samples_max * self._sample_ms:
            self._forget_oldest()
        return self._total

    def _forget_oldest(self) -> None:
        self._total -= self._samples.popleft()[1]
        if not self._samples:
            # What rounding left over.
            self._total = 0.0

    def window_ms(self, now_ms: float) -> float:
        """Return the length of the window that `total` is about."""
        elapsed = now_ms - self._samples[0][0] if self._samples else 0.0
        missing = self._samples_max - 1 - int(elapsed // self._sample_ms)
        return max(elapsed + max(missing, 0) * self._sample_ms, 1.0)

    def per_second(self, now_ms: float) -> float:
        """Return the rate."""
        return self.total(now_ms) * 1000 / self.window_ms(now_ms)

    def excess_ms(self, limit: float, now_ms: float, more: float = 0.0) -> float:
        """Return for how long nothing may come until the rate is `limit` again; with `more` as if it had come.

        Zero where the rate is within the limit.
        """
        total = self.total(now_ms) + more
        window = self.window_ms(now_ms)
        rate = total * 1000 / window
        if rate <= limit:
            return 0.0
        return (rate - limit) / limit * window if limit > 0 else window


class TokenBucket:
    """Allows bursts of as much as a whole window has, and `limit` a second in the long run; debts are possible."""

    __slots__ = ("_burst_seconds", "_filled_ms", "_tokens")

    def __init__(self, burst_seconds: float) -> None:
        self._burst_seconds = burst_seconds
        # Full until something is taken.
        self._filled_ms: float | None = None
        self._tokens = 0.0

    def tokens(self, limit: float, now_ms: float) -> float:
        """Return what is there; negative while more was taken than there was."""
        burst = self._burst_seconds * limit
        if self._filled_ms is None:
            self._tokens = burst
        else:
            self._tokens = min(burst, self._tokens + limit * (now_ms - self._filled_ms) / 1000)
        self._filled_ms = now_ms
        return self._tokens

    def take(self, amount: float, limit: float, now_ms: float) -> None:
        """Take tokens, also some that are not there."""
        self.tokens(limit, now_ms)
        self._tokens -= amount

    def debt_ms(self, limit: float, now_ms: float) -> float:
        """Return how long it takes until nothing is owed any more."""
        tokens = self.tokens(limit, now_ms)
        return -tokens / limit * 1000 if tokens < 0 else 0.0
