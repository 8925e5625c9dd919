"""How many events of the audit stream a client may cause, so that it cannot fill a disk, nor hide those of others."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

_PERIOD_SECONDS: Final = 10.0
_EVENTS_PER_PERIOD: Final = 100
# Of clients that were active last; each costs at most the kinds of its last period.
_PRINCIPALS_MAX: Final = 1000


class _Allowance:
    """What one principal has done in its current period."""

    __slots__ = ("ends", "kinds", "left_out")

    def __init__(self) -> None:
        self.ends = float("-inf")
        # Hashes, not the kinds themselves: names in them are chosen by clients, and long.
        self.kinds: set[int] = set()
        self.left_out = 0


class AuditLimits:
    """Admits each kind of event of a principal once in a period, and some kinds in all. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """`monotonic` returns seconds."""
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._by_principal: OrderedDict[str, _Allowance] = OrderedDict()

    def admit(self, principal: str, kind: Hashable) -> int | None:
        """Return how many events of the principal were left out since the last one; None to leave this one out."""
        now, kind_hash = self._monotonic(), hash(kind)
        with self._lock:
            allowance = self._allowance(principal, now)
            if kind_hash in allowance.kinds or len(allowance.kinds) >= _EVENTS_PER_PERIOD:
                allowance.left_out += 1
                return None
            allowance.kinds.add(kind_hash)
            left_out, allowance.left_out = allowance.left_out, 0
            return left_out

    def room(self, principal: str) -> int:
        """Return how many more kinds of events of the principal `admit` admits in this period."""
        now = self._monotonic()
        with self._lock:
            return _EVENTS_PER_PERIOD - len(self._allowance(principal, now).kinds)

    def leave_out(self, principal: str, count: int) -> None:
        """Count events for which there is no room."""
        now = self._monotonic()
        with self._lock:
            self._allowance(principal, now).left_out += count

    def _allowance(self, principal: str, now: float) -> _Allowance:
        allowance = self._by_principal.get(principal)
        if allowance is None:
            allowance = self._by_principal[principal] = _Allowance()
            if len(self._by_principal) > _PRINCIPALS_MAX:
                self._by_principal.popitem(last=False)
        else:
            self._by_principal.move_to_end(principal)
        if now >= allowance.ends:
            allowance.kinds.clear()
            allowance.ends = now + _PERIOD_SECONDS
        return allowance
