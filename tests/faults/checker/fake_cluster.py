"""A cluster in memory that keeps every promise, or breaks one on demand: what the checker must notice is known."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from tests.faults.checker.history import (
    Assign,
    Commit,
    Drain,
    Event,
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
    PolledRecord,
    PositionLost,
    ReplicaBatch,
    ReplicaLog,
    Watermark,
    in_order,
)

PARTITION = "fake-0"
ROUNDS = 30
FAILOVER_ROUNDS = (8, 16, 24)
BUG_ROUND = 15
STEP_NS = 1_000_000
BROKERS = (1, 2, 3)
PRODUCERS = ("p0", "p1")
CONSUMERS = ("c0", "c1")
GROUP = "readers"
MEMBERS = ("m0", "m1")


class Bug(Enum):
    """The promises that it can break."""

    DROP_ACKED_RECORD = auto()
    ACK_BEFORE_REPLICATION = auto()
    DUPLICATE_ON_RETRY = auto()
    WATERMARK_BACK = auto()
    TWO_LEADERS = auto()
    SERVE_ABOVE_WATERMARK = auto()
    REUSE_OFFSET_AFTER_TRUNCATION = auto()
    SWAP_TWO_RECORDS = auto()
    LOSE_TAIL = auto()
    SKIP_ON_POLL = auto()
    SKIP_INSIDE_POLL = auto()
    DELIVER_TWICE = auto()
    LOSE_POSITION = auto()
    INVERT_INSIDE_POLL = auto()
    APPEND_WHAT_FAILED = auto()
    SKIP_AN_OFFSET = auto()
    INVENT_A_VALUE = auto()
    EPOCH_BACK = auto()
    DAMAGE_ONE_REPLICA = auto()
    LOSE_A_COMMIT = auto()
    TAKE_A_COMMIT_OF_AN_OLD_MEMBER = auto()
    SKIP_WHAT_IS_NOT_COMMITTED = auto()
    TWO_OWNERS = auto()


@dataclass(frozen=True, slots=True)
class _Stored:
    """What a log holds at an offset; no value where the offset is a hole."""

    value: str | None
    epoch: int


@dataclass(slots=True)
class FakeCluster:
    """One partition with three replicas; replication is immediate, time is counted."""

    bug: Bug | None = None
    events: list[Event] = field(default_factory=list)
    logs: dict[int, list[_Stored]] = field(default_factory=lambda: {broker: [] for broker in BROKERS})
    leader: int = 1
    epoch: int = 0
    high_watermark: int = 0
    positions: dict[str, int] = field(default_factory=dict)
    generation: int = 0
    committed: int = 0
    _now_ns: int = 0
    _ops: dict[str, int] = field(default_factory=dict)

    def run(self) -> History:
        """Produce, consume and fail over for some rounds, then read everything."""
        self._lead()
        self._now_ns += STEP_NS
        for worker in CONSUMERS:
            self._assign(worker)
        for number in range(ROUNDS):
            if number in FAILOVER_ROUNDS:
                self._fail_over(number)
            self._produce(number)
            for worker in CONSUMERS:
                self._poll(worker, number)
            self._read_in_group(number)
        self._end()
        return in_order(self.events)

    @property
    def _log(self) -> list[_Stored]:
        return self.logs[self.leader]

    def _tick(self) -> int:
        self._now_ns += STEP_NS
        return self._now_ns

    def _is_time_for(self, bug: Bug, number: int, at: int = BUG_ROUND) -> bool:
        return self.bug is bug and number == at

    def _invoke(self, worker: str) -> tuple[int, str]:
        op = self._ops[worker] = self._ops.get(worker, -1) + 1
        value = f"{worker}-{op}"
        self.events.append(Invoke(time_ns=self._tick(), worker=worker, op=op, partition=PARTITION, value=value))
        return op, value

    def _append(self, value: str | None, *, is_replicated: bool = True) -> int:
        offset = len(self._log)
        for broker in BROKERS if is_replicated else (self.leader,):
            self.logs[broker].append(_Stored(value, self.epoch))
        if is_replicated:
            self.high_watermark = len(self._log)
        return offset

    def _ack(self, worker: str, op: int, offset: int) -> None:
        self.events.append(Ok(time_ns=self._tick(), worker=worker, op=op, offset=offset))

    def _produce(self, number: int) -> None:
        for worker in PRODUCERS:
            # Two under way at a time, as an idempotent producer may have.
            (first, first_value), (second, second_value) = self._invoke(worker), self._invoke(worker)
            if self._is_time_for(Bug.SWAP_TWO_RECORDS, number):
                second_offset, first_offset = self._append(second_value), self._append(first_value)
            else:
                is_dropped = worker == "p0" and self._is_time_for(Bug.DROP_ACKED_RECORD, number)
                first_offset = self._append(None if is_dropped else first_value)
                second_offset = self._append(second_value)
            self._ack(worker, first, first_offset)
            self._ack(worker, second, second_offset)
        if self._is_time_for(Bug.INVENT_A_VALUE, number):
            self._append("nobody-0")
        if self._is_time_for(Bug.SKIP_AN_OFFSET, number):
            self._append(None)

    def _fail_over(self, number: int) -> None:
        """Kill the leader while one send is under way and another is refused; the next broker leads."""
        self.events.append(FaultStart(time_ns=self._tick(), name="kill", target=f"broker {self.leader}"))
        worker = PRODUCERS[0]
        op, value = self._invoke(worker)
        is_last = number == FAILOVER_ROUNDS[-1]
        is_only_here = is_last and self.bug in (Bug.ACK_BEFORE_REPLICATION, Bug.REUSE_OFFSET_AFTER_TRUNCATION)
        offset = self._append(value, is_replicated=not is_only_here)
        if self.bug is Bug.ACK_BEFORE_REPLICATION and is_last:
            self._ack(worker, op, offset)
        elif self.bug is Bug.REUSE_OFFSET_AFTER_TRUNCATION and is_last:
            self.high_watermark += 1
            self._poll(CONSUMERS[0], number)
            self.high_watermark -= 1
            self.positions[CONSUMERS[0]] = self.high_watermark
            self._assign(CONSUMERS[0])
        self._lead(self.leader % len(BROKERS) + 1)
        if is_only_here:
            self.logs = {broker: list(self._log) for broker in BROKERS}
            if self.bug is Bug.REUSE_OFFSET_AFTER_TRUNCATION:
                self.events.append(Info(time_ns=self._tick(), worker=worker, op=op, error="timed out"))
        else:
            # The answer was lost with the old leader; the new one knows the sequence number of the retry.
            if self.bug is Bug.DUPLICATE_ON_RETRY and is_last:
                offset = self._append(value)
            self._ack(worker, op, offset)
        self._refuse(number)
        self.events.append(FaultStop(time_ns=self._tick(), name="kill", proof="the process is gone"))

    def _refuse(self, number: int) -> None:
        worker = PRODUCERS[1]
        op, value = self._invoke(worker)
        self.events.append(Fail(time_ns=self._tick(), worker=worker, op=op, error="NOT_LEADER_OR_FOLLOWER"))
        if self._is_time_for(Bug.APPEND_WHAT_FAILED, number, FAILOVER_ROUNDS[1]):
            self._append(value)

    def _lead(self, broker: int = 1) -> None:
        self.leader = broker
        self.epoch += -1 if self.bug is Bug.EPOCH_BACK and self.epoch == 2 else 1
        self.events.append(
            LeaderStart(time_ns=self._tick(), partition=PARTITION, leader_epoch=self.epoch, broker=broker)
        )
        self.events.append(
            IsrChange(
                time_ns=self._tick(), partition=PARTITION, leader_epoch=self.epoch, isr=BROKERS, version=self._now_ns
            )
        )
        if self.bug is Bug.TWO_LEADERS and self.epoch == 2:
            other = broker % len(BROKERS) + 1
            self.events.append(
                LeaderStart(time_ns=self._tick(), partition=PARTITION, leader_epoch=self.epoch, broker=other)
            )

    def _assign(self, worker: str) -> None:
        self.positions.setdefault(worker, 0)
        self.events.append(Assign(time_ns=self._tick(), worker=worker, partitions=(PARTITION,)))

    def _poll(self, worker: str, number: int) -> None:
        position, shown, end = self.positions[worker], self.high_watermark, self.high_watermark
        is_first = worker == CONSUMERS[0]
        if is_first and self._is_time_for(Bug.SERVE_ABOVE_WATERMARK, number):
            shown -= 1
        if is_first and self._is_time_for(Bug.SKIP_ON_POLL, number):
            position += 1
        if is_first and self._is_time_for(Bug.DELIVER_TWICE, number):
            position -= 1
        records = [
            PolledRecord(PARTITION, offset, stored.value, stored.epoch)
            for offset, stored in enumerate(self._log[position:end], position)
            if stored.value is not None
        ]
        if is_first and self._is_time_for(Bug.SKIP_INSIDE_POLL, number):
            del records[1]
        if is_first and self._is_time_for(Bug.INVERT_INSIDE_POLL, number):
            records.append(records[-2])
        if self._is_time_for(Bug.WATERMARK_BACK, number) and not is_first:
            shown, records = shown - 2, records[:1]
            end = position + 1
        self.positions[worker] = end
        if is_first and self._is_time_for(Bug.LOSE_POSITION, number):
            self.events.append(PositionLost(time_ns=self._tick(), worker=worker, partition=PARTITION, offset=position))
        watermark = Watermark(PARTITION, self.leader, self.epoch, shown)
        self.events.append(Poll(time_ns=self._tick(), worker=worker, records=tuple(records), watermarks=(watermark,)))

    def _read_in_group(self, number: int) -> None:
        """Let the member whose turn it is read all and commit; with each leader there is a new generation."""
        is_new = self.generation != self.epoch
        self.generation = self.epoch
        owner, old = MEMBERS[self.epoch % 2], MEMBERS[(self.epoch + 1) % 2]
        if is_new:
            self._own(owner)
            if self._is_time_for(Bug.TWO_OWNERS, number, FAILOVER_ROUNDS[1]):
                self._own(old)
            told = self.committed
            if self._is_time_for(Bug.LOSE_A_COMMIT, number, FAILOVER_ROUNDS[1]):
                told -= 3
            self._commit(owner, told)
            self.positions[owner] = told
            if self._is_time_for(Bug.SKIP_WHAT_IS_NOT_COMMITTED, number, FAILOVER_ROUNDS[1]):
                self.positions[owner] += 2
        records = tuple(
            PolledRecord(PARTITION, offset, stored.value, stored.epoch)
            for offset, stored in enumerate(self._log[: self.high_watermark])
            if offset >= self.positions[owner] and stored.value is not None
        )
        self.events.append(Poll(time_ns=self._tick(), worker=owner, records=records))
        before, self.committed = self.committed, self.high_watermark
        self.positions[owner] = self.committed
        self._commit(owner, self.committed)
        if self._is_time_for(Bug.TAKE_A_COMMIT_OF_AN_OLD_MEMBER, number):
            self._commit(old, before)

    def _own(self, worker: str) -> None:
        self.events.append(
            Own(
                time_ns=self._tick(),
                worker=worker,
                group=GROUP,
                generation=self.generation,
                partitions=(PARTITION,),
            )
        )

    def _commit(self, worker: str, offset: int) -> None:
        invoked_ns = self._tick()
        self.events.append(
            Commit(
                time_ns=self._tick(),
                worker=worker,
                group=GROUP,
                partition=PARTITION,
                offset=offset,
                invoked_ns=invoked_ns,
            )
        )

    def _end(self) -> None:
        """Read everything from the beginning, stop, and say what is on disk."""
        if self.bug is Bug.LOSE_TAIL:
            for broker in BROKERS:
                del self.logs[broker][-3:]
            self.high_watermark = len(self._log)
            self._lead(self.leader)
        self.positions["drain"] = 0
        self._assign("drain")
        self._poll("drain", ROUNDS)
        self.events.append(Drain(time_ns=self._tick(), worker="drain", is_complete=True))
        for broker, stored in self.logs.items():
            damaged = 7 if self.bug is Bug.DAMAGE_ONE_REPLICA and broker == BROKERS[-1] else -1
            batches = tuple(
                ReplicaBatch(offset, offset, one.epoch, "damaged" if offset == damaged else str(one.value))
                for offset, one in enumerate(stored[: self.high_watermark])
            )
            self.events.append(ReplicaLog(time_ns=self._tick(), partition=PARTITION, broker=broker, batches=batches))
