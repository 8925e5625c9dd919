"""Rebuilding the producers' state and the aborted transactions of a log from its batches.

A snapshot has the state at its offset, and the batches from there on give the rest. The same pass gives the index of
aborted transactions: for a segment whose index may be wrong, it is rebuilt from the markers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from ottla.broker.storage.errors import CorruptIndexError
from ottla.broker.storage.producers.aborted_transactions import AbortedIndexEntry
from ottla.broker.storage.producers.producer_snapshot import (
    StoredProducers,
    delete_snapshots_above,
    load_newest_snapshot,
    write_snapshot,
)
from ottla.broker.storage.producers.producers import Producers
from ottla.broker.storage.segment import Segment
from ottla.broker.storage.segment_file import read_batch


def replay_from_snapshot(directory: Path, producers: Producers, segments: Sequence[Segment]) -> None:
    """Bring the producers' state to the end of the log; the transaction indexes are complete already."""
    begin = _restore(directory, producers, segments[-1].next_offset)
    for _ in _replayed(producers, segments, begin):
        pass


def replay_scanned(directory: Path, producers: Producers, segments: Sequence[Segment], scanned: int) -> None:
    """Do the same after an unclean stop, in which the segments from the index `scanned` on were scanned.

    Their transaction indexes and snapshots may refer to lost batches, so they are rebuilt.
    """
    first_offset = segments[scanned].base_offset
    delete_snapshots_above(directory, first_offset)
    begin = _restore(directory, producers, first_offset)
    for _ in _replayed(producers, segments[:scanned], begin):
        pass
    for segment in segments[scanned:]:
        if segment.base_offset > first_offset:
            # The log must open on a full disk too: an older snapshot serves as well.
            with suppress(OSError):
                write_snapshot(directory, StoredProducers(segment.base_offset, producers.entries()), durable=False)
        _replace_transaction_index(segment, _replayed(producers, [segment], begin))


def check_transaction_index(directory: Path, segments: Sequence[Segment], segment: Segment) -> None:
    """Rebuild the transaction index that an earlier process left in a segment, if it differs from the markers."""
    if segment.aborted_transactions.path.exists():
        producers = Producers()
        begin = _restore(directory, producers, segment.base_offset)
        for _ in _replayed(producers, takewhile(lambda earlier: earlier is not segment, segments), begin):
            pass
        aborted = list(_replayed(producers, [segment], begin))
        try:
            is_right = list(segment.aborted_transactions) == aborted
        except CorruptIndexError:
            is_right = False
        if not is_right:
            _replace_transaction_index(segment, aborted)
    segment.has_aborted = segment.aborted_transactions.path.exists()
    segment.is_transaction_index_sound = True


def _replace_transaction_index(segment: Segment, aborted: Iterable[AbortedIndexEntry]) -> None:
    segment.aborted_transactions.delete()
    segment.has_aborted = False
    for transaction in aborted:
        segment.add_aborted(transaction)
    segment.is_transaction_index_sound = True


def _restore(directory: Path, producers: Producers, offset: int) -> int:
    """Restore the newest snapshot up to `offset`; return the offset from which to replay."""
    snapshot = load_newest_snapshot(directory, offset)
    if snapshot is None:
        producers.reset()
        return 0
    producers.restore(snapshot)
    return snapshot.offset


def _replayed(producers: Producers, segments: Iterable[Segment], begin: int) -> Iterator[AbortedIndexEntry]:
    """Replay every batch from `begin` on; yield the transactions that they abort."""
    for segment in segments:
        if segment.next_offset <= begin:
            continue
        file = segment.file
        for header in segment.headers_from(begin):
            if header.base_offset < begin or header.producer_id < 0:
                continue
            batch = read_batch(file.fd, segment.path, header.position, segment.size)
            aborted = producers.update(batch, header.base_offset)
            if aborted is not None:
                yield aborted
