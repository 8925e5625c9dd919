"""A partition that a fetcher copies from its leader, and what the fetcher knows about it."""

from __future__ import annotations

import threading

from ottla.broker.replication.follower.follower import FetchPosition
from ottla.broker.replication.partition import Partition
from ottla.client.net.fetch_session_client import SessionPartition
from ottla.protocol.identifiers import TopicPartition


class Followed:
    """One partition, followed in one leader epoch until it is removed.

    Lock order: this lock -> partition -> log. It is held while the log is written, never while the network is waited
    for: `retire` returns as soon as a write that is under way is done, and no other follows.
    """

    __slots__ = (
        "failures",
        "is_retired",
        "is_stopped",
        "leader_epoch",
        "leader_high_watermark",
        "lock",
        "partition",
        "position",
        "session_partition",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.role.leader_epoch
        name, index = partition.partition
        self.session_partition = SessionPartition(name, partition.topic_id, index)
        self.lock = threading.Lock()
        self.is_retired = False
        # The rest belongs to the fetcher's thread. From where it asked last; None before that.
        self.position: FetchPosition | None = None
        # As of its last answer.
        self.leader_high_watermark = -1
        # Left out until it is added again: the leader, or the disk, refused it for good.
        self.is_stopped = False
        # In a row.
        self.failures = 0

    def __repr__(self) -> str:
        return f"<Followed {self.name} position={self.position} failures={self.failures} retired={self.is_retired}>"

    @property
    def name(self) -> TopicPartition:
        """Which partition it is."""
        return self.partition.partition

    @property
    def lag(self) -> int:
        """Records that are committed at the leader and not here, as far as we know."""
        return max(0, self.leader_high_watermark - self.partition.log.log_end_offset)

    def is_same(self, partition: Partition) -> bool:
        """Whether a partition is followed already in its present leader epoch."""
        return self.partition is partition and self.leader_epoch == partition.role.leader_epoch

    def retire(self) -> None:
        """Have nothing more written through this object; from any thread that does not hold the partition's lock."""
        with self.lock:
            self.is_retired = True
