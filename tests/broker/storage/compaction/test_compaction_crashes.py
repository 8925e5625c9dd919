"""A crash, or a refusal of the system, at any step of a compaction loses nothing and brings nothing twice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.broker.storage.compaction import killed_compaction
from tests.broker.storage.compaction.compacting import Bench, batches_of, check_nothing_is_lost, config_of, records_of

from ottla.broker.storage.compaction import swap
from ottla.broker.storage.compaction.compaction import compact
from ottla.protocol.compression import Codec
from ottla.protocol.control_records import ControlType

# All that changes names or makes changes last.
STEPS = ("rename", "replace", "unlink", "fsync", "utime")
# Several segments become one, and there is more than one such group.
GROUP_BYTES = 1200
ROOT = Path(__file__).parents[4]


def filled(directory: Path) -> Bench:
    """A log of several groups with tombstones, aborted and committed transactions, and idempotent producers."""
    bench = Bench(directory, segment_bytes=250)
    for number in range(12):
        codec = Codec(number % len(Codec))
        bench.append([(b"key-%d" % (number % 5), b"%03d" % number * 12), (b"once-%d" % number, b"1")], codec)
        if number % 6 == 1:
            aborted = [(b"key-1", b"aborted"), (b"key-2", None)]
            bench.append(aborted, producer=1, sequence=number // 3, transactional=True)
        if number % 6 == 2:
            bench.append([(b"key-0", b"committed")], producer=2, sequence=number // 6, transactional=True)
        if number % 6 == 4:
            bench.end_transaction(ControlType.ABORT, 1)
            bench.end_transaction(ControlType.COMMIT, 2)
            bench.append([(b"once-%d" % (number - 4), None)], producer=3, sequence=number // 6)
    bench.roll()
    bench.append([(b"last", b"in the active segment")])
    bench.log.config = config_of(segment_bytes=GROUP_BYTES)
    return bench


def without_aborted(bench: Bench) -> None:
    """Take what was aborted out of what readers must find, and see that they can tell it."""
    aborted = {offset for offset, record in bench.appended.items() if record.value == b"aborted"}
    aborted |= {offset + 1 for offset in aborted}
    known = bench.log.aborted_transactions(0, bench.log.log_end_offset)
    for batch in batches_of(bench.log):
        if batch.base_offset in aborted and batch.record_count:
            assert (batch.producer_id, batch.base_offset) in known
    for offset in aborted:
        del bench.appended[offset]


def check_recovered(directory: Path, original: Bench, expected: list[bytes]) -> None:
    """A fresh start, which believes what was flushed, finds all that readers must find, and can compact again."""
    bench = Bench(directory, original.log.active.base_offset, segment_bytes=GROUP_BYTES)
    bench.appended = dict(original.appended)
    before = {record.offset for record in records_of(bench.log)}
    assert bench.log.log_end_offset == original.log.log_end_offset
    assert bench.log.last_stable_offset == original.log.last_stable_offset
    assert {entry.producer_id: entry.last_sequence for entry in bench.log.producers.entries()} == {
        entry.producer_id: entry.last_sequence for entry in original.log.producers.entries()
    }
    bench.check_reads()
    assert not list(directory.glob("*.swap")) + list(directory.glob("*.cleaned")) + list(directory.glob("*.deleted"))
    report = compact(bench.log, None, killed_compaction.LIMITS)
    assert report.cleaned_up_to == bench.log.active.base_offset
    assert [bytes(batch.view) for batch in batches_of(bench.log) if not batch.is_control] == expected
    assert {record.offset for record in records_of(bench.log)} <= before
    without_aborted(bench)
    check_nothing_is_lost(bench.log, bench.appended)


@pytest.fixture
def each_step(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], None]], None]:
    """Have a function called before each step in the file system."""

    def install(before: Callable[[str], None]) -> None:
        for name in STEPS:
            original = getattr(os, name)

            def patched(*args: Any, _name: str = name, _original: Any = original, **kwargs: Any) -> Any:
                before(_name)
                return _original(*args, **kwargs)

            monkeypatch.setattr(os, name, patched)

    return install


def copy(source: Path, destination: Path) -> None:
    """Copy the files of a directory as they are at this moment."""
    destination.mkdir()
    for path in source.iterdir():
        shutil.copyfile(path, destination / path.name)


def expected_after(directory: Path) -> list[bytes]:
    """The data of the log that an undisturbed compaction leaves."""
    bench = filled(directory)
    bench.compact()
    return [bytes(batch.view) for batch in batches_of(bench.log) if not batch.is_control]


def test_a_crash_before_any_step_is_survived(
    tmp_path: Path, each_step: Callable[[Callable[[str], None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory as it is before each step is what a process leaves that dies there."""
    expected = expected_after(tmp_path / "undisturbed")
    bench = filled(tmp_path / "log")
    names: list[str] = []

    def copy_before(name: str) -> None:
        copy(bench.directory, tmp_path / f"crash-{len(names)}")
        names.append(name)

    each_step(copy_before)
    bench.compact()
    monkeypatch.undo()

    assert len(names) > 60
    assert set(names) == set(STEPS)
    for number in range(len(names)):
        check_recovered(tmp_path / f"crash-{number}", bench, expected)
    check_recovered(bench.directory, bench, expected)


def test_a_refused_step_is_survived(
    tmp_path: Path, each_step: Callable[[Callable[[str], None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes through; a start finds a whole log, and so do readers if the exchange had not begun."""
    expected = expected_after(tmp_path / "undisturbed")
    original = filled(tmp_path / "log")
    before = original.pairs()
    step = 0
    is_refused = True
    while is_refused:
        copy(original.directory, tmp_path / f"log-{step}")
        bench = Bench(tmp_path / f"log-{step}", segment_bytes=GROUP_BYTES)
        left, is_refused = step, False

        def refuse(_: str) -> None:
            nonlocal left, is_refused
            left -= 1
            if left == -1:
                is_refused = True
                raise OSError(5, "refused")

        each_step(refuse)
        try:
            bench.compact()
            assert not is_refused
        except OSError as error:
            assert error.strerror == "refused"  # noqa: PT017
        monkeypatch.undo()
        if is_refused and not list(bench.directory.glob("*.swap")) and not list(bench.directory.glob("*.deleted")):
            assert bench.pairs() == before
        check_recovered(bench.directory, original, expected)
        step += 1
    assert step > 60


def test_names_that_could_not_be_made_durable_are_withdrawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log goes on and may be cut: a later start must not put in place what was made before."""
    bench = filled(tmp_path / "log")
    before = bench.pairs()

    def refuse(directory: Path) -> None:
        assert list(directory.glob("*.log.swap"))
        raise OSError(5, "refused")

    monkeypatch.setattr(swap, "sync_directory", refuse)
    with pytest.raises(OSError, match="refused"):
        bench.compact()
    monkeypatch.undo()

    assert not list(bench.directory.glob("*.swap")) + list(bench.directory.glob("*.cleaned"))
    assert bench.pairs() == before
    bench.compact()
    check_recovered(bench.directory, bench, expected_after(tmp_path / "undisturbed"))


def test_kills_at_random_moments_are_survived(tmp_path: Path) -> None:
    """Twenty real processes that append and compact are killed; what they had acknowledged is there each time."""
    finished = subprocess.run(
        [sys.executable, "-m", killed_compaction.__name__, str(tmp_path), "20"],
        check=False,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert finished.returncode == 0, finished.stderr
