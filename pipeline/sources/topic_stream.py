"""The streaming query on topics: offsets by partition are its checkpoint, and each trigger reads up to the next ones.

Partitions that appear while the query runs are read from their beginning. One that disappears, or whose log became
shorter, is a loss of data: an error, or passed over where the options say so.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ottla.pipeline.sources.errors import DataLossError
from ottla.pipeline.sources.offset_bounds import offsets_from_json, offsets_to_json
from ottla.pipeline.sources.offset_planning import Cluster, existing_partitions, starting_offsets
from ottla.pipeline.sources.offset_ranges import OffsetRange, limited
from ottla.pipeline.sources.options import ReadOptions
from ottla.pipeline.sources.rows import Rows
from ottla.pipeline.sources.topic_client import TopicClient
from ottla.pipeline.sources.topic_reader import read_range, task_partitions
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.list_offsets import EARLIEST, LATEST

# How often an end of a log that lies before what was read is asked for again: a new leader may not know it yet.
_ATTEMPTS: Final = 3
_PAUSE_S: Final = 0.2


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans each trigger on the driver, and reads in the workers."""

    def __init__(self, config: Mapping[str, str], options: ReadOptions) -> None:
        self._config = dict(config)
        self._options = options
        # What follows is the driver's.
        self._triggered_at: float | None = None
        # Where a query ends that reads what is there when it begins.
        self._target: dict[TopicPartition, int] | None = None
        # Where the logs ended when they were last looked at.
        self._ends: dict[TopicPartition, int] | None = None
        # Where partitions begin that appeared since the last trigger.
        self._begins: dict[TopicPartition, int] = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a query without a checkpoint begins."""
        cluster = self._cluster()
        return offsets_to_json(
            starting_offsets(cluster, self._options, existing_partitions(cluster, self._options.subscription))
        )

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a trigger, as far as Spark has a word for it."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note where the logs end now."""
        self._target = self._latest({})

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return where the logs ended when they were last looked at, for the metrics of the query."""
        return None if self._ends is None else offsets_to_json(self._ends)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the next trigger ends: at the start itself when it should wait."""
        begin = offsets_from_json(start)
        end = self._latest(begin) if self._target is None else self._up_to_target(begin)
        added = end.keys() - begin.keys() - self._begins.keys()
        self._begins |= self._cluster().offsets(dict.fromkeys(added, EARLIEST))
        known = {each: begin.get(each, self._begins.get(each, 0)) for each in end}
        if not isinstance(limit, ReadAllAvailable):
            if self._waits_for_more(known, end):
                return start
            if self._options.max_offsets_per_trigger is not None:
                end = limited(known, end, self._options.max_offsets_per_trigger)
        self._triggered_at = time.monotonic()
        return offsets_to_json(end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the work of each task of a trigger."""
        begins, ends = offsets_from_json(start), offsets_from_json(end)
        if gone := sorted(begins.keys() - ends.keys()):
            self._lost(f"{', '.join(map(str, gone))} cannot be found any more")
        added = ends.keys() - begins.keys()
        for each, offset in self._cluster().offsets(dict.fromkeys(added, EARLIEST)).items():
            if offset > 0:
                self._lost(f"{each} is new and begins at offset {offset}, not at 0")
            begins[each] = offset
        ranges = []
        for each in sorted(ends.keys() & begins.keys()):
            if ends[each] < begins[each]:
                self._lost(f"{each} was read up to offset {begins[each]}, and now ends at {ends[each]}")
            ranges.append(OffsetRange(each, begins[each], ends[each]))
        return task_partitions(ranges, self._options)

    def read(self, partition: InputPartition) -> Iterator[Rows]:
        """Yield the rows of a task as Arrow record batches."""
        return read_range(self._config, self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the checkpoint of the query has the offsets."""

    def stop(self) -> None:
        """Close the connections of the planner."""
        TopicClient.close_shared(self._config)

    # What follows is ours.

    def _cluster(self) -> Cluster:
        return TopicClient.shared(self._config)

    def _latest(self, begin: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the ends of the logs, asked for again where one lies before what was read."""
        cluster = self._cluster()
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(_PAUSE_S)
            partitions = cluster.partitions(self._options.subscription)
            latest = cluster.offsets(dict.fromkeys(partitions, LATEST))
            if all(latest.get(each, -1) >= offset for each, offset in begin.items()):
                break
        self._ends = latest
        return latest

    def _up_to_target(self, begin: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the ends noted at the start of the query; one that lies before what was read is looked at again."""
        assert self._target is not None
        target = self._target
        behind = {each: offset for each, offset in begin.items() if target.get(each, -1) < offset}
        if behind:
            latest = self._latest(behind)
            target |= {each: min(latest[each], offset) for each, offset in behind.items() if each in latest}
        return dict(target)

    def _waits_for_more(self, begin: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> bool:
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None or self._triggered_at is None:
            return False
        if (time.monotonic() - self._triggered_at) * 1000 >= self._options.max_trigger_delay_ms:
            return False
        return sum(max(0, offset - begin[each]) for each, offset in end.items()) < least

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(what)
