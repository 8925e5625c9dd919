"""Flush before acknowledgement: many appends wait until they are on disk, and one flush serves them all.

Each log directory has one thread that flushes, so flushes of a log never overlap. It waits a moment after the first
append, so that those that come at the same time share the flush; what comes during a flush shares the next one.

A flush that fails is not tried again: the kernel may have dropped the pages, and a second try would succeed without
them. The directory goes offline, and everybody who waits for it is told.

    when_flushed(log, offset, callback)  ->  queue of the log's directory  ->  linger, flush  ->  callback(None)
                                                                                              or  callback(error)

A callback runs once, in the thread of the directory, or at once in the caller's where nothing is to be waited for. It
must not block. No lock is held during a flush or a callback.
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
        """Flush what is waited for, and end the threads; whoever comes later is refused."""
        for worker in self.workers.values():
            worker.stop()

    def when_flushed(self, log: Log, offset: int, callback: Callback) -> None:
        """Call back when everything below `offset` is on disk, or with the reason why it will not be."""
        self.workers[log.guard].add(log, offset, callback)

    def flush(self, logs: Iterable[Log]) -> dict[Log, KafkaError]:
        """Wait until logs are on disk as they are now; return why some are not. No lock may be held.

        It waits for a while and not for ever: a disk that hangs must not hold up those that work.
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
        """Have a log flushed, with nobody waiting."""
        self.workers[log.guard].add(log, log.log_end_offset, None)


class FlushWorker:
    """Flushes the logs of one directory."""

    def __init__(self, log_dir: LogDir, waiting_max: int, flush: Flush, linger: Callable[[], None]) -> None:
        self.log_dir = log_dir
        self.flush_count = 0
        # How long the flushes took that did not fail; flushes of one worker never overlap.
        self.flush_times = Timing()
        self._waiting_max = waiting_max
        self._flush = flush
        self._linger = linger
        self._changed = threading.Condition()
        # Who waits for which offset, by log; a log without anyone is flushed all the same.
        self._waiting: dict[Log, list[tuple[int, Callback]]] = {}
        self._waiting_count = 0
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name=f"group-commit {log_dir.path}", daemon=True)

    def start(self) -> None:
        """Begin to flush."""
        self._thread.start()

    def stop(self) -> None:
        """Flush what is waited for, and end."""
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
        """Flush every log that is waited for, and tell those who wait; return how many there were."""
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
            # It is appended, and may well be on disk soon: what a time-out says too.
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
            # Also after a flush that went well: the failure may have been reported to somebody else.
            return storage_error(self.log_dir.offline_reason)
        return None


def _shortfall(log: Log, offset: int) -> KafkaError | None:
    """Say why a flushed log does not reach an offset that it had reached; None where it does."""
    if log.recovery_point >= offset:
        return None
    detail = f"{log.partition} was cut below {offset} before it was on disk"
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, detail)


def _call(callback: Callback, error: KafkaError | None) -> None:
    try:
        callback(error)
    except Exception:
        logger.exception("flush_callback_failed")
