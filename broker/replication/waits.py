"""Requests that wait for a partition: fetches for records, produces for replicas, deletions for the low watermark."""

from __future__ import annotations

from ottla.broker.common.purgatory import Purgatory
from ottla.protocol.identifiers import TopicPartition


class PartitionWaits:
    """The purgatories of all partitions. The key of an operation is its partition.

    `Partition` calls these methods when one of its values changes. It holds none of its locks then, because completing
    a request runs the code of its caller.
    """

    __slots__ = ("deletions", "fetches", "produces")

    def __init__(self) -> None:
        self.fetches = Purgatory("fetch")
        self.produces = Purgatory("produce")
        self.deletions = Purgatory("delete-records")

    def start(self) -> None:
        """Start to complete requests whose time is over."""
        self.fetches.start()
        self.produces.start()
        self.deletions.start()

    def stop(self) -> None:
        """Complete every waiting request as expired."""
        self.deletions.stop()
        self.produces.stop()
        self.fetches.stop()

    def appended(self, partition: TopicPartition) -> None:
        """Wake fetches, because the log has grown. The caller may hold a group's lock: no produce completes here."""
        self.fetches.check(partition)

    def moved(self, partition: TopicPartition) -> None:
        """Wake every request for a partition whose high watermark, role or log start changed."""
        self.produces.check(partition)
        self.fetches.check(partition)
        self.low_watermark_moved(partition)

    def low_watermark_moved(self, partition: TopicPartition) -> None:
        """Wake deletions of records, because a replica's log start may have changed, or its broker is gone."""
        if self.deletions:
            self.deletions.check(partition)
