"""One partition on this broker: its leader, its in-sync replicas, and its high watermark.

Only the partition changes its high watermark, and it wakes the requests that wait for its changes. Its lock protects
the leader epoch, the ISR and the followers' positions. The log has its own lock, which is taken inside this one.
Appends, truncations and reads hold the lock, so that none of them crosses a change of role: a request of one epoch must
not get records of another leader. Nothing waits for the network or ZooKeeper under the lock, and no request is woken
under it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from ottla.broker.replication.leader.leadership import (
    FollowerFetch,
    IsrAnswer,
    IsrProposal,
    Leadership,
    PartitionRole,
    RemoteReplica,
)
from ottla.broker.replication.waits import PartitionWaits, PendingAppend
from ottla.broker.storage.log import Appended, Log
from ottla.broker.storage.maintenance.group_commit import Callback, GroupCommit
from ottla.broker.storage.open_files import FileSlice
from ottla.broker.storage.producers.producers import (
    FROM_CLIENT,
    FROM_COORDINATOR,
    AppendOrigin,
    TransactionNumber,
)
from ottla.broker.storage.producers.verification import VerificationGuard
from ottla.broker.storage.validation import validated
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import NO_LEADER, TopicPartition
from ottla.protocol.records import NO_LEADER_EPOCH, NO_TIMESTAMP, TRANSACTIONAL_BIT, RecordBatch

__all__ = [
    "EpochEndOffset",
    "FollowerFetch",
    "IsrAnswer",
    "IsrProposal",
    "Partition",
    "PartitionContext",
    "PartitionRole",
    "Read",
    "RemoteReplica",
]


class EpochEndOffset(NamedTuple):
    """The largest epoch that is not above a requested one, and its end offset."""

    epoch: int
    end_offset: int


class Read(NamedTuple):
    """The result of a fetch for one partition."""

    records: FileSlice | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    # (producer id, first offset); None unless the reader is read_committed.
    aborted_transactions: list[tuple[int, int]] | None
    # Where the follower's log diverges from ours; then there are no records.
    diverging: EpochEndOffset | None = None


class PartitionContext(Struct):
    """What partitions need from the rest of the broker. Every call is cheap and takes no lock."""

    node_id: int
    clock: Callable[[], int]
    lag_max_ms: Callable[[], int] = lambda: 30_000
    # Whether a broker is alive, and whether a partition exists, according to the metadata.
    is_alive: Callable[[int], bool] = lambda broker: True
    exists: Callable[[TopicPartition], bool] = lambda partition: True
    # The broker epoch of our own registration.
    broker_epoch: Callable[[], int] = lambda: -1
    # False while our ZooKeeper session may have expired, so that another broker may lead.
    may_lead_alone: Callable[[], bool] = lambda: True
    # Whether ZooKeeper is known to have heard from us in the last so many milliseconds.
    was_heard_within_ms: Callable[[int], bool] = lambda limit_ms: True
    # Whether the coordinator must confirm that a partition is part of a transaction, before its first batch.
    verifies_transactions: Callable[[], bool] = lambda: False
    # Sends a proposal to the controller; the answer comes to `take_isr_answer`.
    propose: Callable[[IsrProposal], None] = lambda proposal: None
    # Requests that wait for partitions.
    waits: PartitionWaits = field(default_factory=PartitionWaits)
    # Flushes records to disk; None if no topic requires a flush before records are acknowledged.
    group_commit: GroupCommit | None = None


class Partition:
    """A replica of a partition, leading or following."""

    def __init__(self, partition: TopicPartition, topic_id: bytes, log: Log, context: PartitionContext) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self.node_id = context.node_id
        # Replaced under the lock when the replica was moved to another log directory (future_replica.py).
        self.log = log
        self.waits = context.waits
        self.lock = threading.Lock()
        self._context = context
        self._role = PartitionRole(NO_LEADER, -1, -1, (), frozenset())
        # None unless this broker leads.
        self._leadership: Leadership | None = None
        # For metrics. Incoming records are counted under the lock, so these counts are exact.
        self.appends = self.records_in = self.bytes_in = 0
        self.reads = self.bytes_out = 0
        self.replicated_bytes_in = self.replicated_bytes_out = 0
        self.isr_shrinks = self.isr_expands = self.failed_isr_updates = 0

    def __repr__(self) -> str:
        role = self._role
        return f"Partition({self.partition}, leader={role.leader_id} epoch {role.leader_epoch}, isr={sorted(role.isr)})"

    # Role

    @property
    def role(self) -> PartitionRole:
        """The controller's latest decision; immutable."""
        return self._role

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition."""
        return self._role.leader_id == self.node_id

    @property
    def isr(self) -> frozenset[int]:
        """The in-sync replicas, as the controller knows them."""
        return self._role.isr

    @property
    def is_proposal_pending(self) -> bool:
        """Whether an ISR proposal waits for the controller's answer."""
        leadership = self._leadership
        return leadership is not None and leadership.pending is not None

    @property
    def is_under_min_isr(self) -> bool:
        """Whether too few replicas are in sync for acks=all."""
        role = self._role
        return len(role.isr) < len(role.replicas) and len(role.isr) < self._min_isr(role)

    def take_role(self, role: PartitionRole) -> bool:
        """Take the role that the controller assigns; return False if it is not newer than the current one."""
        with self.lock:
            if role.leader_epoch < self._role.leader_epoch or (
                role.leader_epoch == self._role.leader_epoch and role.partition_epoch <= self._role.partition_epoch
            ):
                return False
            if role.leader_id == self.node_id:
                self._lead(role)
            else:
                self._leadership = None
                self._role = role
            return True

    def _lead(self, role: PartitionRole) -> None:
        earlier, start_offset = self._leadership, self.log.log_end_offset
        if earlier is not None and role.leader_epoch == earlier.role.leader_epoch:
            start_offset = earlier.start_offset
        else:
            with self.log.lock:
                self.log.leader_epochs.begin(role.leader_epoch, start_offset)
        self._leadership = Leadership(self.node_id, role, start_offset, self._context.clock(), earlier)
        self._role = role
        self._advance_high_watermark(self._leadership)

    def resign(self) -> None:
        """Neither lead nor follow until the controller assigns a role again; pending requests end with an error."""
        with self.lock:
            self._leadership = None
            # The controller may assign the same role again, if it never noticed that our session had expired.
            partition_epoch = self._role.partition_epoch - 1
            self._role = replace(self._role, leader_id=NO_LEADER, partition_epoch=partition_epoch)

    def check_leader(self, current_leader_epoch: int = -1) -> PartitionRole:
        """Return the role if this broker leads in that epoch (-1: any epoch); raise KafkaError otherwise."""
        role = self._role
        if role.leader_id != self.node_id:
            raise self._other_leads(role)
        if current_leader_epoch >= 0:
            self.check_epoch(role, current_leader_epoch)
        return role

    def _other_leads(self, role: PartitionRole) -> KafkaError:
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {role.leader_id} leads {self.partition}")

    def check_epoch(self, role: PartitionRole, current_leader_epoch: int) -> None:
        """Raise KafkaError if a client's leader epoch is older or newer than ours."""
        if current_leader_epoch < 0 or current_leader_epoch == role.leader_epoch:
            return
        if current_leader_epoch < role.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"{self.partition} is in epoch {role.leader_epoch}")
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"{self.partition} is in epoch {role.leader_epoch}")

    # Appending

    def append(self, data: memoryview | bytes, *, required_acks: int) -> PendingAppend:
        """Append a producer's batch. If it raises KafkaError, nothing was appended."""
        return self.append_validated(self.validated(data, required_acks), required_acks)

    def validated(self, data: memoryview | bytes, required_acks: int) -> RecordBatch:
        """Return a producer's batch, ready to be appended; raise KafkaError if it cannot be."""
        role, rules = self._role, self.log.rules
        if role.leader_id != self.node_id:
            raise self._other_leads(role)
        try:
            return validated(data, rules, self._context.clock() if rules.needs_time else 0)
        except KafkaError:
            # What keeps every batch out comes first. A good batch learns of it when it is appended.
            self._check_may_append(role, required_acks)
            raise

    def begin_verification(self, batch: RecordBatch, origin: AppendOrigin = FROM_CLIENT) -> VerificationGuard | None:
        """Return the guard for a batch that begins a transaction here, if the coordinator must be asked; else None."""
        if not self._context.verifies_transactions():
            return None
        with self.log.lock:
            return self.log.producers.begin_verification(batch, self._context.clock(), origin)

    def append_validated(
        self, batch: RecordBatch, required_acks: int, guard: VerificationGuard | None = None
    ) -> PendingAppend:
        """Append what `validated` returned; with its guard if the coordinator was asked, and has confirmed it."""
        if not batch.attributes & TRANSACTIONAL_BIT:
            return self._append(batch, required_acks, FROM_CLIENT)
        must_be_verified = self._context.verifies_transactions()
        return self._append(batch, required_acks, AppendOrigin(must_be_verified=must_be_verified, guard=guard))

    def append_batch(self, batch: RecordBatch, guard: VerificationGuard | None = None) -> PendingAppend:
        """Append records of a coordinator with acks=all; with the guard if they begin a transaction here."""
        must_be_verified = batch.is_transactional and self._context.verifies_transactions()
        return self._append(
            batch, -1, AppendOrigin(False, must_be_verified, guard) if must_be_verified else FROM_COORDINATOR
        )

    def append_marker(self, batch: RecordBatch, transaction_number: TransactionNumber) -> PendingAppend:
        """Append a marker with acks=all. One of a transaction that has its marker already is not appended again."""
        return self._append(batch, -1, AppendOrigin(is_client=False, transaction_number=transaction_number))

    def _append(self, batch: RecordBatch, required_acks: int, origin: AppendOrigin) -> PendingAppend:
        with self.lock:
            role, log, leadership = self._role, self.log, self._leadership
            self._check_may_append(role, required_acks)
            assert leadership is not None
            # Nobody else can have the batch.
            is_committed = not leadership.followers
            appended = log.append_as_leader(batch, role.leader_epoch, origin, is_committed)
            if not is_committed and len(leadership.maximal_isr) == 1:
                self._advance_high_watermark(leadership)
            self.appends += 1
            self.records_in += batch.record_count
            self.bytes_in += batch.size
        if not appended.is_duplicate:
            self.waits.appended(self.partition)
        return self._pending(log, appended, required_acks)

    def append_mirrored(self, data: memoryview | bytes, log_end_offset: int, log_start_offset: int) -> PendingAppend:
        """Append batches of another cluster with acks=all and their offsets, and follow its log start.

        Raises KafkaError as `Log.append_mirrored` does; nothing was appended then.
        """
        with self.lock:
            role, log, leadership = self._role, self.log, self._leadership
            self._check_may_append(role, -1)
            assert leadership is not None
            taken = log.append_mirrored(data, role.leader_epoch, log_end_offset, log_start_offset)
            if len(leadership.maximal_isr) == 1:
                self._advance_high_watermark(leadership)
            self.appends += len(taken)
            self.records_in += sum(each.record_count for each in taken)
            self.bytes_in += sum(each.size for each in taken)
            log.advance_log_start(min(log_start_offset, log.high_watermark))
            end_offset = log.log_end_offset
            appended = Appended(log_end_offset, end_offset - 1, NO_TIMESTAMP, log.log_start_offset)
        # Readers of records that are gone have to learn it, too.
        self.waits.moved(self.partition)
        return self._pending(log, appended, -1)

    def _pending(self, log: Log, appended: Appended, required_acks: int) -> PendingAppend:
        """Ask for a flush if the topic wants one. The caller holds no lock."""
        group_commit = self._context.group_commit
        must_flush = group_commit is not None and log.is_flush_wanted
        if must_flush and group_commit is not None:
            group_commit.request(self.log)
        return PendingAppend(self, appended, required_acks, not must_flush)

    def when_flushed(self, offset: int, callback: Callback) -> None:
        """Call back when everything below an offset is on disk, or with the error that prevents it."""
        assert self._context.group_commit is not None
        self._context.group_commit.when_flushed(self.log, offset, callback)

    def _check_may_append(self, role: PartitionRole, required_acks: int) -> None:
        if role.leader_id != self.node_id:
            raise self._other_leads(role)
        # A pending proposal counts as alone: members of this ISR may follow another leader, and nothing is committed.
        if len(role.replicas) > 1 and (required_acks != -1 or len(role.isr) == 1 or self.is_proposal_pending):
            self._check_not_replaced(role)
        if required_acks == -1 and len(role.isr) < (needed := self._min_isr(role)):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.partition} has {len(role.isr)} in-sync replicas, min.insync.replicas is {needed}",
            )

    def _check_not_replaced(self, role: PartitionRole) -> None:
        """Raise KafkaError if another broker may lead by now without this one knowing."""
        if len(role.replicas) > 1 and not self._context.may_lead_alone():
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self.node_id} cannot reach ZooKeeper: another broker may lead {self.partition} by now",
            )

    def _min_isr(self, role: PartitionRole) -> int:
        return min(self.log.config.min_insync_replicas, len(role.replicas))

    def commit_error(self, last_offset: int) -> ErrorCode | None:
        """Return the result of an acks=all append up to `last_offset`: NONE or an error; None while it must wait."""
        role = self._role
        if role.leader_id != self.node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.log.high_watermark <= last_offset:
            return None
        if len(role.isr) < self._min_isr(role):
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    # In sync

    def _advance_high_watermark(self, leadership: Leadership) -> bool:
        """Move the high watermark to what all of the maximal ISR have, never backwards. The caller holds the lock.

        It stays while too few replicas are in sync, because their records are not safe enough to be read.
        """
        if self.is_under_min_isr:
            return False
        log = self.log
        end = log.log_end_offset
        if leadership.followers:
            context = self._context
            end = leadership.committed_end(end, context.clock(), context.lag_max_ms(), context.is_alive)
        if end <= log.high_watermark:
            return False
        log.advance_high_watermark(end)
        return True

    def delete_records(self, offset: int | None) -> int:
        """Move the leader's log start to an offset (None: the high watermark); return the new log start.

        Raises KafkaError if the offset is above the high watermark. The other replicas follow with their next fetches.
        """
        with self.lock:
            self.check_leader()
            log = self.log
            start = log.high_watermark if offset is None else offset
            if not 0 <= start <= log.high_watermark:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{start} is above the high watermark")
            log.advance_log_start(start)
        self.waits.moved(self.partition)
        return start

    def low_watermark(self) -> int:
        """Return the offset up to which all live replicas have deleted; raise KafkaError if another broker leads."""
        self.check_leader()
        leadership = self._leadership
        # Without a leadership, the role is about to change.
        return -1 if leadership is None else leadership.low_watermark(self.log.log_start_offset, self._context.is_alive)

    def follower_positions(self) -> Mapping[int, RemoteReplica]:
        """Return the positions of the followers; empty unless this broker leads."""
        leadership = self._leadership
        return {} if leadership is None else leadership.followers

    @property
    def is_high_watermark_known(self) -> bool:
        """Whether a new leader has learned from its followers how far the log is committed."""
        leadership = self._leadership
        return leadership is None or self.log.high_watermark >= leadership.start_offset

    def shrink_isr(self) -> None:
        """Propose an ISR without the members that have not kept up. Called periodically.

        A broker that hears nobody, though others hear it, sees all its followers fall behind. Its own session ends a
        little later, and if it were alone in the ISR then, nobody could lead. So it must have an answer of ZooKeeper
        that is newer than the silence of its followers.
        """
        context = self._context
        with self.lock:
            leadership = self._leadership
            if leadership is None or leadership.pending is not None or len(leadership.role.isr) == 1:
                return
            lag_max_ms = context.lag_max_ms()
            lagging = leadership.lagging(self.log.log_end_offset, context.clock(), lag_max_ms)
            if not lagging or not context.was_heard_within_ms(lag_max_ms // 2):
                return
            isr = leadership.role.isr - lagging
            proposal = leadership.propose(self.partition, self.topic_id, isr, context.broker_epoch())
        context.propose(proposal)

    def take_isr_answer(self, proposal: IsrProposal, answer: IsrAnswer) -> None:
        """Process the controller's answer to a proposal; propose again if the failure may be temporary."""
        with self.lock:
            leadership = self._leadership
            if leadership is None or leadership.pending is not proposal:
                return
            is_accepted = answer.error_code is ErrorCode.NONE
            if is_accepted:
                if answer.leader_epoch != leadership.role.leader_epoch:
                    # The controller's next LeaderAndIsr decides.
                    return
                size_before = len(leadership.role.isr)
                leadership.committed(answer)
                self._role = leadership.role
                self.isr_shrinks += len(self._role.isr) < size_before
                self.isr_expands += len(self._role.isr) > size_before
                self._advance_high_watermark(leadership)
            else:
                self.failed_isr_updates += 1
                if answer.is_refusal:
                    leadership.withdraw()
        if is_accepted:
            self.waits.moved(self.partition)
        elif not answer.is_refusal and not answer.is_uncertain:
            self._context.propose(proposal)

    # Reading

    def upper_offset(self, *, committed_only: bool) -> int:
        """Return the offset up to which a consumer may read."""
        return self.log.last_stable_offset if committed_only else self.log.high_watermark

    def read(
        self,
        offset: int,
        max_bytes: int,
        current_leader_epoch: int,
        *,
        committed_only: bool,
        at_least_one: bool,
        client_may_read_follower: bool = False,
    ) -> Read:
        """Read committed records for a consumer. A follower learns a little later what is committed."""
        with self.lock:
            role, log = self._role, self.log
            if role.leader_id == NO_LEADER or not client_may_read_follower:
                self.check_leader(current_leader_epoch)
            else:
                self.check_epoch(role, current_leader_epoch)
            if offset > log.log_end_offset:
                # Its client may have read from our successor. Out of range would make it begin anew.
                self._check_not_replaced(role)
            high_watermark = log.high_watermark
            stable = log.last_stable_offset
            aborted = None
            if committed_only:
                records, aborted = log.read_committed(offset, max_bytes, stable, at_least_one=at_least_one)
            else:
                records = log.read(offset, max_bytes, high_watermark, at_least_one=at_least_one)
            self.reads += 1
            self.bytes_out += len(records) if records is not None else 0
            return Read(records, high_watermark, stable, log.log_start_offset, aborted)

    def read_for_follower(self, fetch: FollowerFetch, max_bytes: int, *, at_least_one: bool) -> Read:
        """Read for a follower, up to the end of the log. The fetch offset tells which records the follower has.

        A follower whose log diverges gets the point where it does, and its position is not updated.
        """
        with self.lock:
            self.check_leader(fetch.current_leader_epoch)
            leadership = self._leadership
            assert leadership is not None
            follower = leadership.follower(fetch)
            log = self.log
            diverging = self._diverging(fetch)
            if diverging is not None:
                return Read(None, log.high_watermark, -1, log.log_start_offset, None, diverging)
            records = log.read(fetch.offset, max_bytes, at_least_one=at_least_one)
            has_other_start = leadership.fetched(follower, fetch, log.log_end_offset, self._context.clock())
            proposal = self._expansion(leadership, fetch.replica_id)
            has_moved = self._advance_high_watermark(leadership)
            self.replicated_bytes_out += len(records) if records is not None else 0
            read = Read(records, log.high_watermark, -1, log.log_start_offset, None)
        if proposal is not None:
            self._context.propose(proposal)
        if has_moved:
            self.waits.moved(self.partition)
        elif has_other_start:
            self.waits.low_watermark_moved(self.partition)
        return read

    def note_idle_follower(self, fetch: FollowerFetch, now_ms: int) -> bool:
        """Record that an in-sync follower fetches at the end of a log that is committed up to there.

        Most partitions are idle most of the time, and their followers fetch twice a second. The only news is that they
        still fetch. Without it, the next append would find them behind for the whole idle time. Returns False, and
        records nothing, in any other case; then the fetch must be read in full. The caller knows that the follower's
        log equals ours up to this offset, in this leader epoch.
        """
        with self.lock:
            leadership, log = self._leadership, self.log
            if leadership is None or log.high_watermark != log.log_end_offset:
                return False
            return leadership.fetched_at_end(fetch, log.log_end_offset, now_ms)

    def read_again_for_follower(self, offset: int, leader_epoch: int, max_bytes: int, *, at_least_one: bool) -> Read:
        """Read for a follower that has waited, in the epoch in which its log was found equal to ours."""
        with self.lock:
            self.check_leader(leader_epoch)
            log = self.log
            records = log.read(offset, max_bytes, at_least_one=at_least_one)
            self.replicated_bytes_out += len(records) if records is not None else 0
            return Read(records, log.high_watermark, -1, log.log_start_offset, None)

    def _diverging(self, fetch: FollowerFetch) -> EpochEndOffset | None:
        if fetch.last_fetched_epoch == NO_LEADER_EPOCH:
            return None
        epoch, end_offset = self.log.end_offset_for_epoch(fetch.last_fetched_epoch)
        if epoch == NO_LEADER_EPOCH:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.partition} does not know epoch {fetch.last_fetched_epoch}"
            )
        if epoch < fetch.last_fetched_epoch or end_offset < fetch.offset:
            return EpochEndOffset(epoch, end_offset)
        return None

    def _expansion(self, leadership: Leadership, broker: int) -> IsrProposal | None:
        """Propose an ISR that includes a follower that has caught up. The caller holds the lock."""
        if (
            leadership.pending is not None
            or broker in leadership.maximal_isr
            or not leadership.may_join(broker, self.log.high_watermark)
            or not self._context.is_alive(broker)
            or not self._context.may_lead_alone()
        ):
            return None
        isr = leadership.role.isr | {broker}
        return leadership.propose(self.partition, self.topic_id, isr, self._context.broker_epoch())
