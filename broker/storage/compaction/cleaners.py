"""The threads that compact logs: each takes the filthiest log that is due, and sleeps if there is none.

A cleaner reserves its partition, so that no other thread cleans the same log or renames its directory meanwhile. It
stops early if another thread wants to delete the partition, or if the broker stops; segments that it has exchanged so
far stay in place.

A log whose compaction failed is skipped for a while, so that a log that always fails does not delay the others.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import structlog
from msgspec.structs import asdict

from ottla.broker.storage.checkpoint import CLEANER_OFFSET_CHECKPOINT
from ottla.broker.storage.compaction.cleanable import Cleanable, examine, filthiest, is_due
from ottla.broker.storage.compaction.cleaner_throttle import CleanerThrottle
from ottla.broker.storage.compaction.compaction import CleanerLimits, CompactionOutcome, CompactionReport, compact
from ottla.broker.storage.log import Log
from ottla.broker.storage.log_dir import LogDir
from ottla.broker.storage.logs import Held, Logs

logger = structlog.get_logger(__name__)

Compact = Callable[..., CompactionReport]

RETRY_MS: Final = 10 * 60 * 1000
_BACKOFF_SECONDS_MIN: Final = 0.01


class CleanerState(NamedTuple):
    """The state of compaction, for metrics."""

    ms_since_last_run: int
    # The dirty ratio of the filthiest log that was not being cleaned.
    max_dirty_ratio: float
    # Logs that are skipped because compaction failed or made no progress, by directory.
    uncleanable: dict[LogDir, int]
    dead_threads: int


class Cleaners:
    """The cleaner threads of a broker. Tests call `clean_filthiest` themselves."""

    def __init__(self, logs: Logs, compact: Compact = compact) -> None:
        config = logs.config
        self.failures: Counter[str] = Counter()
        self._logs = logs
        self._limits = CleanerLimits.of(config)
        self._throttle = CleanerThrottle(config.log_cleaner_io_max_bytes_per_second)
        self._compact = compact
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._being_cleaned: set[Log] = set()
        # When a log whose compaction failed may be tried again.
        self._retry_ms: dict[Log, int] = {}
        # When the logs were last examined, and how dirty the filthiest one was.
        self._last_run_ms = logs.clock()
        self._max_dirty_ratio = 0.0
        self._is_started = False
        count = config.log_cleaner_threads if config.log_cleaner_enable else 0
        self._threads = [
            threading.Thread(target=self._run, name=f"log-cleaner-{number}", daemon=True) for number in range(count)
        ]

    def start(self) -> None:
        """Start the threads."""
        self._is_started = True
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the threads; each ends after its current batch."""
        self._stop.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def state(self) -> CleanerState:
        """Return the state of compaction. May be called by any thread."""
        now_ms = self._logs.clock()
        with self._lock:
            left_alone = {log for log, until_ms in self._retry_ms.items() if until_ms > now_ms}
        uncleanable = dict.fromkeys(self._logs.dirs, 0)
        for log, log_dir in self._logs.places():
            uncleanable[log_dir] += log in left_alone
        is_running = self._is_started and not self._stop.is_set()
        dead_threads = sum(not thread.is_alive() for thread in self._threads) if is_running else 0
        return CleanerState(now_ms - self._last_run_ms, self._max_dirty_ratio, uncleanable, dead_threads)

    def clean_filthiest(self) -> bool:
        """Compact the filthiest log that is due and not being cleaned; return whether there was one."""
        taken = self._take()
        if taken is None:
            return False
        log, log_dir = taken
        try:
            with self._logs.change(log.partition):
                if self._logs.find(log.partition) is log and self._logs.future(log.partition) is None:
                    self._clean(log, log_dir)
        except Exception as error:
            self.failures[type(error).__name__] += 1
            if isinstance(error, OSError):
                log_dir.failed(error)
            logger.exception("compaction_failed", partition=str(log.partition))
            self._leave_alone(log)
        finally:
            with self._lock:
                self._being_cleaned.discard(log)
        return True

    def _take(self) -> Held | None:
        """Choose a log, and keep other cleaners from choosing it."""
        now_ms = self._logs.clock()
        due: dict[Held, Cleanable] = {}
        max_dirty_ratio = 0.0
        for place in self._logs.places():
            log, log_dir = place
            # A log that is being moved is copied as it is, and compacted after the move.
            if (
                "compact" in log.config.cleanup_policy
                and log_dir.is_online
                and self._logs.future(log.partition) is None
                and self._is_free(log, now_ms)
            ):
                state = examine(log, self._logs.cleaner_offset(log.partition), now_ms)
                max_dirty_ratio = max(max_dirty_ratio, state.dirty_ratio)
                if is_due(state, log.config.min_cleanable_dirty_ratio, log.config.max_compaction_lag_ms, now_ms):
                    due[place] = state
        self._last_run_ms, self._max_dirty_ratio = now_ms, max_dirty_ratio
        with self._lock:
            chosen = filthiest({place: state for place, state in due.items() if place.log not in self._being_cleaned})
            if chosen is not None:
                self._being_cleaned.add(chosen.log)
        return chosen

    def _is_free(self, log: Log, now_ms: int) -> bool:
        with self._lock:
            return log not in self._being_cleaned and self._retry_ms.get(log, now_ms) <= now_ms

    def _clean(self, log: Log, log_dir: LogDir) -> None:
        cuts = log.cuts
        report = self._compact(
            log,
            self._logs.cleaner_offset(log.partition),
            self._limits,
            throttle=self._throttle,
            is_stopped=partial(self._must_let_go, log),
            wait=self._stop.wait,
        )
        fields = asdict(report) | {"partition": str(report.partition), "outcome": report.outcome.value}
        logger.info("log_compacted", **fields)
        if report.cleaned_up_to > report.first_dirty_offset:
            self._logs.note_cleaned(log, report.cleaned_up_to, cuts)
            self._logs.checkpoint(CLEANER_OFFSET_CHECKPOINT, log_dir)
        elif report.outcome is CompactionOutcome.COMPLETE:
            # It would be due again at once, and again make no progress.
            self._leave_alone(log)

    def _must_let_go(self, log: Log) -> bool:
        return self._stop.is_set() or self._logs.is_wanted(log.partition)

    def _leave_alone(self, log: Log) -> None:
        now_ms = self._logs.clock()
        with self._lock:
            self._retry_ms = {other: until_ms for other, until_ms in self._retry_ms.items() if until_ms > now_ms}
            self._retry_ms[log] = now_ms + RETRY_MS

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                found = self.clean_filthiest()
            except Exception:
                self.failures["choice"] += 1
                logger.exception("compaction_choice_failed")
                found = False
            if not found:
                backoff_seconds = max(self._logs.config.log_cleaner_backoff_ms / 1000, _BACKOFF_SECONDS_MIN)
                self._stop.wait(min(backoff_seconds, threading.TIMEOUT_MAX))
