"""A move that is interrupted anywhere loses nothing: by a crash, or by either disk, at every step of the exchange."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.broker.replication.moving_broker import MovingBroker, values
from tests.broker.storage.many_logs import ORDERS, crash, os_error

from ottla.broker.replication.log_dir_moves import RETRY_SECONDS
from ottla.broker.storage.checkpoint import LOG_START_OFFSET_CHECKPOINT
from ottla.broker.storage.directory_files import (
    MOVE_FILE,
    DirectoryKind,
    MoveState,
    read_move_state,
    write_move_state,
)
from ottla.protocol.errors import KafkaError

CURRENT, FUTURE, DELETE = DirectoryKind.CURRENT, DirectoryKind.FUTURE, DirectoryKind.DELETE

# What changes a disk, other than by the map through which batches are written.
STEPS = ("rename", "replace", "fsync", "fdatasync", "unlink", "ftruncate", "truncate", "mkdir")


class Crash(BaseException):
    """The process dies here."""


def path_of(argument: Any) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{argument}") if isinstance(argument, int) else os.fspath(argument))


class Disks:
    """Counts the steps that change a disk, and lets one of them, or all of a directory from one on, fail.

    Nothing is really forced to disk, which would take most of the time: it is the process that dies.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.steps: list[str] = []
        self._hurry()

    def _hurry(self) -> None:
        for name in ("fsync", "fdatasync"):
            self._monkeypatch.setattr(os, name, lambda fd: None)

    def interrupt(self, stop: Callable[[int, Path], BaseException | None]) -> None:
        """Ask before each step what is raised in its place."""
        self.steps = []
        for name in STEPS:
            self._monkeypatch.setattr(os, name, self._watched(name, getattr(os, name), stop))

    def _watched(
        self, name: str, whole: Callable[..., Any], stop: Callable[[int, Path], BaseException | None]
    ) -> Callable[..., Any]:
        def step(first: Any, *args: Any, **options: Any) -> Any:
            path = path_of(first)
            number = len(self.steps)
            self.steps.append(f"{name} {path.name}")
            error = stop(number, path)
            if error is not None:
                raise error
            return whole(first, *args, **options)

        return step

    def heal(self) -> None:
        """Let everything work again."""
        self._monkeypatch.undo()
        self._hurry()


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch) -> Disks:
    """The disks of the broker."""
    return Disks(monkeypatch)


def ready(root: Path) -> tuple[MovingBroker, list[str]]:
    """Have a broker that has begun a move; return it with what it has acknowledged."""
    broker = MovingBroker(root)
    broker.start()
    acknowledged = broker.append(12)
    broker.move(1)
    broker.copy(2)
    assert broker.logs.future(ORDERS) is not None
    # Below what was copied, so that the files alone do not tell it.
    broker.orders.log.advance_log_start(2)
    broker.logs.checkpoint(LOG_START_OFFSET_CHECKPOINT, broker.logs.dirs[0])
    return broker, acknowledged[2:]


def test_a_crash_at_any_step_of_a_move_loses_nothing(tmp_path: Path, disks: Disks) -> None:
    """The next start has one log with everything, and the move comes to its end."""
    crashes = 0
    while True:
        broker, acknowledged = ready(tmp_path / str(crashes))

        def stop(number: int, _: Path, at: int = crashes) -> BaseException | None:
            return Crash() if number == at else None

        disks.interrupt(stop)
        try:
            broker.finish()
        except Crash:
            where = disks.steps[-1]
        else:
            break
        finally:
            disks.heal()
        crash(broker.logs)
        broker.start()
        assert values(broker.orders.log) == acknowledged, where
        assert broker.orders.log.log_start_offset == 2, where
        acknowledged += broker.append(2)
        broker.restart()
        broker.finish()
        assert values(broker.orders.log) == acknowledged, where
        assert broker.orders.log.directory == broker.paths[1] / "orders-0", where
        assert (broker.names(0).get(CURRENT), broker.names(1)) == (None, {CURRENT: 1}), where
        crash(broker.logs)
        crashes += 1
    assert crashes > 20
    assert values(broker.orders.log) == acknowledged


@pytest.mark.parametrize("failing", [0, 1], ids=["source", "target"])
def test_a_disk_that_fails_at_any_step_loses_nothing(tmp_path: Path, disks: Disks, failing: int) -> None:
    """What is acknowledged after that, on the disk that works, is there when the other one is back."""
    failures = 0
    went_on = 0
    while True:
        broker, acknowledged = ready(tmp_path / str(failures))

        def stop(
            number: int, path: Path, at: int = failures, directory: Path = broker.paths[failing]
        ) -> OSError | None:
            return os_error(errno.EIO) if number >= at and path.is_relative_to(directory) else None

        disks.interrupt(stop)
        for _ in range(10):
            broker.moves.advance()
            broker.clock.sleep(1)
        has_failed = not broker.logs.dirs[failing].is_online
        broker.logs.drop_offline()
        try:
            acknowledged += broker.append(1)
            went_on += has_failed
        except KafkaError:
            # The source failed before the copy could take its place.
            assert failing == 0
        disks.heal()
        if not has_failed:
            break
        # The disk comes back as it was when it failed.
        broker.restart()
        where = f"{failures}: {disks.steps[failures]}"
        assert values(broker.orders.log) == acknowledged, where
        broker.finish()
        broker.restart()
        assert values(broker.orders.log) == acknowledged, where
        assert broker.names(0).get(CURRENT, 0) + broker.names(1).get(CURRENT, 0) == 1, where
        crash(broker.logs)
        failures += 1
    assert failures > 10
    assert went_on


def test_a_source_that_is_back_after_the_move_is_out_of_date(tmp_path: Path, disks: Disks) -> None:
    """Also after several starts without it."""
    broker, acknowledged = ready(tmp_path)
    source = broker.paths[0]

    def stop(_: int, path: Path) -> OSError | None:
        return os_error(errno.EIO) if path == source / "orders-0" or path == source else None

    disks.interrupt(stop)
    broker.finish()
    disks.heal()
    acknowledged += broker.append(1)
    assert broker.names(0) == {CURRENT: 1}
    crash(broker.logs)
    hidden = source.rename(tmp_path / "hidden")
    source.write_text("not a directory")
    broker.start()
    acknowledged += broker.append(1)
    crash(broker.logs)
    source.unlink()
    hidden.rename(source)
    broker.start()

    assert values(broker.orders.log) == acknowledged
    assert (broker.names(0), broker.names(1)) == ({DELETE: 1}, {CURRENT: 1})


def test_an_unfinished_move_does_not_count_while_a_directory_is_offline(tmp_path: Path) -> None:
    """The source may lie there, with records that the copy lacks."""
    broker, acknowledged = ready(tmp_path)
    broker.finish()
    write_move_state(broker.paths[1] / "orders-0", MoveState.UNFINISHED)
    broker.stop()
    hidden = broker.paths[0].rename(tmp_path / "hidden")
    broker.paths[0].write_text("not a directory")
    broker.start(with_role=False)

    assert broker.names(1) == {FUTURE: 1}
    assert broker.logs.find(ORDERS) is None
    assert acknowledged
    broker.stop()
    broker.paths[0].unlink()
    hidden.rename(broker.paths[0])


def test_two_directories_of_which_nothing_is_known_are_not_opened(tmp_path: Path) -> None:
    """Nor where both are said to count."""
    broker, _ = ready(tmp_path)
    broker.finish()
    broker.stop()
    (broker.paths[0] / "orders-0").mkdir()
    broker.start(with_role=False)
    assert ORDERS in broker.logs.broken
    broker.stop()


def test_a_future_log_that_is_one_too_many_is_dropped(tmp_path: Path) -> None:
    """Beside the current one, or beside another."""
    broker, acknowledged = ready(tmp_path)
    broker.stop()
    for directory, digit in ((0, "a"), (1, "b")):
        (broker.paths[directory] / f"orders-0.{digit * 32}-future").mkdir()
    broker.start()

    assert broker.names(0) == {CURRENT: 1, DELETE: 1}
    assert broker.names(1) == {FUTURE: 1, DELETE: 1}
    broker.finish()
    assert values(broker.orders.log) == acknowledged


def test_a_future_log_that_cannot_be_opened_is_dropped(tmp_path: Path) -> None:
    """It is a copy; the move has to be asked for again."""
    broker, acknowledged = ready(tmp_path)
    future = broker.logs.future(ORDERS)
    assert future is not None
    directory = future.log.directory
    crash(broker.logs)
    (directory / f"{10**19}.log").touch()
    broker.start()

    assert broker.logs.futures() == []
    assert broker.names(1) == {DELETE: 1}
    assert values(broker.orders.log) == acknowledged


def test_a_source_that_only_refuses_to_be_renamed_is_kept(tmp_path: Path, disks: Disks) -> None:
    """A full disk is not a failure: the copy is a future log again, and the next attempt succeeds."""
    broker, acknowledged = ready(tmp_path)
    refused: list[Path] = []

    def stop(_: int, path: Path) -> OSError | None:
        if path != broker.paths[0] / "orders-0" or refused:
            return None
        refused.append(path)
        return os_error(errno.ENOSPC)

    disks.interrupt(stop)
    while not refused:
        broker.moves.advance()
    assert (broker.names(0), broker.names(1)) == ({CURRENT: 1}, {FUTURE: 1})
    assert broker.orders.log.directory == broker.paths[0] / "orders-0"
    acknowledged += broker.append(1)
    broker.clock.sleep(RETRY_SECONDS)
    broker.finish()
    assert values(broker.orders.log) == acknowledged
    assert broker.names(1) == {CURRENT: 1}


def test_a_target_that_fails_at_the_start_is_not_used(tmp_path: Path, disks: Disks) -> None:
    """Its copy has the name of a log, and cannot be renamed; the source counts."""
    broker, acknowledged = ready(tmp_path)
    future = broker.logs.future(ORDERS)
    assert future is not None
    directory = future.log.directory
    crash(broker.logs)
    write_move_state(directory, MoveState.UNFINISHED)
    copy = directory.rename(broker.paths[1] / "orders-0")
    disks.interrupt(lambda _, path: os_error(errno.EIO) if path == copy else None)
    broker.start()

    assert not broker.logs.dirs[1].is_online
    assert values(broker.orders.log) == acknowledged


def test_a_copy_that_cannot_be_dropped_takes_its_directory_offline(tmp_path: Path, disks: Disks) -> None:
    """It would be found again, and be taken for another."""
    broker, acknowledged = ready(tmp_path)
    crash(broker.logs)
    surplus = broker.paths[1] / f"orders-0.{'a' * 32}-future"
    surplus.mkdir()
    disks.interrupt(lambda _, path: os_error(errno.EIO) if path.name.endswith("-future") else None)
    broker.start()

    assert not broker.logs.dirs[1].is_online
    assert values(broker.orders.log) == acknowledged


def test_a_note_that_nobody_wrote_says_nothing(tmp_path: Path) -> None:
    """Two directories are then two of which nothing is known."""
    assert read_move_state(tmp_path) is None
    for text in (b"unfinished", b"\xff\xff", b"perhaps\n"):
        (tmp_path / MOVE_FILE).write_bytes(text)
        assert read_move_state(tmp_path) is None
