"""The cache of fetch sessions: who gets a place in it, and whose place that is."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.kit.clock import FakeClock

from ottla.broker.common.purgatory import Purgatory, StandingWatch
from ottla.broker.replication.leader import fetch_sessions as module
from ottla.broker.replication.leader.fetch_sessions import CachedPartition, FetchSessions
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData, ReplicaState

MINUTE = 60.0
CLIENT = -1


class Cache:
    """A cache with two places, and a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = FakeClock(0.0)
        self.fetches = Purgatory("fetch")
        self.sessions = FetchSessions(2, self.fetches, self.clock)

    def open(self, size: int, replica: int = CLIENT) -> int:
        """Begin a session of so many partitions; its id, 0 where there is no place for it."""
        listed = [partition(index) for index in range(size)]
        body = FetchRequest(
            replica_state=ReplicaState(replica_id=replica), max_wait_ms=0, min_bytes=1, session_epoch=0, topics=[]
        )
        return self.sessions.context(body, 17, listed, []).session_id

    def use(self, session_id: int, epoch: int = 1, forgotten: Iterable[int] = (), replica: int = CLIENT) -> ErrorCode:
        """Go on with a session, perhaps with fewer partitions."""
        body = FetchRequest(
            replica_state=ReplicaState(replica_id=replica),
            max_wait_ms=0,
            min_bytes=1,
            session_id=session_id,
            session_epoch=epoch,
            topics=[],
        )
        try:
            self.sessions.context(body, 17, [], [partition(index).session_key for index in forgotten])
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE


def partition(index: int, offset: int = 0) -> CachedPartition:
    """One that a client lists."""
    wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1000)
    return CachedPartition(TopicPartition("t", index), b"t" * 16, wanted)


def test_a_full_cache_refuses_and_the_client_goes_on_without() -> None:
    """It lists all its partitions with every fetch then."""
    cache = Cache()

    assert cache.open(1)
    assert cache.open(1)
    assert cache.open(9) == 0


def test_a_session_that_nobody_uses_gives_its_place() -> None:
    """To any other, after two minutes."""
    cache = Cache()
    used, unused = cache.open(1), cache.open(5)
    cache.clock.now = MINUTE
    cache.use(used)
    cache.clock.now = 2 * MINUTE

    assert cache.open(1)
    assert (cache.use(used, 2), cache.use(unused)) == (ErrorCode.NONE, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)


def test_evictions_are_counted_and_partitions_added_up() -> None:
    """A session that could not be made, or was closed by its client, is no eviction."""
    cache = Cache()
    cache.open(1)
    cache.open(5)
    assert cache.open(2) == 0
    assert (len(cache.sessions), cache.sessions.partition_count, cache.sessions.evictions) == (2, 6, 0)
    cache.clock.now = 2 * MINUTE
    cache.sessions.close(cache.open(2))
    assert (len(cache.sessions), cache.sessions.partition_count, cache.sessions.evictions) == (1, 5, 1)


def test_a_session_that_was_long_there_gives_its_place_to_a_larger_one() -> None:
    """The smallest of them, and never to one of the same size."""
    cache = Cache()
    small, large = cache.open(2), cache.open(5)
    for session, epoch in ((small, 1), (large, 1), (small, 2), (large, 2)):
        cache.clock.now += MINUTE
        cache.use(session, epoch)

    assert cache.open(2) == 0
    cache.clock.now += 1
    assert cache.open(3)
    assert (cache.use(small, 3), cache.use(large, 3)) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.NONE)


def test_a_follower_takes_the_place_of_a_client_at_once() -> None:
    """Of the smallest, however small it is itself."""
    cache = Cache()
    small, large = cache.open(5), cache.open(9)

    assert cache.open(1, replica=2)
    assert (cache.use(small), cache.use(large)) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.NONE)


def test_the_partitions_of_a_follower_are_watched_as_long_as_it_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """From its first fetch in the session until it forgets them, or the session ends."""
    cache = Cache()
    watches: list[StandingWatch] = []
    stand = cache.fetches.stand

    def noted() -> StandingWatch:
        watches.append(stand())
        return watches[-1]

    monkeypatch.setattr(cache.fetches, "stand", noted)
    session, _ = cache.open(3, replica=2), cache.open(1)
    sizes = []
    for epoch, forgotten in enumerate(([], [0], [1]), 1):
        cache.use(session, epoch, forgotten, replica=2)
        sizes.append([len(watch) for watch in watches])
    cache.sessions.close(session)

    assert sizes == [[3], [2], [1]]
    assert len(watches[0]) == 0


def test_a_follower_gives_its_place_to_no_client() -> None:
    """But to another follower with more partitions, after two minutes."""
    cache = Cache()
    first, second = cache.open(2, replica=2), cache.open(3, replica=3)
    assert cache.open(7, replica=4) == 0
    for session, epoch in ((first, 1), (second, 1), (first, 2), (second, 2)):
        cache.clock.now += MINUTE
        cache.use(session, epoch)

    assert cache.open(99) == 0
    assert cache.open(7, replica=4)
    assert (cache.use(first, 3), cache.use(second, 3)) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.NONE)


def test_a_client_that_did_not_get_its_answer_cannot_go_on() -> None:
    """What the session believes it to know was in that answer: it has to list everything again."""
    cache = Cache()
    session = cache.open(1)
    cache.use(session, 1)

    assert cache.use(session, 1) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert cache.use(session, 2) == ErrorCode.NONE


def test_a_partition_that_is_listed_again_is_not_news_by_that() -> None:
    """What the client knows about it does not depend on where it reads."""
    known, again = partition(0), partition(0, offset=5)
    answer = PartitionData(partition_index=0, error_code=0, high_watermark=9, log_start_offset=1)
    assert known.is_news(answer)

    again.follow(known)

    assert not again.is_news(answer)


def test_an_error_makes_the_recovery_news() -> None:
    """Though the high watermark is what it was before."""
    cached = partition(0)
    good = PartitionData(partition_index=0, error_code=0, high_watermark=9, log_start_offset=1)
    cached.is_news(good)

    assert cached.is_news(PartitionData(partition_index=0, error_code=6, high_watermark=-1))
    assert cached.is_news(good)


def test_sessions_of_clients_share_a_limit_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody checks that they exist. A client with more goes on without a session, and followers have no limit."""
    monkeypatch.setattr(module, "CLIENT_PARTITIONS_MAX", 10)
    cache = Cache()
    first = cache.open(6)
    assert first
    assert cache.open(5) == 0
    assert cache.open(11, replica=2)
    body = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=first, session_epoch=1, topics=[])
    with pytest.raises(KafkaError) as refused:
        cache.sessions.context(body, 17, [partition(index) for index in range(6, 11)], [])
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.open(10), "its partitions count no more"


def test_a_name_that_no_topic_has_begins_no_session() -> None:
    """It would be kept for minutes."""
    cache = Cache()
    body = FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=0, topics=[])
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    listed = [CachedPartition(TopicPartition("x" * 250, 0), b"\0" * 16, wanted)]
    assert cache.sessions.context(body, 12, listed, []).session_id == 0
