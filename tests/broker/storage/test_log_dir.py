"""A log directory knows whose it is, refuses what it must, and never crashes on what it finds."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from structlog.typing import EventDict
from tests.broker.storage.many_logs import ORDERS, OWNER, VIEWS, FakeSpace, os_error, raising

from ottla.broker.storage import log_dir as log_dir_module
from ottla.broker.storage.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    read_offsets,
)
from ottla.broker.storage.directory_files import CLEAN_SHUTDOWN, MetaProperties, read_clean_shutdown
from ottla.broker.storage.disk_space import SpaceLevel, Watermark
from ottla.broker.storage.errors import FlushError, StorageError
from ottla.broker.storage.log_dir import LogDir


@pytest.fixture
def log_dir(tmp_path: Path) -> LogDir:
    """A directory that is claimed and begun."""
    return begun(tmp_path / "data")


def begun(path: Path) -> LogDir:
    log_dir = LogDir(path)
    log_dir.claim(OWNER)
    log_dir.begin()
    return log_dir


def test_a_new_directory_is_made_and_online(log_dir: LogDir) -> None:
    """Nothing is there before the first start, and nothing is refused after it."""
    assert log_dir.is_online
    assert log_dir.client_refusal is None
    assert not log_dir.was_clean
    assert log_dir.free_bytes > 0
    assert log_dir.free_bytes <= log_dir.total_bytes
    assert repr(log_dir) == f"LogDir({log_dir.path}, online)"


def test_a_second_broker_is_refused(log_dir: LogDir) -> None:
    """Two processes never write the same directory."""
    with pytest.raises(StorageError, match="in use by another broker"):
        LogDir(log_dir.path).claim(OWNER)


def test_a_directory_of_another_broker_is_refused_and_let_go(log_dir: LogDir) -> None:
    """The claim fails, and its owner can still come back."""
    log_dir.close(None)
    with pytest.raises(StorageError, match="belongs to broker 1"):
        LogDir(log_dir.path).claim(MetaProperties(2, OWNER.cluster_id))

    assert begun(log_dir.path).is_online


def test_a_directory_that_cannot_be_made_is_offline(tmp_path: Path, log_lines: list[EventDict]) -> None:
    """What the system refuses at the claim takes the directory offline, and nothing else down."""
    (tmp_path / "file").write_text("not a directory")

    log_dir = begun(tmp_path / "file" / "data")

    assert not log_dir.is_online
    assert "Not a directory" in str(log_dir.offline_reason)
    assert "log_directory_offline" in [line["event"] for line in log_lines]


def test_a_disk_that_fails_at_the_begin_is_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory whose mark cannot be removed is not used."""
    monkeypatch.setattr(log_dir_module, "remove_clean_shutdown", raising(errno.EROFS))

    assert not begun(tmp_path / "data").is_online


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ESTALE])
def test_an_error_of_the_disk_takes_the_directory_offline(log_dir: LogDir, number: int) -> None:
    """Everything is refused from then on, in words that name directory and reason."""
    log_dir.failed(os_error(number))

    assert not log_dir.is_online
    assert log_dir.refusal == log_dir.client_refusal == log_dir.offline_reason
    assert str(log_dir.path) in str(log_dir.refusal)
    assert os.strerror(number) in str(log_dir.refusal)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOENT])
def test_what_passes_leaves_the_directory_online(log_dir: LogDir, number: int) -> None:
    """A full disk and too many open files are no failures of the disk."""
    log_dir.failed(os_error(number))

    assert log_dir.is_online


def test_any_failed_flush_takes_the_directory_offline(log_dir: LogDir) -> None:
    """After a failed flush nobody knows what is on disk, whatever the error was."""
    log_dir.failed(FlushError(errno.ENOSPC, "No space left on device"))

    assert "could not be forced to disk" in str(log_dir.offline_reason)


def test_the_first_failure_counts_and_is_told_once(tmp_path: Path, log_lines: list[EventDict]) -> None:
    """A disk fails in many places at once: one line, one call."""
    calls: list[None] = []
    log_dir = LogDir(tmp_path, on_trouble=lambda: calls.append(None))

    log_dir.failed(os_error(errno.EIO))
    log_dir.failed(os_error(errno.EROFS))

    assert calls == [None]
    assert os.strerror(errno.EIO) in str(log_dir.offline_reason)
    assert [line["event"] for line in log_lines] == ["log_directory_offline"]


def test_low_space_refuses_clients_until_there_is_clearly_more(tmp_path: Path, log_lines: list[EventDict]) -> None:
    """Below the threshold clients are refused; a tenth above it they are taken; one line for each change."""
    space = FakeSpace(1000)
    log_dir = LogDir(tmp_path, Watermark(100), statvfs=space)
    seen = []
    for free_bytes in (1000, 100, 99, 50, 100, 109, 110, 105, 99):
        space.free_bytes = free_bytes
        log_dir.sample_space()
        seen.append(log_dir.is_space_low)

    assert seen == [False, False, True, True, True, True, False, False, True]
    assert log_dir.refusal is None
    assert log_dir.free_bytes == 99
    assert "99 bytes free" in str(log_dir.client_refusal)
    assert [line["log_level"] for line in log_lines] == ["warning", "info", "warning"]


def test_followers_stop_later_than_producers_and_groups_last(tmp_path: Path) -> None:
    """At half and at a quarter of the watermark, each with a tenth of it between going and coming."""
    space = FakeSpace(1000)
    log_dir = LogDir(tmp_path, Watermark(400), statvfs=space)
    seen = []
    for free_bytes in (400, 399, 200, 199, 100, 99, 109, 110, 219, 220, 439, 440):
        space.free_bytes = free_bytes
        log_dir.sample_space()
        refusals = (log_dir.client_refusal, log_dir.copy_refusal, log_dir.coordinator_refusal)
        seen.append([refusal is not None for refusal in refusals].count(True))

    assert seen == [0, 1, 1, 2, 2, 3, 3, 2, 2, 1, 1, 0]
    assert log_dir.refusal is None


def test_the_larger_of_bytes_and_percent_counts(tmp_path: Path) -> None:
    """The message names the option that refuses. A disk that jumps over levels is at the last one at once."""
    space = FakeSpace(49)
    log_dir = LogDir(tmp_path, Watermark(10, 5.0), statvfs=space)
    log_dir.sample_space()
    assert log_dir.watermark_bytes == 50
    assert "ottla.log.min.free.percent keeps 50;" in str(log_dir.client_refusal)
    space.free_bytes = 1
    log_dir.sample_space()
    levels = [log_dir.space_level]

    log_dir.watermark = Watermark(10, 0.5)
    space.free_bytes = 9
    assert log_dir.sample_space()
    levels.append(log_dir.space_level)
    assert levels == [SpaceLevel.NO_APPENDS, SpaceLevel.NO_PRODUCERS]
    assert "ottla.log.min.free.bytes keeps 10;" in str(log_dir.client_refusal)


def test_an_append_that_finds_no_space_has_it_sampled(tmp_path: Path) -> None:
    """A disk may fill up between two samples."""
    calls: list[None] = []
    log_dir = LogDir(tmp_path, on_trouble=lambda: calls.append(None))

    log_dir.failed(os_error(errno.ENOSPC))

    assert log_dir.is_online
    assert calls == [None]


def test_no_threshold_refuses_nothing(tmp_path: Path) -> None:
    """With 0 a full disk is found out by the append alone."""
    log_dir = LogDir(tmp_path, Watermark(0), statvfs=FakeSpace(0))

    log_dir.sample_space()

    assert log_dir.client_refusal is None


def test_a_directory_that_cannot_be_looked_at_is_offline(tmp_path: Path) -> None:
    """Gone is gone, whatever the error."""
    space = FakeSpace(1000)
    log_dir = LogDir(tmp_path, Watermark(100), statvfs=space)
    space.error = os_error(errno.ENOENT)

    log_dir.sample_space()

    assert not log_dir.is_online


def test_space_does_not_bring_an_offline_directory_back(tmp_path: Path) -> None:
    """Only a restart does."""
    log_dir = LogDir(tmp_path, Watermark(100), statvfs=FakeSpace(1000))
    log_dir.failed(os_error(errno.EIO))

    log_dir.sample_space()

    assert log_dir.client_refusal == log_dir.offline_reason
    assert not log_dir.is_space_low


def test_a_clean_stop_is_known_at_the_next_start_only(log_dir: LogDir) -> None:
    """The mark is withdrawn at the start: a crash after that must not look like a clean stop."""
    log_dir.close(7)
    second = begun(log_dir.path)

    assert log_dir.refusal is not None
    assert second.was_clean
    assert second.last_broker_epoch == 7
    second.release()
    assert not begun(log_dir.path).was_clean


def test_no_mark_without_an_epoch_or_on_a_disk_that_failed(log_dir: LogDir) -> None:
    """Both say that not all logs are known to be on disk."""
    log_dir.close(None)
    assert read_clean_shutdown(log_dir.path) is None

    second = begun(log_dir.path)
    second.failed(os_error(errno.EIO))
    second.close(7)
    assert read_clean_shutdown(log_dir.path) is None
    assert "Input/output" in str(second.refusal)


def test_a_checkpoint_is_written_where_it_changes(log_dir: LogDir) -> None:
    """The same rows are not written twice, and a restart knows them."""
    name = HIGH_WATERMARK_CHECKPOINT
    assert log_dir.write_checkpoint(name, lambda: {ORDERS: 5})
    assert not log_dir.write_checkpoint(name, lambda: {ORDERS: 5})
    assert log_dir.write_checkpoint(name, lambda: {ORDERS: 6, VIEWS: 1})
    assert read_offsets(log_dir.path / name) == {ORDERS: 6, VIEWS: 1}

    log_dir.release()
    second = begun(log_dir.path)
    assert second.checkpoint(name) == {ORDERS: 6, VIEWS: 1}
    assert second.checkpoint(CLEANER_OFFSET_CHECKPOINT) == {}
    assert not second.write_checkpoint(name, lambda: {ORDERS: 6, VIEWS: 1})


def test_a_checkpoint_that_could_not_be_written_is_tried_again(
    log_dir: LogDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk passes, and then the rows are written although they did not change."""
    name = HIGH_WATERMARK_CHECKPOINT
    with monkeypatch.context() as patch:
        patch.setattr(log_dir_module, "write_offsets", raising(errno.ENOSPC))
        with pytest.raises(OSError, match="No space"):
            log_dir.write_checkpoint(name, lambda: {ORDERS: 5})

    assert log_dir.may_tell_of(name, VIEWS)
    assert log_dir.write_checkpoint(name, lambda: {ORDERS: 5})
    assert log_dir.may_tell_of(name, ORDERS)
    assert not log_dir.may_tell_of(name, VIEWS)


def test_nothing_is_written_to_an_offline_directory(log_dir: LogDir) -> None:
    """The disk failed: what it holds now must not be made worse."""
    log_dir.failed(os_error(errno.EIO))

    assert not log_dir.write_checkpoint(HIGH_WATERMARK_CHECKPOINT, lambda: {ORDERS: 5})
    assert not (log_dir.path / HIGH_WATERMARK_CHECKPOINT).exists()


@pytest.mark.parametrize(
    ("name", "was_clean"),
    [
        (RECOVERY_POINT_CHECKPOINT, False),
        (LOG_START_OFFSET_CHECKPOINT, True),
        (HIGH_WATERMARK_CHECKPOINT, True),
        (CLEANER_OFFSET_CHECKPOINT, True),
    ],
)
def test_a_broken_checkpoint_is_passed_over(
    log_dir: LogDir, name: str, was_clean: bool, log_lines: list[EventDict]
) -> None:
    """A warning, no rows, no crash; without recovery points the logs are scanned."""
    log_dir.close(7)
    (log_dir.path / name).write_bytes(b"0\n1\norders 0 15")

    second = begun(log_dir.path)

    assert second.is_online
    assert second.checkpoint(name) == {}
    assert second.was_clean is was_clean
    (unreadable,) = [line for line in log_lines if line["event"] == "checkpoint_unreadable"]
    assert unreadable["path"].endswith(name)


def test_closing_lets_others_in_even_when_the_mark_cannot_be_written(
    log_dir: LogDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed stop must not keep the next start out."""
    monkeypatch.setattr(log_dir_module, "write_clean_shutdown", raising(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        log_dir.close(7)

    assert not (log_dir.path / CLEAN_SHUTDOWN).exists()
    assert begun(log_dir.path).is_online
