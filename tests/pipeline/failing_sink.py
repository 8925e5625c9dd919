"""`format("failing")`: our sink, which fails where the option `failAt` says, after what it does there.

Run as a program it is a stream between two topics. With the name of a file, its driver makes that file and stops when
a batch is committed in the sink, before Spark has noted that:
`python -m tests.pipeline.failing_sink MASTER SERVERS SOURCE TARGET CHECKPOINT [STOPPED_FILE]`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from ottla.pipeline.sources.shard_writer import end_shards
from ottla.pipeline.sources.topic_source import TopicSource
from ottla.pipeline.sources.topic_writer import TopicStreamWriter, TopicWriter

SHARDS = 3
STUCK_S = 180

Messages = list[WriterCommitMessage | None]


class FailingTasks:
    """Fails in the task of the second shard, if that is asked for."""

    def __init__(self, writer: TopicWriter | TopicStreamWriter, at: str) -> None:
        self.__dict__.update(writer.__dict__)
        self.at = at

    def write(self, iterator: Iterator[Any]) -> Any:
        """Write the rows of a task."""
        written = super().write(iterator)  # type: ignore[misc]
        context = TaskContext.get()
        assert context is not None
        if self.at == "task" and context.partitionId() == 1:
            raise RuntimeError("the task dies")
        return written

    def fail(self, config: dict[str, str], messages: Messages) -> None:
        """Commit nothing, a part or all of a batch, and fail."""
        committed = {"before": [], "between": messages[:1], "after": messages}.get(self.at, messages)
        end_shards(config, committed, committed=True)
        if self.at.startswith("/"):
            Path(self.at).touch()
            # The test ends this process.
            threading.Event().wait(STUCK_S)
        raise RuntimeError("the driver dies")


class FailingWriter(FailingTasks, TopicWriter):
    """A batch that fails."""

    def commit(self, messages: Messages) -> None:
        """Fail."""
        self.fail(self._config, messages)

    def abort(self, messages: Messages) -> None:
        """Leave everything open: the driver is dead."""


class FailingStreamWriter(FailingTasks, TopicStreamWriter):
    """A stream whose second batch fails."""

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        """Fail, unless it is the first batch."""
        if batchId == 0:
            super().commit(messages, batchId)
        else:
            self.fail(self._config, messages)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        """Leave everything open: the driver is dead."""


class FailingSource(TopicSource):
    """What Spark makes for each use of the format."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "failing"

    def writer(self, schema: Any, overwrite: bool) -> FailingWriter:
        """Return what writes a batch."""
        writer = super().writer(schema, overwrite)
        assert isinstance(writer, TopicWriter)
        return FailingWriter(writer, str(self.options.get("failAt")))

    def streamWriter(self, schema: Any, overwrite: bool) -> FailingStreamWriter:  # noqa: N802
        """Return what writes a stream."""
        writer = super().streamWriter(schema, overwrite)
        assert isinstance(writer, TopicStreamWriter)
        return FailingStreamWriter(writer, str(self.options.get("failAt")))


def start_copy(spark: Any, servers: str, source: str, target: str, checkpoint: str, fail_at: str | None = None) -> Any:
    """Start a stream from one topic to another, 40 records at a time; without `fail_at` it does not fail."""
    from ottla.pipeline.sources.sharding import sharded

    options = {"kafka.bootstrap.servers": servers, "subscribe": source, "startingOffsets": "earliest"}
    rows = spark.readStream.format("ottla").options(**options, maxOffsetsPerTrigger=40).load().select("value")
    writer = sharded(rows, SHARDS).writeStream.format("failing" if fail_at else "ottla")
    writer = writer.options(topic=target, exactlyOnce="true", shards=SHARDS, failAt=fail_at or "")
    writer = writer.option("kafka.bootstrap.servers", servers).option("checkpointLocation", checkpoint)
    return writer.trigger(availableNow=True).start()


if __name__ == "__main__":
    from tests.pipeline import failing_sink

    from ottla.pipeline.session import build_session
    from ottla.pipeline.settings import JobSettings

    master, *arguments = sys.argv[1:]
    # Of a cluster as well, all processes are on this machine.
    loopback = {"driver.host": "127.0.0.1", "driver.bindAddress": "127.0.0.1", "executor.memory": "512m"}
    settings = JobSettings(master=master, driver_memory="512m", log_level="ERROR", spark=loopback)
    session = build_session(settings)
    # By the name under which Spark's workers can import it.
    session.dataSource.register(failing_sink.FailingSource)
    start_copy(session, *arguments).awaitTermination()
