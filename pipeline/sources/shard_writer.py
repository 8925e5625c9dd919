"""Writes the rows of a shard exactly once, for readers of committed records.

A task takes over the transactional id of its shard, which aborts what an earlier attempt left open and fences it. Then
it reads which batch of the shard was committed last. If that is this batch or a later one, an earlier attempt got
through, and there is nothing to do. Otherwise the task writes its rows and the record of the batch in one transaction.

The driver commits the transactions, when Spark has told it that all tasks have ended well. A task must not do so: if
Spark fails to compute its rows in the middle, for example because an executor that has some of them is lost, then in
Python the rows just end there, and only afterwards does Spark say that the task has failed. If a commit fails, or the
driver dies before it, Spark repeats the batch, and each shard finds out whether it is committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from ottla.client.errors import KafkaError
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.producer.prepared_transaction import PreparedTransaction, end_prepared
from ottla.client.sync.loop_thread import LoopThread
from ottla.pipeline.sources.control_log import ControlLog, ShardBatch
from ottla.pipeline.sources.errors import RepeatedBatchError, SourceOptionError, UnseenRecordError
from ottla.pipeline.sources.kafka_options import writer_settings
from ottla.pipeline.sources.options import ExactlyOnce
from ottla.pipeline.sources.row_sender import RowSender, Written
from ottla.pipeline.sources.rows import Rows
from ottla.pipeline.sources.sharding import SHARD

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"

log = logging.getLogger(__name__)


def write_shard(config: Mapping[str, str], topic: str | None, options: ExactlyOnce, batches: Iterator[Rows]) -> Written:
    """Write the rows of a task, and return the transaction that has them; a task without rows has none."""
    context = TaskContext.get()
    assert context is not None
    shard = context.partitionId()
    rows = _checked(batches, shard, options.shards)
    # The first rows come when those of the whole shard are there or nearly so: the transaction need not wait for that.
    first = next(rows, None)
    if first is None:
        return Written()
    rows = chain([first], rows)
    sink, batch = _sink_of(options, context)
    control = ControlLog(config, sink, options.shards)
    control.prepare()
    name = f"shard {shard} of batch {batch} of sink {sink}"
    with RowSender(writer_settings(config, f"{control.topic}-{shard}"), topic) as sender:
        found = control.find(shard)
        if found.last is not None and found.last.batch >= batch:
            if found.last.batch == batch and options.fail_on_data_loss:
                _check_same(name, found.last, rows)
            return Written(repeated=name)
        sender.begin()
        written = sender.send(rows)
        partition = control.partition(shard)
        offset = sender.send_record(partition, control.key(shard), ShardBatch(batch, written.records).encode())
        if offset != found.end_offset:
            # A broker that is not the leader any more may have said where the partition ends.
            raise UnseenRecordError(f"{partition} was read up to offset {found.end_offset}, and goes on at {offset}")
        written.transaction = sender.prepare()
    return written


def end_shards(config: Mapping[str, str], messages: Sequence[WriterCommitMessage | None], *, committed: bool) -> None:
    """End the transactions of a batch; if one cannot be committed, raise its error when all others are."""
    written = [message for message in messages if isinstance(message, Written)]
    transactions = [each.transaction for each in written if each.transaction is not None]
    if transactions:
        thread = LoopThread.acquire()
        try:
            thread.call(_end(config, transactions, committed=committed))
        finally:
            thread.release()
    for each in written:
        if committed and each.repeated is not None:
            log.warning("%s is not written again: it was committed before", each.repeated)


async def _end(config: Mapping[str, str], transactions: Sequence[PreparedTransaction], *, committed: bool) -> None:
    cluster = ClusterClient(writer_settings(config))
    await cluster.start()
    try:
        outcomes = await asyncio.gather(
            *(end_prepared(cluster, each, committed=committed) for each in transactions), return_exceptions=True
        )
    finally:
        await cluster.close()
    for outcome in outcomes:
        # An abort only lets readers go on sooner: the next attempt aborts what is still open.
        if isinstance(outcome, BaseException) and (committed or not isinstance(outcome, KafkaError)):
            raise outcome


def _checked(batches: Iterator[Rows], shard: int, shards: int) -> Iterator[Rows]:
    """Yield the batches that have rows; SourceOptionError where one is not of this shard."""
    import pyarrow.compute as pc

    for batch in batches:
        if not batch.num_rows:
            continue
        names = [name.lower() for name in batch.schema.names]
        column = batch.column(names.index(SHARD))
        if shard >= shards or column.null_count or not pc.all(pc.equal(column, shard)).as_py():
            raise SourceOptionError(
                f"Task {shard} has rows of other shards: write the result of sharded(frame, {shards}) as it is, or "
                "sorted within its partitions, and set the option shards to the same number."
            )
        yield batch


def _sink_of(options: ExactlyOnce, context: TaskContext) -> tuple[str, int]:
    """Return the sink and the batch, which a stream does not know before its tasks run."""
    if options.sink is not None and options.batch is not None:
        return options.sink, options.batch
    query, batch = (context.getLocalProperty(name) for name in (_QUERY_ID, _BATCH_ID))
    assert query is not None
    assert batch is not None
    return query, int(batch)


def _check_same(name: str, last: ShardBatch, rows: Iterator[Rows]) -> None:
    count = sum(batch.num_rows for batch in rows)
    if count != last.rows:
        raise RepeatedBatchError(name, last.rows, count)
