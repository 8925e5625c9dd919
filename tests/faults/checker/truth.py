"""What must have been in each partition, put together from everything that anybody saw."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from tests.faults.checker.history import (
    NO_EPOCH,
    NO_OFFSET,
    NO_PRODUCER_ID,
    Assign,
    Commit,
    Drain,
    Fail,
    FaultStart,
    FaultStop,
    History,
    Info,
    Invoke,
    IsrChange,
    LeaderStart,
    Ok,
    Own,
    Poll,
    PolledMarker,
    PositionLost,
    ReplicaLog,
    TailLost,
)


class Outcome(StrEnum):
    """How a send ended."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"
    # Acknowledged, and then excused by a loss of power: it may be there or not.
    EXCUSED = "excused"


@dataclass(slots=True)
class Send:
    """One send from invocation to answer."""

    invoked: Invoke
    outcome: Outcome = Outcome.INFO
    completed_ns: int | None = None
    offset: int = NO_OFFSET
    error: str = ""

    @property
    def value(self) -> str:
        """What was sent."""
        return self.invoked.value

    @property
    def was_acknowledged(self) -> bool:
        """Whether the broker said yes, whatever became of it."""
        return self.outcome in (Outcome.OK, Outcome.EXCUSED)

    def __str__(self) -> str:
        told = f"at {self.offset}" if self.outcome is Outcome.OK else self.error
        return f"send of {self.value} {self.outcome} {told}".rstrip()


@dataclass(frozen=True, slots=True)
class Read:
    """One record in the hands of a consumer; polls and assignments are numbered through the whole run."""

    offset: int
    value: str
    leader_epoch: int
    # Id and epoch of the producer.
    producer: tuple[int, int]
    worker: str
    assignment: int
    poll: int
    time_ns: int
    # Whether the reader asked for read_committed.
    is_committed: bool

    def __str__(self) -> str:
        sent = "" if self.producer[0] == NO_PRODUCER_ID else f" (producer {self.producer[0]} epoch {self.producer[1]})"
        return f"{self.worker} read {self.value} at {self.offset}{sent}"


@dataclass(frozen=True, slots=True)
class SeenWatermark:
    """How far consumers may read, as it came with a poll."""

    poll: int
    invoked_ns: int
    time_ns: int
    broker: int
    leader_epoch: int
    high_watermark: int
    last_stable_offset: int

    @property
    def term(self) -> tuple[int, int]:
        """Who leads, and in which epoch."""
        return self.broker, self.leader_epoch

    def __str__(self) -> str:
        return (
            f"last stable offset {self.last_stable_offset} with high watermark {self.high_watermark} "
            f"at broker {self.broker} in epoch {self.leader_epoch}"
        )


@dataclass(slots=True)
class PartitionTruth:
    """Everything that is known of one partition."""

    name: str
    sends: list[Send] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    markers: set[PolledMarker] = field(default_factory=set)
    watermarks: list[SeenWatermark] = field(default_factory=list)
    lost_positions: list[PositionLost] = field(default_factory=list)
    owners: list[Own] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    leader_starts: list[LeaderStart] = field(default_factory=list)
    isr_changes: list[IsrChange] = field(default_factory=list)
    replica_logs: list[ReplicaLog] = field(default_factory=list)
    # Where the log ended after a loss of power; None where there was none. Positions behind it may be out of range.
    lost_from: int | None = None
    # Derived from the above by `settle`.
    values_at: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    offsets_of: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    reads_of: dict[str, list[Read]] = field(default_factory=lambda: defaultdict(list))
    send_of: dict[str, Send] = field(default_factory=dict)
    read_offsets: list[int] = field(default_factory=list)
    # What readers with read_committed read, at any time and in the end.
    committed_offsets: list[int] = field(default_factory=list)
    values_in_the_end: set[str] = field(default_factory=set)
    committed_in_the_end: dict[str, int] = field(default_factory=dict)

    def lose_tail(self, offset: int) -> None:
        """Take back what was seen so far from an offset on: it may be gone, and others may get its offsets."""
        self.lost_from = offset if self.lost_from is None else min(offset, self.lost_from)
        for send in self.sends:
            if send.outcome is Outcome.OK and send.offset >= offset:
                send.outcome, send.offset = Outcome.EXCUSED, NO_OFFSET
        self.reads = [read for read in self.reads if read.offset < offset]
        self.markers = {marker for marker in self.markers if marker.offset < offset}
        self.watermarks.clear()

    def settle(self, drains: set[str]) -> None:
        """Derive which values are where: what was read, and what was acknowledged with an offset."""
        in_the_end = [read for read in self.reads if read.worker in drains]
        self.values_in_the_end = {read.value for read in in_the_end}
        self.committed_in_the_end = {read.value: read.offset for read in in_the_end if read.is_committed}
        for read in self.reads:
            self.values_at[read.offset].add(read.value)
            self.offsets_of[read.value].add(read.offset)
            self.reads_of[read.value].append(read)
        for send in self.sends:
            self.send_of[send.value] = send
            if send.outcome is Outcome.OK and send.offset != NO_OFFSET:
                self.values_at[send.offset].add(send.value)
                self.offsets_of[send.value].add(send.offset)
        for marker in self.markers:
            kind = "commit" if marker.is_commit else "abort"
            self.values_at[marker.offset].add(f"<{kind} of producer {marker.producer_id}>")
        self.read_offsets = sorted({read.offset for read in self.reads})
        # One that only a reader in error saw is not a record that others skip.
        of_committed = [read for read in self.reads if read.is_committed]
        if self.committed_in_the_end:
            of_committed = [read for read in of_committed if read.value in self.committed_in_the_end]
        self.committed_offsets = sorted({read.offset for read in of_committed})

    def read_between(self, after: int, before: int, *, is_committed: bool = False) -> list[int]:
        """Return the offsets strictly between two others at which somebody, or a committed reader, read something."""
        offsets = self.committed_offsets if is_committed else self.read_offsets
        return offsets[bisect_right(offsets, after) : bisect_left(offsets, before)]

    def repeats(self) -> dict[str, dict[int, tuple[int, int]]]:
        """Return the values at several offsets, with the producer at each offset where somebody saw it."""
        return {
            value: {
                offset: next(
                    (read.producer for read in self.reads_of[value] if read.offset == offset and _is_known(read)),
                    (NO_PRODUCER_ID, NO_EPOCH),
                )
                for offset in sorted(offsets)
            }
            for value, offsets in self.offsets_of.items()
            if len(offsets) > 1
        }

    def surroundings(self, offset: int, count: int = 5) -> str:
        """Say what is known of the offsets around one."""
        known = (
            f"{at}: {' | '.join(sorted(self.values_at[at])) if at in self.values_at else '?'}"
            for at in range(max(0, offset - count), offset + count + 1)
        )
        return ", ".join(known)


@dataclass(slots=True)
class Truth:
    """A whole run."""

    partitions: dict[str, PartitionTruth] = field(default_factory=dict)
    fault_starts: list[FaultStart] = field(default_factory=list)
    fault_stops: list[FaultStop] = field(default_factory=list)
    drains: list[Drain] = field(default_factory=list)
    # When every machine lost power for the last time.
    power_lost_ns: int | None = None
    # Answers to sends that nobody made, and second answers: the history itself is wrong.
    contradictions: list[str] = field(default_factory=list)

    def partition(self, name: str) -> PartitionTruth:
        """Return a partition, which is made when it is first named."""
        return self.partitions.setdefault(name, PartitionTruth(name))

    def sends(self) -> Iterator[Send]:
        """Go through the sends to all partitions."""
        for partition in self.partitions.values():
            yield from partition.sends

    @property
    def is_drained(self) -> bool:
        """Whether everything was read in the end."""
        return bool(self.drains) and all(drain.is_complete for drain in self.drains)


def truth_of(history: History) -> Truth:
    """Put the events of a history in their places."""
    truth = Truth()
    sends: dict[tuple[str, int], Send] = {}
    values: set[str] = set()
    assignments: dict[str, int] = {}
    for number, event in enumerate(history.events):
        match event:
            case Invoke():
                send = Send(event)
                if (event.worker, event.op) in sends or event.value in values:
                    truth.contradictions.append(f"{event.worker} sends {event.value} twice")
                values.add(event.value)
                sends[event.worker, event.op] = send
                truth.partition(event.partition).sends.append(send)
            case Ok() | Fail() | Info():
                _complete(truth, sends.get((event.worker, event.op)), event)
            case Assign():
                assignments[event.worker] = number
            case Poll():
                _poll(truth, number, event, assignments.get(event.worker, -1))
            case PositionLost():
                lost_from = truth.partition(event.partition).lost_from
                if lost_from is None or event.offset <= lost_from:
                    truth.partition(event.partition).lost_positions.append(event)
            case TailLost():
                truth.partition(event.partition).lose_tail(event.offset)
                truth.power_lost_ns = event.time_ns
                # Nobody who reads on is compared with what it read before.
                assignments = dict.fromkeys(assignments, number)
            case Own():
                assignments[event.worker] = number
                for owned in event.partitions:
                    truth.partition(owned).owners.append(event)
            case Commit():
                truth.partition(event.partition).commits.append(event)
            case LeaderStart():
                truth.partition(event.partition).leader_starts.append(event)
            case IsrChange():
                truth.partition(event.partition).isr_changes.append(event)
            case ReplicaLog():
                truth.partition(event.partition).replica_logs.append(event)
            case FaultStart():
                truth.fault_starts.append(event)
            case FaultStop():
                truth.fault_stops.append(event)
            case Drain():
                truth.drains.append(event)
    for partition in truth.partitions.values():
        partition.settle({drain.worker for drain in truth.drains})
    return truth


def _complete(truth: Truth, send: Send | None, event: Ok | Fail | Info) -> None:
    if send is None or send.completed_ns is not None:
        truth.contradictions.append(f"an answer to {event.worker} {event.op}, which waits for none")
        return
    send.completed_ns = event.time_ns
    match event:
        case Ok():
            send.outcome, send.offset = Outcome.OK, event.offset
        case Fail():
            send.outcome, send.error = Outcome.FAIL, event.error
        case Info():
            send.outcome, send.error = Outcome.INFO, event.error


def _is_known(read: Read) -> bool:
    return read.producer[0] != NO_PRODUCER_ID


def _poll(truth: Truth, number: int, poll: Poll, assignment: int) -> None:
    for record in poll.records:
        truth.partition(record.partition).reads.append(
            Read(
                offset=record.offset,
                value=record.value,
                leader_epoch=record.leader_epoch,
                producer=(record.producer_id, record.producer_epoch),
                worker=poll.worker,
                assignment=assignment,
                poll=number,
                time_ns=poll.time_ns,
                is_committed=poll.is_committed,
            )
        )
    for marker in poll.markers:
        truth.partition(marker.partition).markers.add(marker)
    for watermark in poll.watermarks:
        truth.partition(watermark.partition).watermarks.append(
            SeenWatermark(
                poll=number,
                invoked_ns=poll.invoked_ns or poll.time_ns,
                time_ns=poll.time_ns,
                broker=watermark.broker,
                leader_epoch=watermark.leader_epoch,
                high_watermark=watermark.high_watermark,
                last_stable_offset=watermark.last_stable_offset,
            )
        )
