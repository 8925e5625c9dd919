"""Flush before acknowledgement: many appends wait for the disk, and one flush serves them all.

Each log directory has one thread that flushes, so flushes of a log never overlap. It waits a moment after the first
append, so that appends that come at the same time share the flush. Appends during a flush share the next one.

A failed flush is not repeated: the kernel may have dropped the pages, and a second try would succeed without them. The
directory goes offline, and all callbacks that wait for it get the error.

    when_flushed(log, offset, callback)  ->  queue of the log's directory  ->  linger, flush  ->  callback(None)
                                                                                              or  callback(error)

A callback runs once, in the thread of the directory; or at once in the caller's thread if there is nothing to wait for.
It must not block. No lock is held during a flush or a callback.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import structlog

from ottla.broker.common.timings import Timing
from ottla.broker.storage.log import Log
from ottla.broker.storage.log_dir import LogDir
from ottla.broker.storage.logs import storage_error
from ottla.protocol.errors import ErrorCode, KafkaError

logger = structlog.get_logger(__name__)

Callback = Callable[[KafkaError | None], None]
Flush = Callable[[Log], int]

LINGER_MS: Final = 2.0
WAITING_MAX: Final = 100_000
FLUSH_SECONDS_MAX: Final = 10.0


class GroupCommit:
    """The flushing threads of a broker, one for each log directory."""

    def __init__(
        self,
        dirs: Iterable[LogDir],
        *,
        linger_ms: float = LINGER_MS,
        waiting_max: int = WAITING_MAX,
        flush: Flush = Log.flush,
        linger: Callable[[], None] | None = None,
    ) -> None:
        """Take the directories; `waiting_max` bounds the appends that wait in one of them."""
        linger = linger or partial(time.sleep, linger_ms / 1000)
        self.workers: dict[object, FlushWorker] = {
            log_dir: FlushWorker(log_dir, waiting_max, flush, linger) for log_dir in dirs
        }

    def start(self) -> None:
        """Start the threads."""
        for worker in self.workers.values():
            worker.start()

    def stop(self) -> None:
        """Flush what is queued, and stop the threads; later requests are refused."""
        for worker in self.workers.values():
            worker.stop()

    def when_flushed(self, log: Log, offset: int, callback: Callback) -> None:
        """Call back when everything below `offset` is on disk, or with the error that prevents it."""
        self.workers[log.guard].add(log, offset, callback)

    def flush(self, logs: Iterable[Log]) -> dict[Log, KafkaError]:
        """Wait until the present content of logs is on disk; return the errors by log. No lock may be held.

        The wait is limited: a disk that hangs must not delay the others.
        """
        wanted = {log: log.log_end_offset for log in logs}
        outcomes: dict[Log, KafkaError | None] = {}
        is_done = threading.Event()

        def flushed(log: Log, error: KafkaError | None) -> None:
            outcomes[log] = error
            if len(outcomes) == len(wanted):
                is_done.set()

        for log, offset in wanted.items():
            self.when_flushed(log, offset, partial(flushed, log))
        if wanted and not is_done.wait(FLUSH_SECONDS_MAX):
            late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no flush within {FLUSH_SECONDS_MAX:g} s")
            return {log: error for log in wanted if (error := outcomes.get(log, late)) is not None}
        return {log: error for log, error in outcomes.items() if error is not None}

    def request(self, log: Log) -> None:
        """Request a flush of a log without waiting for it."""
        self.workers[log.guard].add(log, log.log_end_offset, None)


class FlushWorker:
    """Flushes the logs of one directory."""

    def __init__(self, log_dir: LogDir, waiting_max: int, flush: Flush, linger: Callable[[], None]) -> None:
        self.log_dir = log_dir
        self.flush_count = 0
        # The durations of successful flushes; flushes of one worker never overlap.
        self.flush_times = Timing()
        self._waiting_max = waiting_max
        self._flush = flush
        self._linger = linger
        self._changed = threading.Condition()
        # The offsets and callbacks that wait, by log. A log without callbacks is flushed too.
        self._waiting: dict[Log, list[tuple[int, Callback]]] = {}
        self._waiting_count = 0
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name=f"group-commit {log_dir.path}", daemon=True)

    def start(self) -> None:
        """Begin to flush."""
        self._thread.start()

    def stop(self) -> None:
        """Flush what is queued, and stop."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()
        self.run_once()

    def add(self, log: Log, offset: int, callback: Callback | None) -> None:
        """Queue a log to be flushed; see `GroupCommit.when_flushed`."""
        refusal: KafkaError | None = None
        if log.recovery_point < offset:
            with self._changed:
                refusal = self._refusal()
                if refusal is None:
                    waits = self._waiting.setdefault(log, [])
                    if callback is not None:
                        waits.append((offset, callback))
                        self._waiting_count += 1
                    self._changed.notify()
                    return
        if callback is not None:
            _call(callback, refusal)

    def run_once(self) -> int:
        """Flush every queued log and run its callbacks; return how many logs there were."""
        with self._changed:
            taken, self._waiting = self._waiting, {}
        for log, waits in taken.items():
            error = self._flushed(log)
            for offset, callback in waits:
                _call(callback, error or _shortfall(log, offset))
            with self._changed:
                self._waiting_count -= len(waits)
        return len(taken)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._is_stopped:
                    self._changed.wait()
                if self._is_stopped:
                    return
            self._linger()
            self.run_once()

    def _refusal(self) -> KafkaError | None:
        if self._is_stopped:
            return storage_error("the broker is stopping, and what was appended may not be on disk")
        if self._waiting_count >= self._waiting_max:
            # The records are appended and may be on disk soon, which is what a timeout means too.
            return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{self._waiting_count:,} appends wait for the disk already")
        return None

    def _flushed(self, log: Log) -> KafkaError | None:
        """Flush a log; return what went wrong."""
        try:
            if self.log_dir.is_online and not log.is_replaced:
                self.flush_count += 1
                began = time.perf_counter()
                self._flush(log)
                self.flush_times.add(time.perf_counter() - began)
        except OSError as error:
            if log.is_replaced:
                return None
            self.log_dir.failed(error)
            logger.error("flush_failed", partition=str(log.partition), reason=str(error))
            return storage_error(f"{log.partition} could not be forced to disk: {error}")
        except Exception as error:
            logger.exception("flush_failed", partition=str(log.partition))
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{log.partition} could not be flushed: {error!r}")
        if self.log_dir.offline_reason is not None and not log.is_replaced:
            # Also after a successful flush: the failure may have been reported to another thread.
            return storage_error(self.log_dir.offline_reason)
        return None


def _shortfall(log: Log, offset: int) -> KafkaError | None:
    """Return an error if a flushed log does not reach `offset`, because it was cut; None if it does."""
    if log.recovery_point >= offset:
        return None
    detail = f"{log.partition} was cut below {offset} before it was on disk"
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, detail)


def _call(callback: Callback, error: KafkaError | None) -> None:
    try:
        callback(error)
    except Exception:
        logger.exception("flush_callback_failed")
