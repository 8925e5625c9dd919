"""One damaged bit, or a missing or cut file, is a typed error or does no harm; it never is wrong data."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.broker.storage.logs import (
    NOW,
    append,
    append_marker,
    make_batch,
    make_log,
    make_marker,
    memory_directory,
    names,
    path_of,
    read_all,
)

from ottla.broker.storage.directory_files import read_topic_id, write_topic_id
from ottla.broker.storage.errors import StorageError
from ottla.broker.storage.log import Log
from ottla.broker.storage.offset_lookup import offset_for_timestamp
from ottla.broker.storage.recovery.recovery import close_log
from ottla.protocol.control_records import ControlType
from ottla.protocol.errors import CorruptBatchError, KafkaError
from ottla.protocol.records import RecordBatch

TYPED = (StorageError, KafkaError, CorruptBatchError)
TOPIC_ID = bytes(range(16))


class Reference(NamedTuple):
    """A log on disk, and what is in it."""

    directory: Path
    batches: list[bytes]
    aborted: list[tuple[int, int]]
    epochs: list[tuple[int, int]]
    producers: list[tuple[int, ...]]

    @property
    def end(self) -> int:
        return len(self.batches)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """Segments with transactions and several leader epochs, closed in order; every batch has one record."""
    directory = tmp_path_factory.mktemp("reference") / "orders-0"
    log = make_log(directory)
    for number in range(14):
        epoch = 3 + number // 5
        first = make_batch(producer_id=7, sequence=2 * number, transactional=True, timestamps=[NOW + number])
        append(log, first, epoch)
        append(log, make_batch(producer_id=8, sequence=number, timestamps=[NOW + 500 - number]), epoch)
        append(log, make_batch(producer_id=7, sequence=2 * number + 1, transactional=True), epoch)
        append_marker(log, make_marker(ControlType(number % 3 == 0), 7), epoch)
    write_topic_id(directory, TOPIC_ID)
    found = Reference(
        directory,
        [bytes(batch.view) for batch in read_all(log)],
        log.aborted_transactions(0, log.log_end_offset),
        log.leader_epochs.entries,
        sorted(log.producers.entries()),
    )
    close_log(log)
    assert len(found.aborted) == 9
    assert len(names(directory, ".log")) == 6
    return found


class Damaged:
    """Copies of the reference, each with damage of its own."""

    def __init__(self, reference: Reference, directory: Path, seed: int) -> None:
        self.reference = reference
        self.directory = directory
        self.chooser = random.Random(seed)

    def copies(self, count: int) -> Iterator[Path]:
        for number in range(count):
            copy = self.directory / str(number)
            shutil.copytree(self.reference.directory, copy)
            yield copy

    def check(self, directory: Path, *, may_cut: bool) -> bool:
        """Open the log as after a clean or an unclean stop; return whether nothing was noticed, nor wrong."""
        was_clean = self.chooser.random() < 0.5
        end = self.reference.end
        recovery_point = end if was_clean else self.chooser.choice([0, end // 2, end])
        try:
            log = make_log(directory, was_clean=was_clean, recovery_point=recovery_point)
            # The last batch alone may go although it was flushed.
            assert log.log_end_offset >= min(recovery_point, end - 1)
            self._check_contents(log, may_cut=may_cut)
        except TYPED:
            return False
        return True

    def _check_contents(self, log: Log, *, may_cut: bool) -> None:
        reference, end = self.reference, log.log_end_offset
        found = [bytes(batch.view) for batch in read_all(log, self.chooser.choice([1, 200, 10_000]))]
        assert found == reference.batches[:end]
        assert end == reference.end or may_cut
        if end == reference.end:
            assert log.aborted_transactions(0, end) == reference.aborted
            assert log.leader_epochs.entries == reference.epochs
            assert sorted(log.producers.entries()) == reference.producers
        times = [RecordBatch(data).max_timestamp for data in reference.batches[:end]]
        for timestamp in (NOW, NOW + 5, NOW + 490, NOW + 500, NOW + 501):
            at = offset_for_timestamp(log, timestamp)
            expected = next((offset for offset, known in enumerate(times) if known >= timestamp), None)
            assert (at.offset if at is not None else None) == expected


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """A directory of this test, in memory if there is such a thing."""
    with tempfile.TemporaryDirectory(prefix="ottla-log-", dir=memory_directory()) as name:
        yield Path(name)


@pytest.fixture(params=range(3))
def damaged(reference: Reference, memory_path: Path, request: pytest.FixtureRequest) -> Damaged:
    return Damaged(reference, memory_path, request.param)


def flip(chooser: random.Random, path: Path) -> None:
    """Turn one bit of a file over."""
    data = bytearray(path.read_bytes())
    bit = chooser.randrange(8 * len(data))
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def test_a_bit_in_a_log_file_is_noticed(damaged: Damaged) -> None:
    """By the CRC, by the order of offsets and epochs, or because there is no batch."""
    for copy in damaged.copies(150):
        flip(damaged.chooser, damaged.chooser.choice(sorted(copy.glob("*.log"))))
        damaged.check(copy, may_cut=True)


def test_every_bit_of_a_header_is_noticed(reference: Reference, memory_path: Path) -> None:
    """Of the first, a middle and the last batch of the log; what lies outside the CRC is no exception."""
    damaged = Damaged(reference, memory_path, 0)
    paths = sorted(path.name for path in reference.directory.glob("*.log"))
    silent = []
    copies = damaged.copies(3 * 61 * 8 // 4)
    for place, (name, batch) in enumerate([(paths[0], 0), (paths[2], 3), (paths[-1], -1)]):
        lengths = [len(data) for data in reference.batches]
        begins = [int(path[:20]) for path in paths]
        first = begins[paths.index(name)]
        number = first + batch if batch >= 0 else reference.end - 1
        position = sum(lengths[first:number])
        for bit in range(place, 61 * 8, 4):
            copy = next(copies)
            data = bytearray((copy / name).read_bytes())
            data[position + bit // 8] ^= 1 << bit % 8
            (copy / name).write_bytes(data)
            if damaged.check(copy, may_cut=True) and len(read_all(make_log(copy))) == reference.end:
                silent.append((name, bit))

    assert silent == []


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot"])
def test_a_bit_in_a_file_that_the_log_gives_again_does_no_harm(damaged: Damaged, suffix: str) -> None:
    """It is made anew."""
    for copy in damaged.copies(40):
        files = [path for path in sorted(copy.glob(f"*{suffix}")) if path.stat().st_size]
        flip(damaged.chooser, damaged.chooser.choice(files))
        assert damaged.check(copy, may_cut=False)


def test_a_bit_in_the_leader_epochs_is_noticed(damaged: Damaged) -> None:
    """The batches carry them too; only what was not flushed may be given up."""
    for copy in damaged.copies(60):
        flip(damaged.chooser, copy / "leader-epoch-checkpoint")
        damaged.check(copy, may_cut=True)


def test_a_bit_in_the_topic_id_is_an_error_or_another_topic(damaged: Damaged) -> None:
    """Which the controller notices, since it knows the id; the log itself does not read the file."""
    for copy in damaged.copies(60):
        flip(damaged.chooser, copy / "partition.metadata")
        try:
            assert read_topic_id(copy) != TOPIC_ID
        except StorageError:
            continue
        assert damaged.check(copy, may_cut=False)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
def test_files_that_the_log_gives_again_may_be_missing(damaged: Damaged, suffix: str) -> None:
    """One of them, or all."""
    for number, copy in enumerate(damaged.copies(8)):
        files = sorted(copy.glob(f"*{suffix}"))
        for path in files if number % 2 else [damaged.chooser.choice(files)]:
            path.unlink()
        assert damaged.check(copy, may_cut=False)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot"])
def test_files_that_the_log_gives_again_may_be_cut(damaged: Damaged, suffix: str) -> None:
    """To any size, also to one of whole entries."""
    for copy in damaged.copies(25):
        path = damaged.chooser.choice([path for path in sorted(copy.glob(f"*{suffix}")) if path.stat().st_size])
        os.truncate(path, damaged.chooser.randrange(path.stat().st_size))
        assert damaged.check(copy, may_cut=False)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot"])
def test_files_that_the_log_gives_again_may_have_zeros_behind(damaged: Damaged, suffix: str) -> None:
    """As a preallocated one has that nobody trimmed."""
    for copy in damaged.copies(10):
        path = damaged.chooser.choice(sorted(copy.glob(f"*{suffix}")))
        with path.open("ab") as file:
            file.write(bytes(damaged.chooser.choice([8, 12, 24, 34, 100])))
        assert damaged.check(copy, may_cut=False)


def test_a_log_file_may_be_cut_or_have_zeros_behind(damaged: Damaged) -> None:
    """Lost batches are noticed where they were flushed, or are the end of the log."""
    for number, copy in enumerate(damaged.copies(60)):
        path = damaged.chooser.choice(sorted(copy.glob("*.log")))
        size = path.stat().st_size
        if number % 2:
            os.truncate(path, damaged.chooser.randrange(size))
        else:
            os.truncate(path, size + damaged.chooser.choice([1, 100, 5000]))
        damaged.check(copy, may_cut=True)


def test_a_log_file_cut_between_batches_is_noticed(reference: Reference, memory_path: Path) -> None:
    """Nothing in the file tells that there was more; its indexes and the next segment do."""
    damaged = Damaged(reference, memory_path, 0)
    begins = names(reference.directory, ".log")
    for copy, begin in zip(damaged.copies(4), begins[:4], strict=True):
        sizes = [len(data) for data in reference.batches[begin : begin + 4]]
        os.truncate(path_of(copy, begin), sum(sizes))
        with pytest.raises(TYPED):
            read_all(make_log(copy, was_clean=True, recovery_point=reference.end))
