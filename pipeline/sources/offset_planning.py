"""From the bounds that options name to offsets, by asking the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Protocol

from ottla.pipeline.sources.errors import DataLossError, SourceOptionError
from ottla.pipeline.sources.offset_bounds import Bound, End, SpecificOffsets, Timestamp
from ottla.pipeline.sources.offset_ranges import OffsetRange
from ottla.pipeline.sources.options import ReadOptions, TopicSubscription
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.list_offsets import EARLIEST, LATEST


class Cluster(Protocol):
    """What planning asks of a cluster; `TopicClient` does it for a real one."""

    def partitions(self, subscription: TopicSubscription) -> set[TopicPartition]:
        """Return the partitions that there are."""

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return offsets by timestamp, or the ends of the log; -1 where no record is that late."""


def existing_partitions(cluster: Cluster, subscription: TopicSubscription) -> set[TopicPartition]:
    """Return the partitions to read; SourceOptionError where one that is named does not exist."""
    found = cluster.partitions(subscription)
    if missing := missing_names(subscription, found):
        raise SourceOptionError(f"There is no {missing} in the cluster: create it first, or change what to read.")
    return found


def missing_names(subscription: TopicSubscription, found: Set[TopicPartition]) -> str:
    """Return what is named and not there, as a part of a sentence; empty if all is."""
    if subscription.partitions is not None:
        return _listed("partition", (str(each) for each in sorted(subscription.partitions - found)))
    if subscription.topics is not None:
        return _listed("topic", sorted(subscription.topics - {each.topic for each in found}))
    return ""


def batch_ranges(cluster: Cluster, options: ReadOptions) -> list[OffsetRange]:
    """Return what a batch query reads; DataLossError where offsets that it names are not there."""
    partitions = existing_partitions(cluster, options.subscription)
    begins = starting_offsets(cluster, options, partitions)
    ends = resolved(cluster, options.ending, "ending", partitions)
    # A time after the last record: all that there is.
    late = [partition for partition, offset in ends.items() if offset < 0]
    ends |= cluster.offsets(dict.fromkeys(late, LATEST))
    ranges = [OffsetRange(each, begins[each], ends[each]) for each in sorted(begins.keys() & ends.keys())]
    if isinstance(options.starting, SpecificOffsets) or isinstance(options.ending, SpecificOffsets):
        ranges = _within_log(cluster, ranges, options.fail_on_data_loss)
    return ranges


def starting_offsets(
    cluster: Cluster, options: ReadOptions, partitions: Set[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return where a query begins; SourceOptionError where no record is as late as it wants, unless that may be."""
    begins = resolved(cluster, options.starting, "starting", partitions)
    late = sorted(partition for partition, offset in begins.items() if offset < 0)
    if late and not options.late_start_is_latest:
        raise SourceOptionError(
            f"{_listed('partition', map(str, late))} has no record at or after the starting time: choose an earlier "
            "one, or set startingOffsetsByTimestampStrategy to latest."
        )
    return begins | cluster.offsets(dict.fromkeys(late, LATEST))


def resolved(cluster: Cluster, bound: Bound, side: str, partitions: Set[TopicPartition]) -> dict[TopicPartition, int]:
    """Return an offset for each partition, -1 where a time is after its last record."""
    if isinstance(bound, End):
        return cluster.offsets(dict.fromkeys(partitions, bound.offset))
    if isinstance(bound, Timestamp):
        return cluster.offsets(dict.fromkeys(partitions, bound.timestamp_ms))
    if isinstance(bound, SpecificOffsets):
        _check_complete(f"{side}Offsets", bound.offsets, partitions, " Use -2 for earliest and -1 for latest.")
        named = {each: offset for each, offset in bound.offsets.items() if offset >= 0}
        return named | cluster.offsets({each: end for each, end in bound.offsets.items() if end < 0})
    _check_complete(f"{side}OffsetsByTimestamp", bound.timestamps_ms, partitions, "")
    return cluster.offsets(bound.timestamps_ms)


def _check_complete(
    name: str, given: Mapping[TopicPartition, int], partitions: Set[TopicPartition], advice: str
) -> None:
    if missing := partitions - given.keys():
        raise SourceOptionError(
            f"{name} lacks {_listed('partition', map(str, sorted(missing)))}: name them all.{advice}"
        )
    if unknown := given.keys() - partitions:
        raise SourceOptionError(
            f"{name} names {_listed('partition', map(str, sorted(unknown)))}, which is not among those to read."
        )


def _within_log(cluster: Cluster, ranges: list[OffsetRange], fail_on_data_loss: bool) -> list[OffsetRange]:
    """See that ranges that were named by hand lie in the log; cut them to it where losses are allowed."""
    partitions = [each.partition for each in ranges]
    earliest = cluster.offsets(dict.fromkeys(partitions, EARLIEST))
    latest = cluster.offsets(dict.fromkeys(partitions, LATEST))
    within = []
    for each in ranges:
        first, last = earliest.get(each.partition, 0), latest.get(each.partition, 0)
        if fail_on_data_loss and each.size > 0 and not first <= each.begin <= each.end <= last:
            raise DataLossError(f"{each.partition} has offsets {first} to {last}, not {each.begin} to {each.end}")
        within.append(OffsetRange(each.partition, max(each.begin, first), min(each.end, last)))
    return within


def _listed(noun: str, names: Iterable[str]) -> str:
    given = list(names)
    return f"{noun}{'s' if len(given) > 1 else ''} {', '.join(given)}" if given else ""
