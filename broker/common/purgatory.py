"""A place for operations that have to wait: a fetch waits for records, a produce for the replicas.

An operation is watched under keys. Code that changes the state behind a key calls `check(key)`, which completes the
operations under that key that are satisfied now. A deadline completes the others. Each operation is completed exactly
once, by whichever comes first. A waiting operation costs only the memory of its entries: there is no polling, and one
thread handles all deadlines.

A client that waits for the same keys again and again, as a follower does for all that it copies, has a standing watch:
its keys are registered once, and it is told which of them were checked. So a round costs as much as what has changed.

The state may change after an operation has looked at it and before it is watched. `check` would not find it then. So
`watch` asks it once more: about everything, or, if the operation took a `mark` before it looked, only about the keys
that were checked since.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import nullcontext
from itertools import count

import structlog

from ottla.broker.common.turn import Turn

log = structlog.get_logger(__name__)

# How many checked keys and marks are remembered.
_RECENT_MAX = 256


class Mark:
    """A point in the sequence of checked keys."""

    __slots__ = ()


class DelayedOperation:
    """Something that will be complete later. Subclasses say when, and what to do then."""

    __slots__ = ("_is_complete", "_lock", "keys", "standing")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_complete = False
        self.keys: tuple[Hashable, ...] = ()
        # Whose keys are watched for this operation, apart from its own.
        self.standing: StandingWatch | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the operation has been completed."""
        return self._is_complete

    def is_satisfied(self) -> bool:
        """Whether the awaited state is there. It must be cheap: any thread may call it, and often."""
        raise NotImplementedError

    def is_satisfied_by(self, key: Hashable) -> bool:
        """Whether the operation is satisfied after a change behind one of its keys."""
        return self.is_satisfied()

    def on_complete(self, *, expired: bool) -> None:
        """Finish the operation, for example send the response. Called exactly once, from any thread."""
        raise NotImplementedError

    def complete(self, *, expired: bool = False) -> bool:
        """Complete the operation, unless it already is; return whether this call completed it."""
        with self._lock:
            if self._is_complete:
                return False
            self._is_complete = True
        self.on_complete(expired=expired)
        return True


class StandingWatch:
    """Keys that are watched for one operation after another. Made by `Purgatory.stand`.

    Take what has changed, look at it, and wait: what is checked in between is among the changes when an operation
    begins to wait, which is asked about them then, and they stay there for the next `take`. A key counts from the
    moment it is added, so add it before you look.
    """

    __slots__ = ("_purgatory", "changed", "keys", "operations")

    def __init__(self, purgatory: Purgatory) -> None:
        self._purgatory = purgatory
        # All of it is changed under the lock of the purgatory.
        self.keys: set[Hashable] = set()
        self.changed: dict[Hashable, None] = {}
        self.operations: dict[DelayedOperation, None] = {}

    def __len__(self) -> int:
        return len(self.keys)

    def add(self, keys: Iterable[Hashable]) -> None:
        """Watch more keys."""
        self._purgatory.add_to(self, keys)

    def discard(self, keys: Iterable[Hashable]) -> None:
        """Watch some keys no longer."""
        self._purgatory.discard_from(self, keys)

    def take(self) -> Iterable[Hashable]:
        """Return the keys that were checked since they were taken last."""
        return self._purgatory.take_from(self) if self.changed else ()

    def close(self) -> None:
        """Watch nothing more. An operation that waits is completed when its time is over."""
        self.discard(tuple(self.keys))


class Purgatory:
    """Operations by key and by deadline. Thread-safe; its lock is never held while an operation's methods run."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self._clock = clock
        self._lock = threading.Lock()
        # Notified when the first deadline changes.
        self._changed = threading.Condition(self._lock)
        self._watchers: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._standing: dict[Hashable, dict[StandingWatch, None]] = {}
        self._deadlines: list[tuple[float, int, DelayedOperation]] = []
        self._order = count()
        self._recent: deque[Hashable] = deque(maxlen=_RECENT_MAX)
        # How many operations wait.
        self.waiting = 0
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name=f"purgatory-{name}", daemon=True)

    def __len__(self) -> int:
        return self.waiting

    def start(self) -> None:
        """Start the thread that handles deadlines."""
        self._thread.start()

    def stop(self) -> None:
        """Complete all waiting operations as expired, and stop."""
        with self._lock:
            self._is_stopped = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()
        self.expire(float("inf"))

    def mark(self) -> Mark:
        """Return a mark for `watch`; take it before you look whether to wait."""
        mark = Mark()
        self._recent.append(mark)
        return mark

    def stand(self) -> StandingWatch:
        """Return a standing watch, of no keys yet."""
        return StandingWatch(self)

    def add_to(self, standing: StandingWatch, keys: Iterable[Hashable]) -> None:
        """Watch more keys; `StandingWatch.add`."""
        with self._lock:
            for key in keys:
                standing.keys.add(key)
                self._standing.setdefault(key, {})[standing] = None

    def discard_from(self, standing: StandingWatch, keys: Iterable[Hashable]) -> None:
        """Watch some keys no longer; `StandingWatch.discard`."""
        with self._lock:
            for key in keys:
                standing.keys.discard(key)
                standing.changed.pop(key, None)
                others = self._standing.get(key)
                if others is not None:
                    others.pop(standing, None)
                    if not others:
                        del self._standing[key]

    def take_from(self, standing: StandingWatch) -> Iterable[Hashable]:
        """Return what was checked; `StandingWatch.take`."""
        with self._lock:
            changed, standing.changed = standing.changed, {}
        return changed

    def watch(
        self,
        operation: DelayedOperation,
        keys: Iterable[Hashable],
        timeout_seconds: float,
        since: Mark | None = None,
        standing: StandingWatch | None = None,
    ) -> None:
        """Let an operation wait, unless it is satisfied by now. It may be complete when this returns.

        `since` is a mark that was taken before the caller looked whether the operation has to wait. With a standing
        watch, the operation waits for its keys, and only those that have changed are asked about.
        """
        operation.keys = tuple(keys)
        operation.standing = standing
        deadline = self._clock() + timeout_seconds
        with self._lock:
            self.waiting += 1
            for key in operation.keys:
                self._watchers.setdefault(key, {})[operation] = None
            changed: tuple[Hashable, ...] = ()
            if standing is not None:
                standing.operations[operation] = None
                changed = tuple(standing.changed)
            is_first = not self._deadlines or deadline < self._deadlines[0][0]
            heapq.heappush(self._deadlines, (deadline, next(self._order), operation))
            if is_first:
                self._changed.notify()
        if standing is None:
            is_satisfied = self._is_satisfied_since(operation, since)
        else:
            is_satisfied = any(operation.is_satisfied_by(key) for key in changed)
        if is_satisfied:
            self._finish([operation], expired=False)

    def _is_satisfied_since(self, operation: DelayedOperation, since: Mark | None) -> bool:
        if since is None:
            return operation.is_satisfied()
        keys: set[Hashable] = set()
        for key in reversed(list(self._recent)):
            if key is since:
                return any(operation.is_satisfied_by(key) for key in keys)
            if operation in self._watchers.get(key, ()):
                keys.add(key)
        return operation.is_satisfied()

    def check(self, key: Hashable) -> int:
        """Complete the operations under a key that are satisfied now; return their number."""
        self._recent.append(key)
        if key not in self._watchers and key not in self._standing:
            return 0
        with self._lock:
            candidates = list(self._watchers.get(key, ()))
            for standing in self._standing.get(key, ()):
                standing.changed[key] = None
                candidates += standing.operations
        return self._finish([operation for operation in candidates if self._is_due(operation, key)], expired=False)

    def _is_due(self, operation: DelayedOperation, key: Hashable) -> bool:
        """Whether an operation is satisfied now. It is also due if it raises, so that its caller gets an answer."""
        try:
            return operation.is_satisfied_by(key)
        except Exception:  # the thread that called `check` is not to blame
            log.exception("delayed_operation_failed", purgatory=self.name)
            return True

    def expire(self, now: float) -> int:
        """Complete the operations whose deadline has passed; return their number."""
        with self._lock:
            due = []
            while self._deadlines and (self._deadlines[0][0] <= now or self._deadlines[0][2].is_complete):
                due.append(heapq.heappop(self._deadlines)[2])
        return self._finish(due, expired=True)

    def _finish(self, operations: Sequence[DelayedOperation], *, expired: bool) -> int:
        """Complete operations; return how many this call completed. Entries are removed after all are answered."""
        # Several of them may have the same client.
        with Turn() if len(operations) > 1 else nullcontext():
            finished = [operation for operation in operations if self._complete(operation, expired=expired)]
        for operation in finished:
            self._forget(operation)
        return len(finished)

    def _complete(self, operation: DelayedOperation, *, expired: bool) -> bool:
        try:
            return operation.complete(expired=expired)
        except Exception:  # one operation must stop neither the others nor the thread
            log.exception("delayed_operation_failed", purgatory=self.name)
            return True

    def _forget(self, operation: DelayedOperation) -> None:
        with self._lock:
            self.waiting -= 1
            for key in operation.keys:
                watchers = self._watchers.get(key)
                if watchers is not None:
                    watchers.pop(operation, None)
                    if not watchers:
                        del self._watchers[key]
            if operation.standing is not None:
                operation.standing.operations.pop(operation, None)
            # Completed operations leave the heap when they reach its top. If there are many, sweep them out.
            if len(self._deadlines) > 2 * self.waiting + 1024:
                self._deadlines = [entry for entry in self._deadlines if not entry[2].is_complete]
                heapq.heapify(self._deadlines)

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._is_stopped:
                    return
                wait = self._deadlines[0][0] - self._clock() if self._deadlines else None
                if wait is None or wait > 0:
                    self._changed.wait(wait)
                    continue
            self.expire(self._clock())
