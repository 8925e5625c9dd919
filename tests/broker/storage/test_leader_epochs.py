"""Leader epochs answer as a plain list of entries would, and the file holds all of them but one that only began."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.broker.storage.errors import CorruptCheckpointError
from ottla.broker.storage.leader_epochs import LeaderEpochs
from ottla.protocol.records import NO_LEADER_EPOCH

Entries = list[tuple[int, int]]

LOG_END_OFFSET = 1000
UNDEFINED = (-1, -1)

numbers = st.integers(0, 12)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("assign"), numbers, numbers),
        st.tuples(st.just("begin"), numbers, numbers),
        st.tuples(st.just("truncate_from_end"), numbers),
        st.tuples(st.just("truncate_from_start"), numbers),
        st.tuples(st.just("clear")),
    ),
    max_size=12,
)


class Model:
    """The rules, one entry after another."""

    def __init__(self) -> None:
        self.entries: Entries = []
        self.begun: tuple[int, int] | None = None

    @property
    def stored(self) -> Entries:
        return [entry for entry in self.entries if entry != self.begun]

    def begin(self, epoch: int, start_offset: int) -> None:
        if self.entries and self.entries[-1][0] == epoch and self.entries[-1][1] <= start_offset:
            return
        self.begun = (epoch, start_offset) if self.add(epoch, start_offset) else None

    def assign(self, epoch: int, start_offset: int) -> None:
        if not (self.entries and self.entries[-1][0] == epoch and self.entries[-1][1] <= start_offset):
            self.add(epoch, start_offset)
        self.begun = None

    def add(self, epoch: int, start_offset: int) -> bool:
        """Return whether there is a new entry."""
        if self.begun is not None and self.begun[0] != epoch:
            self.entries.remove(self.begun)
        if self.entries and self.entries[-1][0] == epoch and self.entries[-1][1] <= start_offset:
            return False
        while self.entries and (self.entries[-1][0] >= epoch or self.entries[-1][1] >= start_offset):
            self.entries.pop()
        self.entries.append((epoch, start_offset))
        return True

    def truncate_from_end(self, offset: int) -> None:
        self.entries = [entry for entry in self.entries if entry[1] < offset]
        self.begun = self.begun if self.begun in self.entries else None

    def truncate_from_start(self, offset: int) -> None:
        dropped = [entry for entry in self.entries if entry[1] <= offset]
        if dropped:
            first = (dropped[-1][0], offset)
            self.begun = first if dropped[-1] == self.begun else self.begun
            self.entries = [first, *self.entries[len(dropped) :]]

    def clear(self) -> None:
        self.entries = []
        self.begun = None

    def end_offset_for(self, requested_epoch: int, log_end_offset: int) -> tuple[int, int]:
        if requested_epoch == -1:
            return UNDEFINED
        if self.entries and requested_epoch == self.entries[-1][0]:
            return requested_epoch, log_end_offset
        lower = [entry for entry in self.entries if entry[0] <= requested_epoch]
        higher = [entry for entry in self.entries if entry[0] > requested_epoch]
        if not higher:
            return UNDEFINED
        return (lower[-1][0] if lower else requested_epoch), higher[0][1]

    def check(self, known: LeaderEpochs) -> None:
        """Leader epochs give the same answers."""
        assert self.entries == known.entries
        assert known.latest_epoch == (self.entries[-1][0] if self.entries else -1)
        for number in range(-1, 14):
            assert self.end_offset_for(number, 50) == known.end_offset_for(number, 50)
            before = [epoch for epoch, start_offset in self.entries if start_offset <= number]
            assert (before[-1] if before else -1) == known.epoch_for(number)


@examples(150)
@example(operations=[("assign", 0, 0), ("begin", 1, 1), ("begin", 0, 1)])
@example(operations=[("assign", 0, 0), ("begin", 1, 1), ("begin", 0, 0)])
@given(operations=operations)
def test_leader_epochs_do_what_the_model_does(operations: list[tuple[str, int, int]]) -> None:
    """Any sequence of operations gives the model's entries and answers, in memory and after a restart."""
    model = Model()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "leader-epoch-checkpoint")
        epochs = LeaderEpochs(path)
        for name, *arguments in operations:
            getattr(epochs, name)(*arguments)
            getattr(model, name)(*arguments)
            assert model.entries == epochs.entries
            assert model.stored == LeaderEpochs.load(path).entries
        model.check(epochs)
        model.entries = model.stored
        model.check(LeaderEpochs.load(path))


@examples(50)
@given(assigned=st.lists(st.tuples(st.integers(-2, 12), numbers), max_size=12))
def test_assigning_all_is_assigning_one_by_one(assigned: Entries) -> None:
    """A cache that is rebuilt from the log equals one that grew with it."""
    with tempfile.TemporaryDirectory() as directory:
        rebuilt, grown = LeaderEpochs(Path(directory, "rebuilt")), LeaderEpochs(Path(directory, "grown"))
        rebuilt.assign_all(assigned)
        for epoch, start_offset in assigned:
            grown.assign(epoch, start_offset)

        assert grown.entries == rebuilt.entries
        assert grown.entries == LeaderEpochs.load(Path(directory, "rebuilt")).entries


@pytest.mark.parametrize(
    ("requested_epoch", "answer"),
    [
        (-1, UNDEFINED),
        (7, (7, LOG_END_OFFSET)),
        (8, UNDEFINED),
        (1, (1, 100)),
        (2, (2, 250)),
        (4, (2, 250)),
        (5, (5, 600)),
        (6, (5, 600)),
    ],
)
def test_end_offsets_follow_the_five_cases(tmp_path: Path, requested_epoch: int, answer: tuple[int, int]) -> None:
    """Undefined, latest, above, below all, in between."""
    epochs = LeaderEpochs(tmp_path / "epochs")
    epochs.assign_all([(2, 100), (5, 250), (7, 600)])

    assert answer == epochs.end_offset_for(requested_epoch, LOG_END_OFFSET)


def test_without_entries_every_epoch_is_undefined(tmp_path: Path) -> None:
    """A log without epochs knows nothing of any."""
    epochs = LeaderEpochs(tmp_path / "epochs")

    assert epochs.end_offset_for(0, LOG_END_OFFSET) == UNDEFINED
    assert epochs.latest_epoch == -1
    assert epochs.epoch_for(0) == -1


def test_nothing_is_written_when_nothing_changes(tmp_path: Path) -> None:
    """Every append assigns its epoch; only news costs a write."""
    path = tmp_path / "epochs"
    epochs = LeaderEpochs(path)
    epochs.truncate_from_end(0)
    epochs.truncate_from_start(10)
    epochs.clear()
    assert not epochs.assign(-1, 0)
    assert not path.exists()

    assert epochs.assign(3, 10)
    inode = path.stat().st_ino
    assert not epochs.assign(3, 10)
    assert not epochs.assign(3, 11)
    assert not epochs.assign(-1, 12)
    epochs.truncate_from_end(11)
    epochs.truncate_from_start(10)
    epochs.truncate_from_start(9)

    assert inode == path.stat().st_ino


def test_a_smaller_start_or_epoch_drops_what_contradicts_it(tmp_path: Path) -> None:
    """The new entry is right; entries at or above it in epoch or offset were of a log that is gone."""
    epochs = LeaderEpochs(tmp_path / "epochs")
    epochs.assign_all([(1, 0), (2, 10), (4, 20), (5, 30)])

    epochs.assign(6, 20)
    assert epochs.entries == [(1, 0), (2, 10), (6, 20)]
    epochs.assign(2, 15)
    assert epochs.entries == [(1, 0), (2, 15)]
    epochs.assign(2, 5)
    assert epochs.entries == [(1, 0), (2, 5)]


def test_a_failed_write_changes_nothing_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same call works once there is space again."""
    epochs = LeaderEpochs(tmp_path / "epochs")
    epochs.assign(1, 0)
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", _no_space)
        with pytest.raises(OSError, match="no space left"):
            epochs.assign(2, 10)
    assert epochs.entries == [(1, 0)]

    assert epochs.assign(2, 10)
    assert LeaderEpochs.load(tmp_path / "epochs").entries == [(1, 0), (2, 10)]


def test_a_corrupt_file_is_replaced_by_what_the_log_says(tmp_path: Path) -> None:
    """The caller learns of it, starts empty, and assigns from the batches."""
    path = tmp_path / "epochs"
    path.write_bytes(b"0\n2\n1 0\n")
    with pytest.raises(CorruptCheckpointError):
        LeaderEpochs.load(path)

    LeaderEpochs(path).assign_all([(1, 0), (2, 10)])
    assert LeaderEpochs.load(path).entries == [(1, 0), (2, 10)]


def test_a_renamed_directory_keeps_its_epochs(tmp_path: Path) -> None:
    """Writes follow the path."""
    (tmp_path / "old").mkdir()
    epochs = LeaderEpochs(tmp_path / "old" / "epochs")
    epochs.assign(1, 0)
    (tmp_path / "old").rename(tmp_path / "new")
    epochs.path = tmp_path / "new" / "epochs"
    epochs.assign(2, 10)

    assert repr(LeaderEpochs.load(epochs.path)) == "LeaderEpochs([(1, 0), (2, 10)])"


def _no_space(*_: object) -> None:
    raise OSError("no space left")


def test_an_epoch_that_begins_is_stored_with_its_first_batch(tmp_path: Path) -> None:
    """An election costs no write; a crash before the first batch leaves no trace of it."""
    path = tmp_path / "leader-epoch-checkpoint"
    epochs = LeaderEpochs(path)
    epochs.assign(3, 0)
    epochs.begin(5, 10)
    assert (epochs.latest_epoch, epochs.stored_epoch) == (5, NO_LEADER_EPOCH)
    assert LeaderEpochs.load(path).entries == [(3, 0)]

    epochs.assign(5, 12)
    assert (epochs.latest_epoch, epochs.stored_epoch) == (5, 5)
    assert LeaderEpochs.load(path).entries == epochs.entries == [(3, 0), (5, 10)]


def test_an_epoch_without_a_batch_is_dropped_without_a_write(tmp_path: Path) -> None:
    """Another broker leads by then; what is on disk was right all the time."""
    path = tmp_path / "leader-epoch-checkpoint"
    epochs = LeaderEpochs(path)
    epochs.assign(3, 0)
    written = path.stat().st_mtime_ns
    epochs.begin(5, 10)
    epochs.truncate_from_end(10)
    assert epochs.entries == [(3, 0)]
    assert (epochs.stored_epoch, path.stat().st_mtime_ns) == (3, written)
