"""The batch query on topics: ranges of offsets are planned on the driver, each task reads one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ottla.client.errors import CorruptRecordError
from ottla.pipeline.sources.offset_planning import batch_ranges
from ottla.pipeline.sources.offset_ranges import OffsetRange, divided
from ottla.pipeline.sources.options import ReadOptions
from ottla.pipeline.sources.range_fetch import RangeFetch, without_aborted
from ottla.pipeline.sources.rows import RowMaker, Rows
from ottla.pipeline.sources.topic_client import TopicClient
from ottla.protocol.errors import CorruptBatchError


class RangePartition(InputPartition):
    """The work of one task."""

    def __init__(self, offsets: OffsetRange) -> None:
        super().__init__(offsets)
        self.offsets = offsets


class TopicReader(DataSourceReader):
    """Plans on the driver, and reads in the workers."""

    def __init__(self, config: Mapping[str, str], options: ReadOptions) -> None:
        self._config = dict(config)
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return the work of each task; none where there is nothing to read."""
        options = self._options
        ranges = batch_ranges(TopicClient.shared(self._config), options)
        return task_partitions(ranges, options)

    def read(self, partition: InputPartition) -> Iterator[Rows]:
        """Yield the rows of a task as Arrow record batches."""
        return read_range(self._config, self._options, partition)


def task_partitions(ranges: list[OffsetRange], options: ReadOptions) -> list[InputPartition]:
    """Return the work of each task."""
    return [RangePartition(each) for each in divided(ranges, options.min_partitions, options.max_records_per_partition)]


def read_range(config: Mapping[str, str], options: ReadOptions, partition: InputPartition) -> Iterator[Rows]:
    """Yield the rows of a range; nothing for the placeholder that Spark puts where there is no work."""
    if not isinstance(partition, RangePartition):
        return
    offsets = partition.offsets
    fetch = RangeFetch(
        TopicClient.shared(config),
        offsets,
        timeout_ms=options.poll_timeout_ms,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    maker = RowMaker(offsets.partition, options.include_headers)
    for fetched in fetch:
        try:
            yield from maker.rows(without_aborted(fetched), offsets.begin, offsets.end)
        except CorruptBatchError as error:
            raise CorruptRecordError(f"{offsets.partition} before offset {fetched.next_offset}: {error}") from error
