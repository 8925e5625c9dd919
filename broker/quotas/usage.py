"""Quotas on rates: the usage of clients with a limit is counted, and clients beyond their limit must wait.

Nothing is counted for clients without a limit. Usage is forgotten after an hour without requests, and the least recent
usage is forgotten if there are too many entries: clients choose their client ids, which must not cost memory without
end.
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
    """The window over which usage is measured."""

    samples: int = 11
    sample_ms: float = 1000.0

    @property
    def full_seconds(self) -> float:
        """The length of the complete samples."""
        return (self.samples - 1) * self.sample_ms / 1000


class UsageRow(NamedTuple):
    """The usage of one entity, for metrics."""

    user: str
    client_id: str
    value: float
    throttle_ms: float


class _Used(Generic[C]):
    """What one entity has used, and how long it was throttled."""

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
        # Read for each request: whether any limit is set.
        self.is_set = False
        self.windows = windows
        self.clock_ms = clock_ms
        self.lock = threading.Lock()
        self._make = make
        self._used: OrderedDict[Entity, _Used[C]] = OrderedDict()

    def set_limits(self, limits: QuotaLimits) -> None:
        """Apply other limits from now on; the usage so far stays counted."""
        self.limits = limits
        self.is_set = bool(limits)
        if not limits:
            with self.lock:
                self._used.clear()

    def limit_of(self, session: Session, client_id: str) -> Limit | None:
        """Return the limit of a client."""
        return self.limits.of(session.principal, client_id)

    def used(self, usage: Entity, now_ms: float) -> _Used[C]:
        """Return the counter of an entity, and forget unused ones."""
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
        """Return every counter, the most recently used first."""
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
        """Count what a client has used; return for how many milliseconds it must wait."""
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
        """Count an amount and return 0, or count nothing and return for how many milliseconds the client must wait.

        An amount beyond the limit by itself is allowed if nothing came before it. Otherwise it would never be.
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
        """Return what a client may use in a whole window; None if it has no limit."""
        limit = self.limit_of(session, client_id)
        return None if limit is None else limit.value * self.windows.full_seconds

    def rows(self) -> Iterator[UsageRow]:
        """Yield the rate and the average throttle time of each entity."""
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
        """Take tokens for a change; return whether it is allowed, and for how many milliseconds to wait.

        If `strict`, a client in debt gets nothing more and nothing is counted. Otherwise everything is allowed and
        counted.
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
        """Yield the tokens and the average throttle time of each entity."""
        now_ms = self.clock_ms()
        for entity, used in self.items():
            limit = self.limits.find(entity.user or "", entity.client_id or "")
            with self.lock:
                tokens = used.counter.tokens(limit.value, now_ms) if limit is not None else 0.0
                yield _row(entity, tokens, used.average_throttle_ms(now_ms))


def _row(entity: Entity, value: float, throttle_ms: float) -> UsageRow:
    return UsageRow(desanitized(entity.user or ""), desanitized(entity.client_id or ""), value, throttle_ms)
