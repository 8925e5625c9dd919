"""The background work on the logs of a broker.

    thread            step                        every
    log-maintenance   report lost directories     1 s, and at once when one goes offline
                      free space                  1 s, and at once when an append finds none
                      flushes that are due        1 s
                      high watermarks             replica.high.watermark.checkpoint.interval.ms
                      recovery points             log.flush.offset.checkpoint.interval.ms
                      log starts                  log.flush.start.offset.checkpoint.interval.ms
    log-retention     retention                   log.retention.check.interval.ms, after log.initial.task.delay.ms;
                                                  every 10 s while a disk is below its watermark
                      removal of deleted files    1 s; below the watermark they have no delay
                      producers                   producer.id.expiration.check.interval.ms
    log-cleaner-N     compaction (cleaners.py)    at once while a log is due, else log.cleaner.backoff.ms

If a step fails for one log or one directory, the failure is counted, and logged the first time; the others go on.
Flushes are only requested here: the thread of the directory does them, together with those that producers wait for.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import structlog

from ottla.broker.common.clocks import monotonic_ms
from ottla.broker.config import BrokerConfig
from ottla.broker.storage.checkpoint import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from ottla.broker.storage.compaction.cleaners import Cleaners
from ottla.broker.storage.log import Log
from ottla.broker.storage.log_dir import LogDir
from ottla.broker.storage.logs import Logs
from ottla.broker.storage.maintenance.background import Loop, Task
from ottla.broker.storage.maintenance.group_commit import GroupCommit
from ottla.broker.storage.maintenance.retention import delete_old_segments, remove_doomed
from ottla.broker.storage.maintenance.stuck_segments import StuckSegment, stuck_segment
from ottla.broker.storage.maintenance.topic_sizes import largest_topics
from ottla.protocol.identifiers import TopicPartition

logger = structlog.get_logger(__name__)

OnOffline = Callable[[LogDir, list[TopicPartition]], None]

Subject = TypeVar("Subject")

_LOOK_MS: Final = 1000
# How often retention runs while a disk is below its watermark: somebody may have changed an option, or deleted records.
_LOW_SPACE_RETENTION_MS: Final = 10_000
# Topics that are named when a disk is below its watermark, and segments that are kept for metrics and pages.
_TOPICS_NAMED_MAX: Final = 5
_STUCK_MAX: Final = 20
# Keeps a thread from being busy all the time, whatever the options say.
_INTERVAL_MS_MIN: Final = 10


class Maintenance:
    """The background work on the logs of a broker; each step can be called by itself."""

    def __init__(
        self,
        logs: Logs,
        group_commit: GroupCommit,
        on_offline: OnOffline = lambda log_dir, partitions: None,
        clock_ms: Callable[[], int] = monotonic_ms,
        on_space: Callable[[], None] = lambda: None,
    ) -> None:
        """Take the logs, and what is called with no lock held.

        That is `on_offline` for each directory that went offline, and `on_space` when a disk accepts more than before.
        """
        self.logs = logs
        # How often each step has failed for a log or a directory.
        self.failures: Counter[str] = Counter()
        self._group_commit = group_commit
        self._on_offline = on_offline
        self._on_space = on_space
        self._clock_ms = clock_ms
        # The segments that are held back, as the last retention found them: those that hold the most bytes.
        self.stuck: Sequence[StuckSegment] = ()
        # Directories below their watermark whose largest topics were logged.
        self._named_low: set[LogDir] = set()
        self._retention_wanted = threading.Event()
        self._low_retention_due_ms = 0
        # The steps whose last run failed, with the log or directory.
        self._failing: set[tuple[str, object]] = set()
        self.cleaners = Cleaners(logs)
        self.loops = self._loops(logs.config, clock_ms)

    def _loops(self, config: BrokerConfig, clock_ms: Callable[[], int]) -> list[Loop]:
        now_ms = clock_ms()

        def task(step: Callable[[], object], interval_ms: int, delay_ms: int | None = None) -> Task:
            interval_ms = max(interval_ms, _INTERVAL_MS_MIN)
            return Task(step.__name__, interval_ms, step, now_ms + (interval_ms if delay_ms is None else delay_ms))

        maintenance = [
            task(self.sample_space, _LOOK_MS),
            task(self.request_due_flushes, min(_LOOK_MS, config.log_flush_scheduler_interval_ms)),
            task(self.checkpoint_high_watermarks, config.replica_high_watermark_checkpoint_interval_ms),
            task(self.checkpoint_recovery_points, config.log_flush_offset_checkpoint_interval_ms),
            task(self.checkpoint_log_starts, config.log_flush_start_offset_checkpoint_interval_ms),
            task(self.tell_of_lost_directories, _LOOK_MS),
        ]
        maintenance[0].on_wake = maintenance[-1].on_wake = True
        retention = [
            task(self.remove_deleted, _LOOK_MS),
            task(self.retain, config.log_retention_check_interval_ms, config.log_initial_task_delay_ms),
            task(self.expire_producers, config.producer_id_expiration_check_interval_ms),
        ]
        retention[0].on_wake = retention[1].on_wake = True
        return [
            Loop("log-maintenance", maintenance, clock_ms, self.logs.attention),
            Loop("log-retention", retention, clock_ms, self._retention_wanted),
        ]

    def start(self) -> None:
        """Start the threads."""
        for loop in self.loops:
            loop.start()
        self.cleaners.start()

    def stop(self) -> None:
        """Stop the threads, each after its current step; a compaction ends after its current batch."""
        self.cleaners.stop()
        for loop in self.loops:
            loop.stop()

    # Directories

    def sample_space(self) -> None:
        """Measure the free space of each directory; wake those who wait for it, and retention where it is low."""
        accept_more = [log_dir.sample_space() for log_dir in self.logs.online_dirs]
        if any(accept_more):
            self._on_space()
        low = {log_dir for log_dir in self.logs.online_dirs if log_dir.is_space_low}
        for log_dir in low - self._named_low:
            self._name_largest(log_dir)
        now_ms = self._clock_ms()
        if low - self._named_low or (low and now_ms >= self._low_retention_due_ms):
            self._low_retention_due_ms = now_ms + _LOW_SPACE_RETENTION_MS
            self._retention_wanted.set()
        self._named_low = low

    def _name_largest(self, log_dir: LogDir) -> None:
        """Log which topics take the most space on a disk that is below its watermark."""
        named = [
            f"{each.topic}: {each.size_bytes:,} bytes ({each.kept})"
            for each in largest_topics(self.logs, log_dir)[:_TOPICS_NAMED_MAX]
        ]
        logger.warning(
            "topics_to_trim",
            directory=str(log_dir.path),
            free_bytes=log_dir.free_bytes,
            watermark_bytes=log_dir.watermark_bytes,
            largest=named,
        )

    def tell_of_lost_directories(self) -> None:
        """Drop the logs in directories that went offline, and report them."""
        for log_dir, partitions in self.logs.drop_offline().items():
            logger.error("logs_lost_with_directory", directory=str(log_dir.path), logs=len(partitions))
            self._on_offline(log_dir, partitions)

    def checkpoint_recovery_points(self) -> None:
        """Write the recovery points of all logs."""
        self._checkpoint(RECOVERY_POINT_CHECKPOINT)

    def checkpoint_log_starts(self) -> None:
        """Write the log start offsets of all logs."""
        self._checkpoint(LOG_START_OFFSET_CHECKPOINT)

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks of all logs."""
        self._checkpoint(HIGH_WATERMARK_CHECKPOINT)

    def _checkpoint(self, name: str) -> None:
        for log_dir in self.logs.online_dirs:
            self._attempt(name, log_dir, lambda log_dir: self.logs.checkpoint(name, log_dir), log_dir)

    # Logs

    def retain(self) -> None:
        """Delete the segments that are too old, too many, or below the start of their log."""
        self._for_each("retention", _retain)
        now_ms = self.logs.clock()
        found: list[StuckSegment] = []

        def look(log: Log) -> None:
            if (stuck := stuck_segment(log, now_ms)) is not None:
                found.append(stuck)

        self._for_each("stuck segments", look)
        found.sort(key=lambda stuck: stuck.held_bytes, reverse=True)
        self.stuck = found[:_STUCK_MAX]

    def remove_deleted(self) -> None:
        """Remove deleted files and directories whose delay is over."""
        for log, log_dir in self.logs.places():
            if log.doomed and log_dir.is_online:
                at_once = log_dir.is_space_low
                self._attempt("removal", log, lambda log: remove_doomed(log, at_once=at_once), log_dir)  # noqa: B023
        self.logs.remove_doomed_directories()

    def request_due_flushes(self) -> None:
        """Request a flush of each log whose options, or a rolled segment, ask for it."""
        now_ms = self.logs.clock()
        for log in self.logs:
            if log.is_flush_due(now_ms):
                self._group_commit.request(log)

    def expire_producers(self) -> None:
        """Forget the producers that were idle too long."""
        now_ms, expiration_ms = self.logs.clock(), self.logs.config.producer_id_expiration_ms

        def expire(log: Log) -> None:
            with log.lock:
                log.producers.expire(now_ms, expiration_ms)

        self._for_each("producer expiry", expire)

    def _for_each(self, name: str, step: Callable[[Log], object]) -> None:
        for log, log_dir in self.logs.places():
            if log_dir.is_online:
                self._attempt(name, log, step, log_dir)

    def _attempt(self, name: str, subject: Subject, step: Callable[[Subject], object], log_dir: LogDir) -> None:
        """Run a step for a log or a directory; count a failure, and log it if it is new."""
        key = (name, subject)
        try:
            step(subject)
        except Exception as error:
            if isinstance(subject, Log) and self.logs.find(subject.partition) is not subject:
                return  # it was deleted meanwhile
            self.failures[name] += 1
            if isinstance(error, OSError):
                log_dir.failed(error)
            if key not in self._failing:
                self._failing.add(key)
                logger.exception("maintenance_step_failed", step=name, subject=repr(subject))
        else:
            self._failing.discard(key)


def _retain(log: Log) -> None:
    for segment, reason in delete_old_segments(log):
        logger.info("segment_deleted", partition=str(log.partition), segment=segment.path.name, reason=reason.value)
