"""What happened in a run, as JSON lines: one event a line, written by whoever saw it, at once.

Times are nanoseconds of the system's monotonic clock, which all processes of one machine share. A `partition` is
`topic-number`. Whoever sends says `invoke` before anything leaves it and one of these after:

    ok      the broker has acknowledged it
    fail    it surely did not happen
    info    nobody knows: a time-out, or a connection lost after sending; so is a send that nothing follows

A transaction is named by its worker and a number, and is never used again. Its worker says `begin`, then what it sends,
polls and stages, then `end` before it asks for a commit or an abort, and `ended` after. Without an `end` that asks for
a commit, nothing of it may ever be committed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import Literal, TypeAlias

import msgspec

NO_OFFSET = -1
NO_EPOCH = -1
NO_PRODUCER_ID = -1
NO_WATERMARK = -1
NO_TRANSACTION = -1
ACKS_ALL = -1


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", omit_defaults=True):
    time_ns: int = msgspec.field(default_factory=time.monotonic_ns)


class Invoke(_Event, frozen=True, kw_only=True, tag="invoke"):
    """A send begins; `worker` and `op` together name it, and its value is in no other send.

    A value that was made from a record that its transaction consumed has the partition and the offset of that record.
    """

    worker: str
    op: int
    partition: str
    value: str
    acks: int = ACKS_ALL
    transaction: int = NO_TRANSACTION
    source: tuple[str, int] | None = None


class Ok(_Event, frozen=True, kw_only=True, tag="ok"):
    """A send was acknowledged; the offset may be missing."""

    worker: str
    op: int
    offset: int = NO_OFFSET


class Fail(_Event, frozen=True, kw_only=True, tag="fail"):
    """A send surely did not happen."""

    worker: str
    op: int
    error: str


class Info(_Event, frozen=True, kw_only=True, tag="info"):
    """A send may have happened, or may still happen."""

    worker: str
    op: int
    error: str


class Assign(_Event, frozen=True, kw_only=True, tag="assign"):
    """A consumer starts anew, at a position of its choice: what it reads now need not follow what it read before."""

    worker: str
    partitions: tuple[str, ...]


class PolledRecord(msgspec.Struct, frozen=True, array_like=True):
    """A record as a consumer got it."""

    partition: str
    offset: int
    value: str
    leader_epoch: int = NO_EPOCH
    # Who sent it: id and epoch of the producer, where the consumer sees batches.
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class PolledMarker(msgspec.Struct, frozen=True, array_like=True):
    """A control record, which ends the transaction of a producer in this partition."""

    partition: str
    offset: int
    producer_id: int
    producer_epoch: int
    is_commit: bool


class Watermark(msgspec.Struct, frozen=True, array_like=True):
    """How far a leader's answer says that consumers may read, and the epoch in which it leads; -1 where unknown."""

    partition: str
    broker: int
    leader_epoch: int
    high_watermark: int
    last_stable_offset: int = NO_OFFSET


class Poll(_Event, frozen=True, kw_only=True, tag="poll"):
    """What one poll returned; watermarks only where they came in the very same answer.

    `is_committed` says that the reader asked for read_committed; `transaction` is the one that the poll is part of.
    `invoked_ns` is when the broker was asked, and 0 where nothing else went on meanwhile.
    """

    worker: str
    records: tuple[PolledRecord, ...]
    watermarks: tuple[Watermark, ...] = ()
    markers: tuple[PolledMarker, ...] = ()
    is_committed: bool = False
    transaction: int = NO_TRANSACTION
    invoked_ns: int = 0


class PositionLost(_Event, frozen=True, kw_only=True, tag="position_lost"):
    """A consumer was told that its position is out of range, which means that what it had read is gone."""

    worker: str
    partition: str
    offset: int


class Own(_Event, frozen=True, kw_only=True, tag="own"):
    """A member of a group was given partitions, in a generation; it starts anew in each of them."""

    worker: str
    group: str
    generation: int
    partitions: tuple[str, ...]


class Commit(_Event, frozen=True, kw_only=True, tag="commit"):
    """The coordinator has stored a group's position, or tells it; `invoked_ns` is when it was asked to."""

    worker: str
    group: str
    partition: str
    offset: int
    invoked_ns: int


class BeginTransaction(_Event, frozen=True, kw_only=True, tag="begin"):
    """A worker begins a transaction, after all its earlier ones."""

    worker: str
    transaction: int


class StageOffsets(_Event, frozen=True, kw_only=True, tag="stage"):
    """A transaction is about to be given positions of a group, which count once it is committed."""

    worker: str
    transaction: int
    group: str
    offsets: tuple[tuple[str, int], ...]


class EndTransaction(_Event, frozen=True, kw_only=True, tag="end"):
    """A worker is about to ask for the commit or the abort of its transaction."""

    worker: str
    transaction: int
    is_commit: bool


class TransactionEnded(_Event, frozen=True, kw_only=True, tag="ended"):
    """What became of it: done, surely not done, or nobody knows."""

    worker: str
    transaction: int
    outcome: Literal["ok", "fail", "info"]
    error: str = ""


class LeaderStart(_Event, frozen=True, kw_only=True, tag="leader_start"):
    """A broker began to lead, as it says itself or as ZooKeeper has it."""

    partition: str
    leader_epoch: int
    broker: int


class IsrChange(_Event, frozen=True, kw_only=True, tag="isr"):
    """The in-sync replicas in ZooKeeper, with the version of the znode."""

    partition: str
    leader_epoch: int
    isr: tuple[int, ...]
    version: int


class TailLost(_Event, frozen=True, kw_only=True, tag="tail_lost"):
    """Every machine lost power: of what a partition held before this, only offsets below `offset` are promised."""

    partition: str
    offset: int


class ReplicaBatch(msgspec.Struct, frozen=True, array_like=True):
    """A batch in a replica's files: its first and last offset, its epoch, and a digest of all its bytes."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    digest: str


class ReplicaLog(_Event, frozen=True, kw_only=True, tag="replica_log"):
    """What a stopped broker has on disk of a partition, up to the high watermark that all replicas have reached."""

    partition: str
    broker: int
    batches: tuple[ReplicaBatch, ...]


class FaultStart(_Event, frozen=True, kw_only=True, tag="fault_start"):
    """Somebody begins to do harm; `ack_gap_max_s` bounds how long no send may be acknowledged around it."""

    name: str
    target: str
    ack_gap_max_s: float | None = None


class FaultStop(_Event, frozen=True, kw_only=True, tag="fault_stop"):
    """The harm is over; `proof` says how we know that it was there, and is empty if we do not."""

    name: str
    proof: str


class Drain(_Event, frozen=True, kw_only=True, tag="drain"):
    """After healing, everything was read from the beginning; not complete if that never reached the known ends.

    One that is committed was done by a read_committed reader.
    """

    worker: str
    is_complete: bool
    detail: str = ""
    is_committed: bool = False


Event: TypeAlias = (
    Invoke
    | Ok
    | Fail
    | Info
    | Assign
    | Poll
    | PositionLost
    | Own
    | Commit
    | BeginTransaction
    | StageOffsets
    | EndTransaction
    | TransactionEnded
    | LeaderStart
    | IsrChange
    | TailLost
    | ReplicaLog
    | FaultStart
    | FaultStop
    | Drain
)

_DECODER = msgspec.json.Decoder(Event)


class HistoryWriter:
    """Appends events to a file, each at once, from any thread."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._lock = Lock()

    def write(self, event: Event) -> None:
        """Append one event."""
        line = msgspec.json.encode(event) + b"\n"
        with self._lock:
            self._file.write(line)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class History(msgspec.Struct, frozen=True):
    """Events in the order of their times, and how many lines nobody could read."""

    events: Sequence[Event]
    unreadable_lines: int = 0


def in_order(events: Iterable[Event]) -> History:
    """Make a history of events that are there already."""
    return History(sorted(events, key=lambda event: event.time_ns))


def read_history(*paths: Path) -> History:
    """Merge what several writers saw; the last line of one that was killed may be torn, and is left out."""
    events: list[Event] = []
    unreadable = 0
    for path in paths:
        lines = path.read_bytes().split(b"\n")
        for line in lines[:-1]:
            try:
                events.append(_DECODER.decode(line))
            except msgspec.DecodeError:
                unreadable += 1
    return History(in_order(events).events, unreadable)
