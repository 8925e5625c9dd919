"""Brokers die in each state of a transaction (F41), one step at a time: what was decided happens, once and everywhere.

The partitions of a transaction have one replica each, on brokers that do not coordinate it. So a test can hold back the
marker of one partition by pausing its broker.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.faults.cluster import Cluster
from tests.faults.steps import kill, others
from tests.interop.transactions import librdkafka
from tests.kit.broker_process import topic_name
from tests.kit.waiting import until

from ottla.broker.coordination.placement import TRANSACTION_STATE
from ottla.protocol.api import Api
from ottla.protocol.errors import CorruptBatchError, ErrorCode, KafkaError
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import RecordBatch, batches

pytestmark = [pytest.mark.long_faults, pytest.mark.timeout(900)]

# Long enough for any fault: nothing here is aborted because it took too long.
TIMEOUT_MS = 600_000
_TRANSACTION = 1
# What a client asks again after, the coordinator it knows or the one it then finds.
_AGAIN = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


class ScriptedProducer:
    """A transactional producer whose requests a test sends one by one."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.transactional_id = f"id-{uuid4().hex}"
        self._producer = (-1, -1)
        self._sequences: dict[int, int] = {}

    def coordinator(self, *apart_from: int) -> int:
        """Return who coordinates, as the brokers say that can be asked."""

        def find() -> int | None:
            request = FindCoordinatorRequest(key=self.transactional_id, key_type=_TRANSACTION)
            for broker in set(self.cluster.brokers) - set(apart_from):
                if self.cluster.brokers[broker].is_running:
                    found = self.cluster.request(broker, Api.FIND_COORDINATOR, 1, request)
                    if found.error_code == 0 and found.node_id not in apart_from:
                        return int(found.node_id)
            return None

        return until(find, f"a coordinator other than {apart_from}", not_yet=KafkaError)

    def init(self) -> None:
        """Get a producer id and epoch."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=TIMEOUT_MS, producer_id=-1, producer_epoch=-1
        )
        answer = self._ask(Api.INIT_PRODUCER_ID, 1, request)
        self._producer = (answer.producer_id, answer.producer_epoch)

    def begin(self, *partitions: int, value: bytes) -> None:
        """Add partitions, and write a value to each."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self.topic, partitions=list(partitions))],
        )
        self._ask(Api.ADD_PARTITIONS_TO_TXN, 2, request)
        for partition in partitions:
            until(
                partial(self._is_written, partition, value),
                f"{value!r} is in partition {partition}",
                not_yet=KafkaError,
            )

    def commit(self, *apart_from: int) -> None:
        """Commit, as often as it takes."""
        self._ask(Api.END_TXN, 2, self._end_request(), *apart_from)

    def abort(self) -> None:
        """Abort."""
        self._ask(Api.END_TXN, 2, self._end_request(is_commit=False))

    def commit_in_background(self, coordinator: int) -> threading.Thread:
        """Ask for a commit, and do not care for the answer."""

        def ask() -> None:
            try:
                self.cluster.request(coordinator, Api.END_TXN, 2, self._end_request())
            except KafkaError:
                """The coordinator is killed before it answers."""

        thread = threading.Thread(target=ask)
        thread.start()
        return thread

    def state(self, coordinator: int) -> str:
        """Return the state of the transaction, as the coordinator says."""
        request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        answer = self.cluster.request(coordinator, Api.DESCRIBE_TRANSACTIONS, 0, request).transaction_states[0]
        return str(answer.transaction_state)

    def _end_request(self, *, is_commit: bool = True) -> EndTxnRequest:
        producer_id, epoch = self._producer
        return EndTxnRequest(
            transactional_id=self.transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=is_commit
        )

    def _ask(self, api: Api, version: int, request: Any, *apart_from: int) -> Any:
        """Ask whoever coordinates until that is not an error that passes."""

        def ask() -> Any:
            answer = self.cluster.request(self.coordinator(*apart_from), api, version, request)
            code = ErrorCode.of(_error(answer))
            if code in _AGAIN:
                return None
            assert code is ErrorCode.NONE, answer
            return answer

        return until(ask, f"an answer to {api.name}", not_yet=KafkaError)

    def produce(self, partition: int, value: bytes) -> ErrorCode:
        """Send a value, whether the partition is part of the transaction or not."""
        builder = RecordBatchBuilder()
        builder.append(int(time.time() * 1000), None, value)
        producer_id, epoch = self._producer
        batch = builder.build(
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self._sequences.get(partition, 0),
            transactional=True,
        )
        data = [PartitionProduceData(index=partition, records=bytes(batch))]
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=self.topic, partition_data=data)],
        )
        leader = self.cluster.state.partition(self.topic, partition).leader
        answer = self.cluster.request(leader, Api.PRODUCE, 8, request)
        return ErrorCode.of(answer.responses[0].partition_responses[0].error_code)

    def _is_written(self, partition: int, value: bytes) -> bool:
        code = self.produce(partition, value)
        if code.retriable:
            return False
        assert code is ErrorCode.NONE
        self._sequences[partition] = self._sequences.get(partition, 0) + 1
        return True


def _error(answer: Any) -> int:
    by_topic = getattr(answer, "results_by_topic_v3_and_below", None)
    return int(by_topic[0].results_by_partition[0].partition_error_code if by_topic else answer.error_code)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers that a test may harm; who coordinates changes only when that one is gone."""
    with closing(Cluster(tmp_path, "auto.leader.rebalance.enable=false")) as made:
        made.start()
        yield made


@pytest.fixture
def producer(cluster: Cluster) -> ScriptedProducer:
    """A producer that has committed a transaction in both partitions of its topic, on those that do not coordinate."""
    topic = topic_name()
    made = ScriptedProducer(cluster, topic)
    made.coordinator()
    cluster.wait_for_full_isr(TRANSACTION_STATE, [list(cluster.brokers)])
    first, second = others(made.coordinator())
    cluster.create_topic(topic, [[first], [second]], min_insync_replicas="1")
    made.init()
    made.begin(0, 1, value=b"a")
    made.commit()
    return made


def check_all_is_committed(producer: ScriptedProducer, *values: bytes) -> None:
    """Expect that the producer can go on, and that readers have everything."""
    cluster = producer.cluster
    cluster.restore()
    producer.begin(0, 1, value=b"last")
    producer.commit()
    for partition in (0, 1):
        read = librdkafka.read(cluster.bootstrap, producer.topic, partition=partition)
        assert read == [b"a", *values, b"last"], f"partition {partition}"


def markers(producer: ScriptedProducer, partition: int) -> int:
    """Return how many markers a partition has."""
    (broker,) = producer.cluster.state.partition(producer.topic, partition).isr
    folder = producer.cluster.brokers[broker].log_dir / f"{producer.topic}-{partition}"
    return sum(batch.is_control for batch in stored(folder))


def stored(folder: Path) -> Iterator[RecordBatch]:
    """Yield the batches in the files of a partition."""
    for segment in sorted(folder.glob("*.log")):
        try:
            yield from batches(segment.read_bytes())
        except CorruptBatchError:
            # Room behind the last batch.
            continue


def decisions(cluster: Cluster, broker: int) -> int:
    """Return how many changes of transactions a broker has in its log, whether others have them or not."""
    folder = cluster.brokers[broker].log_dir / f"{TRANSACTION_STATE}-0"
    return sum(batch.record_count for batch in stored(folder))


def test_f41_the_coordinator_dies_while_a_transaction_is_open(cluster: Cluster, producer: ScriptedProducer) -> None:
    """The next one has it from the log, and commits it."""
    coordinator = producer.coordinator()
    producer.begin(0, 1, value=b"b")
    kill(cluster, coordinator)
    producer.commit(coordinator)

    check_all_is_committed(producer, b"b")


def test_f41_the_coordinator_dies_when_nobody_else_has_its_decision(
    cluster: Cluster, producer: ScriptedProducer
) -> None:
    """It was not answered, so it may count or not; the client asks again, and gets what it asked for."""
    coordinator = producer.coordinator()
    producer.begin(0, 1, value=b"b")
    for broker in others(coordinator):
        cluster.pause(broker)
    known = decisions(cluster, coordinator)
    asked = producer.commit_in_background(coordinator)
    until(lambda: decisions(cluster, coordinator) > known, "the decision is written")
    assert markers(producer, 0) == markers(producer, 1) == 1
    cluster.brokers[coordinator].kill()
    asked.join()
    for broker in others(coordinator):
        cluster.resume(broker)
    producer.commit(coordinator)

    check_all_is_committed(producer, b"b")


def test_f41_the_coordinator_dies_when_some_partitions_have_their_markers(
    cluster: Cluster, producer: ScriptedProducer
) -> None:
    """The next one sends all of them again, in its epoch: one partition gets a second one, which does nothing."""
    coordinator = producer.coordinator()
    second = others(coordinator)[1]
    producer.begin(0, 1, value=b"b")
    cluster.pause(second)
    producer.commit(second)
    until(lambda: markers(producer, 0) == 2, "the marker of the partition that can be reached")
    assert producer.state(coordinator) == "PrepareCommit"
    assert markers(producer, 1) == 1
    kill(cluster, coordinator)
    successor = producer.coordinator(coordinator, second)
    until(lambda: markers(producer, 0) == 3, "the new coordinator sends it again")
    assert producer.state(successor) == "PrepareCommit"
    cluster.resume(second)
    until(lambda: producer.state(successor) == "CompleteCommit", "it is complete", not_yet=KafkaError)
    assert markers(producer, 1) >= 2

    check_all_is_committed(producer, b"b")


def test_f41_the_coordinator_dies_when_nobody_else_knows_that_all_is_marked(
    cluster: Cluster, producer: ScriptedProducer
) -> None:
    """The next one finds the decision without its end, and sends the markers again; the transaction ends once."""
    coordinator = producer.coordinator()
    first, second = others(coordinator)
    producer.begin(0, value=b"b")
    cluster.pause(first)
    producer.commit(first)
    assert producer.state(coordinator) == "PrepareCommit"
    # It is in sync, so the end of the transaction waits for it.
    cluster.pause(second)
    known = decisions(cluster, coordinator)
    cluster.resume(first)
    until(lambda: decisions(cluster, coordinator) > known, "the end is written")
    assert markers(producer, 0) == 2
    cluster.brokers[coordinator].kill()
    cluster.resume(second)
    successor = producer.coordinator(coordinator)
    until(lambda: producer.state(successor) == "CompleteCommit", "it is complete", not_yet=KafkaError)
    producer.begin(1, value=b"b")
    producer.commit(coordinator)

    check_all_is_committed(producer, b"b")


def test_f41_a_leader_dies_between_the_decision_and_its_marker(cluster: Cluster, producer: ScriptedProducer) -> None:
    """Readers wait at the transaction until the next leader has the marker."""
    coordinator = producer.coordinator()
    first, second = others(coordinator)
    topic = topic_name()
    cluster.create_topic(topic, [[first, second]], min_insync_replicas="1")
    other = ScriptedProducer(cluster, topic)
    other.init()
    other.begin(0, value=b"a")
    cluster.pause(first)
    other.commit(first)
    kill(cluster, first)
    cluster.wait_for_partition(topic, 0, lambda state: state.leader == second)
    until(lambda: other.state(coordinator) == "CompleteCommit", "the next leader has the marker", not_yet=KafkaError)
    assert librdkafka.read(cluster.brokers[second].bootstrap, topic) == [b"a"]

    check_all_is_committed(producer)


def test_f41_a_batch_that_comes_after_the_abort_begins_no_transaction(producer: ScriptedProducer) -> None:
    """The coordinator does not know that the partition is part of a transaction, so readers wait for nothing."""
    producer.begin(0, value=b"b")
    producer.abort()
    until(lambda: markers(producer, 0) == 2, "the marker of the abort")
    # Until the coordinator has noted that all markers are written, it answers that the producer should try again.
    coordinator = producer.coordinator()
    until(lambda: producer.state(coordinator) == "CompleteAbort", "the abort is complete")
    assert producer.produce(0, b"late") is ErrorCode.INVALID_TXN_STATE
    assert librdkafka.end(producer.cluster.bootstrap, producer.topic) == 4

    check_all_is_committed(producer)
