"""A follower whose topic wants records on disk confirms those that are there, and no others."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.broker.replication.fake_leader import VERSIONS, FakeLeader, LeaderLog
from tests.broker.replication.following_broker import LEADER, FollowingBroker
from tests.broker.replication.peer import peer
from tests.kit.waiting import until

from ottla.broker.replication.partition import Partition
from ottla.protocol.api import Api
from ottla.protocol.message import Message

TOPICS = ("orders", "payments", "visits")


class Confirmations:
    """A leader that notes what each fetch of its follower confirms, and how much of that was on disk by then."""

    def __init__(self, broker: FollowingBroker) -> None:
        self.broker = broker
        self.leader = FakeLeader()
        self.partitions: dict[int, Partition] = {}
        # (confirmed, on disk)
        self.seen: list[tuple[int, int]] = []
        self.furthest: dict[int, int] = {}
        for index, topic in enumerate(TOPICS):
            self.leader.logs[topic, index] = LeaderLog()
            self.partitions[index] = broker.partition(topic, index)

    def answer(self, api: Api, version: int, request: Any) -> Message | None:
        """Note, and answer."""
        for topic in request.topics if api is Api.FETCH else ():
            for row in topic.partitions:
                self.furthest[row.partition] = row.fetch_offset
                self.seen.append((row.fetch_offset, self.partitions[row.partition].log.recovery_point))
        return self.leader.answer(api, version, request)

    def append(self, count: int) -> None:
        """Append to all partitions."""
        for index, topic in enumerate(TOPICS):
            self.leader.append(topic, [b"v"] * count, index)

    @property
    def confirmed(self) -> list[int]:
        """The furthest that was confirmed, by partition."""
        return [self.furthest[index] for index in sorted(self.furthest)]

    @property
    def unflushed(self) -> list[tuple[int, int]]:
        """What was confirmed too early."""
        return [(confirmed, on_disk) for confirmed, on_disk in self.seen if confirmed > on_disk]

    @contextmanager
    def served(self) -> Iterator[None]:
        """Let the broker follow."""
        with peer(self.answer, VERSIONS) as listening:
            self.broker.endpoints[LEADER] = listening.endpoint
            for partition in self.partitions.values():
                self.broker.follow(partition)
            yield
            self.broker.fetchers.stop()


@contextmanager
def following(directory: Path, **options: str) -> Iterator[Confirmations]:
    """Run a follower of three partitions with some options."""
    broker = FollowingBroker(directory, {name.replace("_", "."): value for name, value in options.items()})
    try:
        yield Confirmations(broker)
    finally:
        broker.close()


def test_a_follower_confirms_what_flush_messages_asks_for_when_it_is_on_disk(tmp_path: Path) -> None:
    """With 3 it may confirm two records that are not."""
    with following(tmp_path, log_flush_interval_messages="3") as confirmations:
        confirmations.append(2)
        with confirmations.served():
            until(lambda: confirmations.seen.count((2, 0)) >= 3, "two records are confirmed, none on disk")
            confirmations.append(2)
            until(lambda: confirmations.seen.count((4, 4)) >= 3, "four are confirmed, and on disk")

    assert set(confirmations.unflushed) == {(2, 0)}


def test_a_follower_confirms_nothing_that_the_disk_refused(tmp_path: Path) -> None:
    """It goes on trying, and its leader goes on without it."""

    def refuse(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with following(tmp_path, log_flush_interval_messages="1") as confirmations:
        confirmations.broker.flush = refuse
        confirmations.append(1)
        with confirmations.served():
            until(lambda: confirmations.broker.fetchers.failing() == 3, "all partitions fail")

    assert {confirmed for confirmed, _ in confirmations.seen} == {0}


def test_a_follower_confirms_what_it_will_keep_where_acknowledgements_wait_for_the_disk(tmp_path: Path) -> None:
    """Else all machines may lose power, and a follower lead without what was acknowledged."""
    with following(tmp_path, ottla_log_flush_before_ack="true") as confirmations:
        confirmations.append(2)
        with confirmations.served():
            until(lambda: confirmations.confirmed == [2] * 3, "all is confirmed")
            confirmations.append(1)
            until(lambda: confirmations.confirmed == [3] * 3, "the next record is confirmed")

    assert confirmations.unflushed == []


def test_a_follower_that_was_killed_confirms_its_log_again_when_it_is_on_disk(tmp_path: Path) -> None:
    """The process was gone before it flushed; what it wrote is in the memory of the machine."""
    with following(tmp_path, ottla_log_flush_before_ack="true") as confirmations:
        confirmations.append(2)
        for index, topic in enumerate(TOPICS):
            ((_, data),) = confirmations.leader.logs[topic, index].batches
            confirmations.partitions[index].log.append_as_follower(data, 0)
        with confirmations.served():
            until(lambda: confirmations.confirmed == [2] * 3, "all is confirmed")

    assert confirmations.unflushed == []


def test_partitions_of_other_topics_are_not_flushed(tmp_path: Path) -> None:
    """They confirm what they have, as ever."""
    with following(tmp_path) as confirmations:
        confirmations.append(2)
        with confirmations.served():
            until(lambda: confirmations.confirmed == [2] * 3, "all is confirmed")
        flushes = [worker.flush_count for worker in confirmations.broker.group_commit.workers.values()]

    assert flushes == [0]
