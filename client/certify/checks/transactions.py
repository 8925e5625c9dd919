"""Transactions: what readers see of them, who may go on, and offsets that are part of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.client.certify.check import CheckFailed, Checks, expect, expect_error, expect_that
from ottla.client.certify.checks.groups import committed
from ottla.client.certify.trial import Topic, Trial, batch_of, whole_batches
from ottla.client.net.coordinators import TRANSACTION
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.fetch import READ_COMMITTED
from ottla.protocol.messages.list_offsets import LATEST
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

CHECKS: Final = Checks("transactions", "Transactions")

_NEEDED: Final = {
    Api.PRODUCE: 3,
    Api.FETCH: 4,
    Api.LIST_OFFSETS: 2,
    Api.FIND_COORDINATOR: 1,
    Api.INIT_PRODUCER_ID: 0,
    Api.ADD_PARTITIONS_TO_TXN: 0,
    Api.END_TXN: 0,
}
_OFFSETS: Final = _NEEDED | {
    Api.ADD_OFFSETS_TO_TXN: 0,
    Api.TXN_OFFSET_COMMIT: 0,
    Api.OFFSET_FETCH: 7,
}
# From version 4 on, AddPartitionsToTxn is for brokers.
_ADD_VERSION_MAX: Final = 3
_PAUSE_S: Final = 0.05
_WEEKS_MS: Final = 2_000_000_000
_FENCED: Final = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


@dataclass
class _Producer:
    """A transactional producer."""

    trial: Trial
    transactional_id: str
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)

    @classmethod
    async def started(cls, trial: Trial, name: str = "transaction") -> _Producer:
        """Return a producer that has its id; another one with the same name is fenced."""
        transactional_id = trial.transactional_id(name)
        response = await trial.init_producer(transactional_id)
        return cls(trial, transactional_id, response.producer_id, response.producer_epoch)

    async def ask(self, api: Api, message: Any) -> Any:
        """Send a request to the coordinator of the transaction."""
        version = _ADD_VERSION_MAX if api is Api.ADD_PARTITIONS_TO_TXN else None
        if version is not None:
            version = min(version, self.trial.version(api))
        return await self.trial.ask_coordinator(
            self.transactional_id, api, message, key_type=TRANSACTION, version=version
        )

    async def try_add(self, topic: Topic, *partitions: int) -> int:
        """Add partitions to the transaction; return the error code of the first."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic.name, partitions=list(partitions))],
        )
        response = await self.ask(Api.ADD_PARTITIONS_TO_TXN, request)
        row = response.results_by_topic_v3_and_below[0].results_by_partition[0]
        return int(row.partition_error_code)

    async def add(self, topic: Topic, *partitions: int) -> None:
        """Add partitions, which has to succeed."""
        expect_error("AddPartitionsToTxn", await self.try_add(topic, *partitions), ErrorCode.NONE)

    async def try_write(self, topic: Topic, value: bytes, partition: int = 0) -> Any:
        """Write a record in the transaction; return the answer."""
        sequence = self.sequences.get((topic.name, partition), 0)
        batch = batch_of(
            value,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        row = await self.trial.produce(topic, batch, partition=partition, transactional_id=self.transactional_id)
        if row.error_code == ErrorCode.NONE:
            self.sequences[topic.name, partition] = sequence + 1
        return row

    async def write(self, topic: Topic, value: bytes, partition: int = 0) -> int:
        """Write a record, which has to succeed; return its offset."""
        while True:
            row = await self.try_write(topic, value, partition)
            if row.error_code not in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS):
                break
            # The leader could not ask the coordinator yet; producers try again.
            await asyncio.sleep(_PAUSE_S)
        expect_error("a write in a transaction", row.error_code, ErrorCode.NONE)
        return int(row.base_offset)

    async def try_end(self, *, commit: bool) -> int:
        """End the transaction; return the error code."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        return int((await self.ask(Api.END_TXN, request)).error_code)

    async def end(self, *, commit: bool) -> None:
        """End the transaction, which has to succeed."""
        expect_error("EndTxn", await self.try_end(commit=commit), ErrorCode.NONE)


async def _visible(trial: Trial, topic: Topic, partition: int = 0) -> list[bytes | None]:
    """Return the values that a reader of committed records sees now."""
    end = (await trial.list_offset(topic, LATEST, partition=partition, isolation_level=READ_COMMITTED)).offset
    found: list[bytes | None] = []
    offset = 0
    while offset < end:
        row = await trial.fetch(topic, offset, partition=partition, isolation_level=READ_COMMITTED)
        expect_error("Fetch", row.error_code, ErrorCode.NONE)
        aborted = {each.producer_id: each.first_offset for each in row.aborted_transactions or ()}
        batches = whole_batches(row)
        if not batches:
            raise CheckFailed(f"records up to the last stable offset {end}", f"none at offset {offset}")
        for batch in batches:
            is_aborted = batch.is_transactional and aborted.get(batch.producer_id, end) <= batch.base_offset
            if not batch.is_control and not is_aborted:
                found += [record.value for record in batch.records()]
            elif batch.is_control:
                # The transaction of this producer ends here.
                aborted.pop(batch.producer_id, None)
            offset = batch.next_offset
    return found


async def _until_stable(trial: Trial, topic: Topic, end: int, partition: int = 0) -> None:
    """Wait until the last stable offset is here: markers are written after EndTxn is answered."""
    while True:
        row = await trial.list_offset(topic, LATEST, partition=partition, isolation_level=READ_COMMITTED)
        if row.offset >= end:
            return
        trial.waiting_for = f"the last stable offset to be {end}; it is {row.offset}"
        await asyncio.sleep(_PAUSE_S)


@CHECKS.check(_NEEDED)
async def commit(trial: Trial) -> None:
    """Readers of committed records see the records of a transaction when it is committed, and not before."""
    topic = await trial.topic()
    producer = await _Producer.started(trial)
    await producer.add(topic, 0)
    for number in range(3):
        expect("the offset", await producer.write(topic, b"%d" % number), number)
    expect("what is visible before the commit", await _visible(trial, topic), [])
    row = await trial.fetch(topic, 0, isolation_level=READ_COMMITTED, max_wait_ms=0)
    expect("the last stable offset before the commit", row.last_stable_offset, 0)
    everything = await trial.values(topic, 3)
    expect("what a reader of all records sees", everything, [b"0", b"1", b"2"])
    await producer.end(commit=True)
    await _until_stable(trial, topic, 4)
    expect("what is visible after the commit", await _visible(trial, topic), [b"0", b"1", b"2"])


@CHECKS.check(_NEEDED)
async def abort(trial: Trial) -> None:
    """Readers of committed records never see an aborted transaction, and see what comes after it."""
    topic = await trial.topic()
    producer = await _Producer.started(trial)
    await producer.add(topic, 0)
    await producer.write(topic, b"aborted")
    await producer.end(commit=False)
    await _until_stable(trial, topic, 2)
    row = await trial.fetch(topic, 0, isolation_level=READ_COMMITTED)
    aborted = [(each.producer_id, each.first_offset) for each in row.aborted_transactions or ()]
    expect("the aborted transactions in the answer", aborted, [(producer.producer_id, 0)])
    await producer.add(topic, 0)
    await producer.write(topic, b"committed")
    await producer.end(commit=True)
    await _until_stable(trial, topic, 4)
    expect("what is visible", await _visible(trial, topic), [b"committed"])


@CHECKS.check(_NEEDED)
async def all_or_nothing(trial: Trial) -> None:
    """A transaction in several partitions is committed in all of them."""
    topic = await trial.topic(partitions=2)
    producer = await _Producer.started(trial)
    await producer.add(topic, 0, 1)
    for partition in (0, 1):
        await producer.write(topic, b"value", partition)
        expect(f"what is visible in {partition}", await _visible(trial, topic, partition), [])
    await producer.end(commit=True)
    for partition in (0, 1):
        await _until_stable(trial, topic, 2, partition)
        expect(f"what is visible in {partition}", await _visible(trial, topic, partition), [b"value"])


@CHECKS.check(_NEEDED)
async def markers(trial: Trial) -> None:
    """A transaction ends with a control batch of its producer, which takes an offset."""
    topic = await trial.topic()
    producer = await _Producer.started(trial)
    await producer.add(topic, 0)
    await producer.write(topic, b"value")
    await producer.end(commit=True)
    await _until_stable(trial, topic, 2)
    last = whole_batches(await trial.fetch(topic, 1))[-1]
    expect("control batch and producer", (last.is_control, last.producer_id), (True, producer.producer_id))
    expect("its offset", last.base_offset, 1)


@CHECKS.check(_NEEDED)
async def fencing(trial: Trial) -> None:
    """A second producer with the same transactional id gets a higher epoch, and the first can do nothing any more."""
    topic = await trial.topic()
    zombie = await _Producer.started(trial)
    await zombie.add(topic, 0)
    await zombie.write(topic, b"zombie")
    heir = await _Producer.started(trial)
    expect("the producer id", heir.producer_id, zombie.producer_id)
    expect_that(heir.epoch > zombie.epoch, "a higher epoch", f"{heir.epoch} after {zombie.epoch}")
    await _until_stable(trial, topic, 2)
    expect("what is visible of the open transaction", await _visible(trial, topic), [])
    expect_error("AddPartitionsToTxn of the first", await zombie.try_add(topic, 0), *_FENCED)
    expect_error("EndTxn of the first", await zombie.try_end(commit=True), *_FENCED)
    row = await zombie.try_write(topic, b"zombie")
    expect_error("a write of the first", row.error_code, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
    await heir.add(topic, 0)
    await heir.write(topic, b"heir")
    await heir.end(commit=True)
    await _until_stable(trial, topic, 4)
    expect("what is visible", await _visible(trial, topic), [b"heir"])


@CHECKS.check(_NEEDED)
async def partition_not_added(trial: Trial) -> None:
    """A write in a partition that is not part of the transaction is refused, so no transaction hangs there."""
    topic = await trial.topic(partitions=2)
    producer = await _Producer.started(trial)
    await producer.add(topic, 0)
    await producer.write(topic, b"value", 0)
    while True:
        row = await producer.try_write(topic, b"value", 1)
        if row.error_code not in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS):
            break
        await asyncio.sleep(_PAUSE_S)
    expect_error(
        "a partition that was not added", row.error_code, ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE
    )
    expect("the end of that partition", await trial.end_offset(topic, 1), 0)


@CHECKS.check(_NEEDED)
async def states(trial: Trial) -> None:
    """Ending a transaction that has not begun is INVALID_TXN_STATE; ending one twice in the same way is not."""
    topic = await trial.topic()
    producer = await _Producer.started(trial)
    expect_error("EndTxn without a transaction", await producer.try_end(commit=True), ErrorCode.INVALID_TXN_STATE)
    await producer.add(topic, 0)
    await producer.write(topic, b"value")
    await producer.end(commit=True)
    await producer.end(commit=True)
    expect_error("an abort after the commit", await producer.try_end(commit=False), ErrorCode.INVALID_TXN_STATE)


@CHECKS.check(_NEEDED)
async def producer_ids(trial: Trial) -> None:
    """A producer id that does not belong to the transactional id is INVALID_PRODUCER_ID_MAPPING."""
    topic = await trial.topic()
    producer = await _Producer.started(trial)
    producer.producer_id += 1_000_000
    code = await producer.try_add(topic, 0)
    expect_error("another producer id", code, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


@CHECKS.check(_NEEDED)
async def timeouts(trial: Trial) -> None:
    """A transaction timeout of weeks is INVALID_TRANSACTION_TIMEOUT."""
    response = await trial.try_init_producer(trial.transactional_id(), timeout_ms=_WEEKS_MS)
    expect_error("a timeout of 23 days", response.error_code, ErrorCode.INVALID_TRANSACTION_TIMEOUT)


async def _commit_offset(producer: _Producer, group: str, topic: Topic, offset: int) -> None:
    trial = producer.trial
    added = AddOffsetsToTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=group,
    )
    expect_error("AddOffsetsToTxn", (await producer.ask(Api.ADD_OFFSETS_TO_TXN, added)).error_code, ErrorCode.NONE)
    row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=topic.name, partitions=[row])],
    )
    response = await trial.ask_coordinator(group, Api.TXN_OFFSET_COMMIT, request)
    expect_error("TxnOffsetCommit", response.topics[0].partitions[0].error_code, ErrorCode.NONE)


async def _until_committed(trial: Trial, group: str, topic: Topic) -> int:
    """Return the offset of a group when no transaction holds it."""
    while True:
        (row,) = await committed(trial, group, topic, require_stable=True)
        if row.error_code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
            expect_error("OffsetFetch", row.error_code, ErrorCode.NONE)
            return int(row.committed_offset)
        trial.waiting_for = "the offset of the group to be stable"
        await asyncio.sleep(_PAUSE_S)


@CHECKS.check(_OFFSETS)
async def offsets(trial: Trial) -> None:
    """Offsets in a transaction count when it is committed: until then they are UNSTABLE_OFFSET_COMMIT."""
    topic, group = await trial.topic(), trial.group()
    producer = await _Producer.started(trial)
    await _commit_offset(producer, group, topic, 11)
    (row,) = await committed(trial, group, topic, require_stable=True)
    expect_error("a pending offset", row.error_code, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    (row,) = await committed(trial, group, topic)
    expect("the offset for those who do not mind", row.committed_offset, -1)
    await producer.end(commit=True)
    expect("the offset after the commit", await _until_committed(trial, group, topic), 11)


@CHECKS.check(_OFFSETS)
async def aborted_offsets(trial: Trial) -> None:
    """Offsets in an aborted transaction do not count: the earlier ones stay."""
    topic, group = await trial.topic(), trial.group()
    producer = await _Producer.started(trial)
    for offset, is_commit in ((11, True), (22, False)):
        await _commit_offset(producer, group, topic, offset)
        await producer.end(commit=is_commit)
        expect("the offset of the group", await _until_committed(trial, group, topic), 11)


@CHECKS.check(_NEEDED | {Api.DESCRIBE_TRANSACTIONS: 0, Api.DESCRIBE_PRODUCERS: 0})
async def describing(trial: Trial) -> None:
    """An open transaction is described as Ongoing with its partition, and by the partition with its first offset."""
    topic = await trial.topic()
    producer = await _Producer.started(trial)
    await producer.add(topic, 0)
    await producer.write(topic, b"value")
    described = DescribeTransactionsRequest(transactional_ids=[producer.transactional_id])
    (row,) = (await producer.ask(Api.DESCRIBE_TRANSACTIONS, described)).transaction_states
    expect_error("DescribeTransactions", row.error_code, ErrorCode.NONE)
    expect("state and producer id", (row.transaction_state, row.producer_id), ("Ongoing", producer.producer_id))
    expect("its partitions", [(each.topic, each.partitions) for each in row.topics], [(topic.name, [0])])
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic.name, partition_indexes=[0])])
    response = await trial.ask(Api.DESCRIBE_PRODUCERS, request, node=await trial.leader(topic))
    (active,) = response.topics[0].partitions[0].active_producers
    found = (active.producer_id, active.current_txn_start_offset)
    expect("producer and first offset of its transaction", found, (producer.producer_id, 0))
    await producer.end(commit=True)
