"""Three brokers with real partitions over real logs, and in place of the network messages that a test delivers.

Whatever a broker sends lies in a list until the test delivers it, loses it, or lets it lie. Time stands still until the
test moves it. A crash takes the partition away and leaves the files; a loss of power takes what was not flushed too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.broker.replication.controller_model import REPLICAS, ControllerModel
from tests.broker.replication.in_flight import (
    AnswerMessage,
    FetchedMessage,
    FetchMessage,
    InFlight,
    ProposalMessage,
    RoleMessage,
)
from tests.kit.clock import FakeClock

from ottla.broker.cluster.controller_gate import ControllerGate
from ottla.broker.config import BrokerConfig, TopicConfig
from ottla.broker.replication.follower.steps import (
    Fetched,
    Step,
    follow_position,
    restart_in_range,
    take_fetched,
)
from ottla.broker.replication.leader.leadership import FollowerFetch
from ottla.broker.replication.partition import Partition, PartitionContext
from ottla.broker.storage.checkpoint import HIGH_WATERMARK_CHECKPOINT
from ottla.broker.storage.directory_files import MetaProperties
from ottla.broker.storage.log import Log
from ottla.broker.storage.log_dir import CHECKPOINTS
from ottla.broker.storage.logs import Logs
from ottla.broker.storage.recovery.startup import open_logs
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import batches

ORDERS = TopicPartition("orders", 0)
TOPIC_ID = bytes(range(16))
START_MS = 1_700_000_000_000
LAG_MAX_MS = 100
FETCH_BYTES = 300
_BATCH_HEADER = 12


class Produce(NamedTuple):
    """An acks=all append that waits to be committed."""

    last_offset: int
    value: bytes


class ModelBroker:
    """One broker: its logs on disk, and while it runs a partition in memory."""

    def __init__(self, node_id: int, directory: Path, cluster: Cluster, topic: Mapping[str, str]) -> None:
        self.node_id = node_id
        self.cluster = cluster
        self.config = BrokerConfig.of(
            {"log.dirs": str(directory), "log.segment.bytes": "350", "log.index.interval.bytes": "100"}
        )
        self.topic_config = TopicConfig(self.config, {"min.insync.replicas": "2", **topic})
        self.broker_epoch = node_id
        # What the newest metadata says.
        self.live = frozenset(REPLICAS)
        self.told = 0
        # By leader, the fetch whose answer is waited for: answers to earlier ones find their connection closed. Each
        # leader has a thread of its own here, so one that was left may still be heard.
        self.fetches: dict[int, int] = {}
        self.produces: list[Produce] = []
        self.logs: Logs
        self.partition: Partition | None = None
        self.start()

    def start(self) -> None:
        """Open the log as it lies on disk; there is no role before the controller gives one."""
        owner = MetaProperties(self.node_id, "a-cluster")
        self.logs = open_logs(Logs(self.config, lambda topic: self.topic_config, self.cluster.clock), owner)
        context = PartitionContext(
            self.node_id,
            self.cluster.clock,
            lag_max_ms=lambda: LAG_MAX_MS,
            is_alive=lambda broker: broker in self.live,
            broker_epoch=lambda: self.broker_epoch,
            propose=lambda proposal: self.cluster.in_flight.proposals.append(
                ProposalMessage(self.node_id, self.broker_epoch, proposal)
            ),
        )
        self.partition = Partition(ORDERS, TOPIC_ID, self.logs.create(ORDERS, TOPIC_ID), context)
        self.gate = ControllerGate(lambda: self.broker_epoch)

    def stop(self) -> None:
        """Forget all that is not on disk, as a killed process does."""
        self.partition = None
        self.produces.clear()
        self.fetches.clear()
        for log_dir in self.logs.dirs:
            log_dir.release()

    @property
    def leads(self) -> bool:
        """Whether it runs and takes itself for the leader."""
        return self.partition is not None and self.partition.is_leader


class Cluster:
    """The brokers, the controller, and what is on its way between them."""

    def __init__(self, directory: Path, topic: Mapping[str, str] | None = None) -> None:
        """`topic` has the options of the topic."""
        self.clock = FakeClock(START_MS)
        self.in_flight = InFlight()
        self._tellings = 0
        self._fetches = 0
        self._values = 0
        self.controller = ControllerModel(self.tell)
        self.brokers = {
            node_id: ModelBroker(node_id, directory / str(node_id), self, topic or {}) for node_id in REPLICAS
        }
        # (broker, leader epoch, last offset, value) of what producers were told is committed, since it was last taken.
        self.acknowledged: list[tuple[int, int, int, bytes]] = []
        self.tell()

    def tell(self) -> None:
        """Have the controller send the present state to every registered broker."""
        controller = self.controller
        for broker, broker_epoch in controller.live.items():
            self._tellings += 1
            self.in_flight.roles.append(
                RoleMessage(
                    self._tellings,
                    broker,
                    broker_epoch,
                    controller.epoch,
                    controller.role,
                    frozenset(controller.live),
                )
            )

    # Roles

    def deliver_role(self, message: RoleMessage) -> None:
        """Let LeaderAndIsr arrive; whoever waits for the partition looks at it again."""
        broker = self.brokers[message.broker]
        if broker.partition is None:
            return
        try:
            with broker.gate.passing(message.controller_epoch, message.broker_epoch):
                if message.number > broker.told:
                    broker.told, broker.live = message.number, message.live
                has_changed = broker.partition.take_role(message.role)
        except KafkaError:
            return
        if has_changed:
            self.complete(broker)

    # Producing and reading

    def append(self, broker: ModelBroker, required_acks: int) -> None:
        """Append a record of which there is only one."""
        assert broker.partition is not None
        self._values += 1
        value = b"%06d" % self._values
        builder = RecordBatchBuilder()
        builder.append(self.clock.now, None, value)
        try:
            pending = broker.partition.append(bytes(builder.build()), required_acks=required_acks)
        except KafkaError:
            return
        if required_acks == -1:
            broker.produces.append(Produce(pending.appended.last_offset, value))
            self.complete(broker)

    def complete(self, broker: ModelBroker) -> None:
        """Answer the produces whose time has come."""
        partition = broker.partition
        assert partition is not None
        for produce in list(broker.produces):
            error = partition.commit_error(produce.last_offset)
            if error is ErrorCode.NONE:
                flush_if_wanted(partition.log)
                self.acknowledged.append((broker.node_id, partition.role.leader_epoch, *produce))
            if error is not None:
                broker.produces.remove(produce)

    def consume(self, broker: ModelBroker, offset: int) -> bytes | None:
        """Read as a consumer does; None where the broker answers with an error."""
        assert broker.partition is not None
        try:
            read = broker.partition.read(offset, FETCH_BYTES, -1, committed_only=False, at_least_one=True)
        except KafkaError:
            return None
        return read.records.read() if read.records is not None else b""

    # Following

    def send_fetch(self, broker: ModelBroker) -> None:
        """Ask the leader for more; an answer that is on its way to an earlier question is not waited for any more."""
        partition = broker.partition
        if partition is None or partition.role.leader_id in (-1, broker.node_id):
            return
        flush_if_wanted(partition.log)
        self._fetches += 1
        broker.fetches[partition.role.leader_id] = self._fetches
        message = FetchMessage(
            self._fetches, broker.node_id, broker.broker_epoch, partition.role.leader_id, follow_position(partition)
        )
        self.in_flight.fetches.append(message)

    def deliver_fetch(self, message: FetchMessage) -> None:
        """Let a fetch arrive, and the leader answer."""
        leader = self.brokers[message.leader]
        if leader.partition is None:
            return
        fetch = FollowerFetch(
            message.follower,
            message.broker_epoch,
            message.position.offset,
            message.position.last_fetched_epoch,
            message.position.current_leader_epoch,
            message.position.log_start_offset,
        )
        try:
            read = leader.partition.read_for_follower(fetch, FETCH_BYTES, at_least_one=True)
        except KafkaError as error:
            fetched = Fetched(error.code, -1, -1, None, b"")
        else:
            records = read.records.read() if read.records is not None else b""
            fetched = Fetched(ErrorCode.NONE, read.high_watermark, read.log_start_offset, read.diverging, records)
            self.complete(leader)
        self.in_flight.fetched.append(FetchedMessage(message, fetched))

    def deliver_fetched(self, message: FetchedMessage) -> None:
        """Let the answer arrive at the follower, if it waits for that one still."""
        request = message.request
        broker = self.brokers[request.follower]
        if broker.partition is None or broker.fetches.get(request.leader) != request.number:
            return
        del broker.fetches[request.leader]
        step = take_fetched(broker.partition, broker.logs, request.position, message.fetched)
        if step is Step.OUT_OF_RANGE:
            leader = self.brokers[request.leader].partition
            if leader is not None and leader.is_leader:
                if leader.role.leader_epoch != request.position.current_leader_epoch:
                    return
                ends = leader.log.log_start_offset, leader.log.log_end_offset
                restart_in_range(broker.partition, broker.logs, request.position, *ends)

    # In sync

    def deliver_proposal(self, message: ProposalMessage) -> None:
        """Let a proposal arrive at the controller."""
        answer = self.controller.answer(message.broker, message.broker_epoch, message.proposal)
        self.in_flight.answers.append(AnswerMessage(message, answer))

    def deliver_answer(self, message: AnswerMessage) -> None:
        """Let the controller's answer arrive, in the life of the broker that asked."""
        request = message.request
        broker = self.brokers[request.broker]
        if broker.partition is None or broker.broker_epoch != request.broker_epoch:
            return
        broker.partition.take_isr_answer(request.proposal, message.answer)
        self.complete(broker)

    def lose_answer(self, message: AnswerMessage) -> None:
        """Let the answer get lost: the broker asks again."""
        self.in_flight.proposals.append(message.request)

    # Failures

    def crash(self, broker: ModelBroker) -> None:
        """Kill a broker. The controller does not know yet."""
        broker.stop()

    def lose_power(self, broker: ModelBroker, kept_of_unflushed: int) -> None:
        """Switch a machine off: of what was not flushed, only the first few offsets are still there."""
        assert broker.partition is not None
        log = broker.partition.log
        flushed = log.recovery_point
        end = min(flushed + kept_of_unflushed, log.log_end_offset)
        paths = [segment.path for segment in log.segments]
        broker.stop()
        del log
        for number, path in enumerate(paths):
            if number and int(path.stem) >= end:
                path.unlink()
            else:
                _cut_file(path, end)
        if broker.node_id in self.controller.live:
            self.controller.failed(broker.node_id)

    def restart(self, broker: ModelBroker) -> None:
        """Start a broker again over what is on its disk, and register it."""
        broker.broker_epoch = self.controller.last_zxid + 1
        broker.start()
        assert self.controller.register(broker.node_id) == broker.broker_epoch

    def end_session(self, broker: int) -> None:
        """Let the session of a broker end for the controller, whether the broker notices or not."""
        self.controller.failed(broker)

    def register_again(self, broker: ModelBroker) -> None:
        """Let a running broker notice that its session ended: it stops leading, and registers anew."""
        assert broker.partition is not None
        if broker.leads:
            broker.partition.resign()
            self.complete(broker)
        broker.broker_epoch = self.controller.last_zxid + 1
        assert self.controller.register(broker.node_id) == broker.broker_epoch

    def register_unnoticed(self, broker: ModelBroker) -> None:
        """Let a broker, started again or not, register anew while there is no controller: the next knows no better."""
        if broker.partition is None:
            broker.start()
        elif broker.leads:
            broker.partition.resign()
            self.complete(broker)
        self.controller.last_zxid += 1
        broker.broker_epoch = self.controller.live[broker.node_id] = self.controller.last_zxid
        self.controller.fail_over()

    # Disks

    def checkpoint(self, broker: ModelBroker, *, flushes: bool) -> None:
        """Write the high watermark down, and with `flushes` force the log to disk."""
        assert broker.partition is not None
        if flushes:
            broker.partition.log.flush()
        for name in CHECKPOINTS if flushes else (HIGH_WATERMARK_CHECKPOINT,):
            broker.logs.checkpoint(name, broker.logs.dirs[0])


def flush_if_wanted(log: Log) -> None:
    """Force a log to disk before something is acknowledged or confirmed, if the topic asks for it."""
    if log.is_flush_wanted:
        log.flush()


def _cut_file(path: Path, end: int) -> None:
    """Cut a segment before the batch that holds an offset, as if the rest had never reached the disk."""
    data = path.read_bytes()
    size = 0
    while size + _BATCH_HEADER <= len(data):
        base_offset = int.from_bytes(data[size : size + 8], "big")
        length = int.from_bytes(data[size + 8 : size + 12], "big")
        if length == 0 or base_offset >= end:
            break
        size += _BATCH_HEADER + length
    os.truncate(path, size)


def contents(partition: Partition) -> Iterator[tuple[int, int, bytes]]:
    """Yield offset, leader epoch and bytes of every batch; each holds one record."""
    offset = partition.log.log_start_offset
    while (piece := partition.log.read(offset, 10_000)) is not None:
        for batch in batches(piece.read(), strict=True):
            yield batch.base_offset, batch.partition_leader_epoch, bytes(batch.view)
            offset = batch.next_offset
