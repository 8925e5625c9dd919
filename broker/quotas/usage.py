"""Quotas on rates: what clients use is counted for those who have a limit, and who is beyond it is to wait.

Nothing is counted where nothing is set. What has not been used for an hour is forgotten, and so is what was used
longest ago where there is too much of it: client ids are the clients' choice, and must not cost memory without end.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from ottla.broker.common.clocks import monotonic_ms
from ottla.broker.common.rate import Rate, TokenBucket
from ottla.broker.quotas.limits import NO_LIMITS, Entity, Limit, QuotaLimits
from ottla.protocol.entity_names import desanitized

if TYPE_CHECKING:
    from ottla.broker.security.session import Session

_IDLE_MS_MAX: Final = 3600 * 1000.0
_ENTITIES_MAX: Final = 10_000

C = TypeVar("C")


class Windows(NamedTuple):
    """How long usage is looked back on."""

    samples: int = 11
    sample_ms: float = 1000.0

    @property
    def full_seconds(self) -> float:
        """What is in the samples that are complete."""
        return (self.samples - 1) * self.sample_ms / 1000


class UsageRow(NamedTuple):
    """What one entity uses, for those who watch the broker."""

    user: str
    client_id: str
    value: float
    throttle_ms: float


class _Used(Generic[C]):
    """What one entity has used, and how long it was made to wait."""

    __slots__ = ("counter", "last_ms", "throttle_count", "throttle_ms")

    def __init__(self, counter: C, windows: Windows, now_ms: float) -> None:
        self.counter = counter
        self.last_ms = now_ms
        self.throttle_ms = Rate(*windows)
        self.throttle_count = Rate(*windows)

    def throttled(self, throttle_ms: int, now_ms: float) -> None:
        if throttle_ms:
            self.throttle_ms.record(throttle_ms, now_ms)
            self.throttle_count.record(1, now_ms)

    def average_throttle_ms(self, now_ms: float) -> float:
        count = self.throttle_count.total(now_ms)
        return self.throttle_ms.total(now_ms) / count if count else 0.0


class _Usage(Generic[C]):
    """The counters of all entities that have a limit, the least recently used first. The caller holds `lock`."""

    def __init__(self, windows: Windows, clock_ms: Callable[[], float], make: Callable[[], C]) -> None:
        self.limits = NO_LIMITS
        # Looked at for each request: whether anything is set at all.
        self.is_set = False
        self.windows = windows
        self.clock_ms = clock_ms
        self.lock = threading.Lock()
        self._make = make
        self._used: OrderedDict[Entity, _Used[C]] = OrderedDict()

    def set_limits(self, limits: QuotaLimits) -> None:
        """Have other limits from now on; what was used stays counted."""
        self.limits = limits
        self.is_set = bool(limits)
        if not limits:
            with self.lock:
                self._used.clear()

    def limit_of(self, session: Session, client_id: str) -> Limit | None:
        """Return what holds for a client."""
        return self.limits.of(session.principal, client_id)

    def used(self, usage: Entity, now_ms: float) -> _Used[C]:
        """Return the counter of an entity, and forget those that nobody uses."""
        entries = self._used
        found = entries.get(usage)
        if found is None:
            found = entries[usage] = _Used(self._make(), self.windows, now_ms)
        entries.move_to_end(usage)
        found.last_ms = now_ms
        while len(entries) > _ENTITIES_MAX or now_ms - next(iter(entries.values())).last_ms > _IDLE_MS_MAX:
            entries.popitem(last=False)
        return found

    def __len__(self) -> int:
        return len(self._used)

    def items(self) -> list[tuple[Entity, _Used[C]]]:
        """Every counter, the most recently used first."""
        with self.lock:
            return list(reversed(self._used.items()))


class RateQuota(_Usage[Rate]):
    """A quota on an amount per second. Thread-safe."""

    def __init__(
        self,
        windows: Windows = Windows(),  # noqa: B008 - a value
        clock_ms: Callable[[], float] = monotonic_ms,
        *,
        throttle_ms_max: float = float("inf"),
    ) -> None:
        super().__init__(windows, clock_ms, lambda: Rate(*windows))
        self._throttle_ms_max = throttle_ms_max

    def record(self, session: Session, client_id: str, amount: float) -> int:
        """Count what a client has used; return for how many milliseconds it is to wait."""
        limit = self.limit_of(session, client_id)
        if limit is None:
            return 0
        now_ms = self.clock_ms()
        with self.lock:
            used = self.used(limit.usage, now_ms)
            used.counter.record(amount, now_ms)
            throttle_ms = round(min(used.counter.excess_ms(limit.value, now_ms), self._throttle_ms_max))
            used.throttled(throttle_ms, now_ms)
        return throttle_ms

    def admit(self, session: Session, client_id: str, amount: float) -> int:
        """Count an amount and return 0, or count nothing and return for how many milliseconds a client is to wait.

        An amount that is beyond the limit by itself is let through when nothing came before it, or it never would be.
        """
        limit = self.limit_of(session, client_id)
        if limit is None:
            return 0
        now_ms = self.clock_ms()
        with self.lock:
            used = self.used(limit.usage, now_ms)
            throttle_ms = round(used.counter.excess_ms(limit.value, now_ms, amount))
            if throttle_ms == 0 or used.counter.total(now_ms) == 0:
                used.counter.record(amount, now_ms)
                return 0
            used.throttled(throttle_ms, now_ms)
        return throttle_ms

    def window_amount(self, session: Session, client_id: str) -> float | None:
        """Return what a client may use in a whole window; None where it has no limit."""
        limit = self.limit_of(session, client_id)
        return None if limit is None else limit.value * self.windows.full_seconds

    def rows(self) -> Iterator[UsageRow]:
        """Rate and average throttle time of each entity."""
        now_ms = self.clock_ms()
        for entity, used in self.items():
            with self.lock:
                yield _row(entity, used.counter.per_second(now_ms), used.average_throttle_ms(now_ms))


class MutationQuota(_Usage[TokenBucket]):
    """The quota on partitions created and deleted. Thread-safe."""

    def __init__(
        self,
        windows: Windows = Windows(),  # noqa: B008 - a value
        clock_ms: Callable[[], float] = monotonic_ms,
    ) -> None:
        burst_seconds = windows.samples * windows.sample_ms / 1000
        super().__init__(windows, clock_ms, lambda: TokenBucket(burst_seconds))

    def take(self, session: Session, client_id: str, partitions: int, *, strict: bool) -> tuple[bool, int]:
        """Take tokens for a change; return whether it may be done, and for how many milliseconds to wait.

        Strict: while something is owed, nothing more is given, and nothing is counted. Else all is done and counted.
        """
        limit = self.limit_of(session, client_id)
        if limit is None:
            return True, 0
        now_ms = self.clock_ms()
        with self.lock:
            used = self.used(limit.usage, now_ms)
            bucket = used.counter
            if strict and (debt_ms := round(bucket.debt_ms(limit.value, now_ms))):
                used.throttled(debt_ms, now_ms)
                return False, debt_ms
            bucket.take(partitions, limit.value, now_ms)
            throttle_ms = 0 if strict else round(bucket.debt_ms(limit.value, now_ms))
            used.throttled(throttle_ms, now_ms)
        return True, throttle_ms

    def rows(self) -> Iterator[UsageRow]:
        """Tokens and average throttle time of each entity."""
        now_ms = self.clock_ms()
        for entity, used in self.items():
            limit = self.limits.find(entity.user or "", entity.client_id or "")
            with self.lock:
                tokens = used.counter.tokens(limit.value, now_ms) if limit is not None else 0.0
                yield _row(entity, tokens, used.average_throttle_ms(now_ms))


def _row(entity: Entity, value: float, throttle_ms: float) -> UsageRow:
    return UsageRow(desanitized(entity.user or ""), desanitized(entity.client_id or ""), value, throttle_ms)
