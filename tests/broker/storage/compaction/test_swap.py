"""A cleaned segment takes the place of others, or does not; a crash leaves nothing in between."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.storage.logs import make_batch, names, path_of

from ottla.broker.storage.compaction.swap import (
    SEGMENT_SUFFIXES,
    commit_cleaned,
    discard_cleaned,
    finish_swaps,
    put_in_place,
)
from ottla.broker.storage.errors import StorageError

BATCH = make_batch()


def write(
    directory: Path, base_offset: int, state: str = "", *, offsets: tuple[int, ...] = (), index: bytes = b""
) -> None:
    """The files of a segment in one of their states."""
    log = b"".join(make_batch(base_offset=offset) for offset in offsets)
    for suffix in SEGMENT_SUFFIXES:
        path_of(directory, base_offset, suffix + state).write_bytes(log if suffix == ".log" else index)


def test_committed_files_have_another_name(tmp_path: Path) -> None:
    """The log last, because its name is what counts."""
    write(tmp_path, 0, ".cleaned", offsets=(0,))
    commit_cleaned(tmp_path, 0)

    assert SEGMENT_SUFFIXES[-1] == ".log"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"{0:020d}{s}.swap" for s in SEGMENT_SUFFIXES)


def test_a_set_that_is_not_complete_is_not_committed(tmp_path: Path) -> None:
    """Nothing of it is put in place by the next start."""
    write(tmp_path, 0, ".cleaned", offsets=(0,))
    path_of(tmp_path, 0, ".index.cleaned").unlink()
    with pytest.raises(FileNotFoundError):
        commit_cleaned(tmp_path, 0)
    assert not list(tmp_path.glob("*.swap"))
    discard_cleaned(tmp_path, 0)

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("done", range(5))
def test_an_exchange_is_finished_wherever_it_was_interrupted(tmp_path: Path, done: int) -> None:
    """The old segments that it stands for go, those behind it stay."""
    for base in (0, 10, 20):
        write(tmp_path, base, offsets=(base,), index=b"old")
    write(tmp_path, 0, ".swap", offsets=(0, 15), index=b"new")
    for suffix in SEGMENT_SUFFIXES[: min(done, 3)]:
        path_of(tmp_path, 0, suffix + ".swap").replace(path_of(tmp_path, 0, suffix))
    if done == 4:
        path_of(tmp_path, 10).unlink()
    finish_swaps(tmp_path)
    finish_swaps(tmp_path)

    assert names(tmp_path, ".log") == [0, 20]
    assert path_of(tmp_path, 0).read_bytes() == make_batch(base_offset=0) + make_batch(base_offset=15)
    assert path_of(tmp_path, 0, ".index").read_bytes() == b"new"
    assert not list(tmp_path.glob("*.swap"))


def test_without_its_log_a_set_is_dropped(tmp_path: Path) -> None:
    """It was not committed."""
    write(tmp_path, 0, offsets=(0,), index=b"old")
    path_of(tmp_path, 0, ".index.swap").write_bytes(b"new")
    finish_swaps(tmp_path)

    assert path_of(tmp_path, 0, ".index").read_bytes() == b"old"
    assert not list(tmp_path.glob("*.swap"))


def test_an_empty_transaction_index_replaces_an_old_one_and_goes(tmp_path: Path) -> None:
    """No aborted transaction is left."""
    write(tmp_path, 0, index=b"old")
    write(tmp_path, 0, ".swap", offsets=(0,))
    put_in_place(tmp_path, 0)

    assert not path_of(tmp_path, 0, ".txnindex").exists()


@pytest.mark.parametrize("damage", [BATCH[:30], BATCH[:8] + b"\xff\xff\xff\xf0" + BATCH[12:], b"?" * 99])
def test_a_broken_log_is_not_put_in_place(tmp_path: Path, damage: bytes) -> None:
    """It was complete when it was committed; now somebody must look at it."""
    write(tmp_path, 0, offsets=(0,))
    path_of(tmp_path, 0, ".log.swap").write_bytes(make_batch() + damage)
    with pytest.raises(StorageError, match="is damaged"):
        finish_swaps(tmp_path)

    assert path_of(tmp_path, 0).read_bytes() == make_batch()


def test_names_that_are_not_ours_are_no_exchange(tmp_path: Path) -> None:
    """Whatever they end in."""
    (tmp_path / "note.log.swap").touch()
    (tmp_path / "7.log").touch()
    finish_swaps(tmp_path)

    assert (tmp_path / "7.log").exists()
