"""What is named in each request of a fetch session."""

from __future__ import annotations

from ottla.client.net.fetch_session import FetchSession
from ottla.client.types import TopicPartition
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
IDS = {"t": b"0123456789abcdef"}


def row(partition: TopicPartition, offset: int) -> FetchPartition:
    """Return what is asked for of a partition."""
    return FetchPartition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=1)


def request(session: FetchSession, *rows: FetchPartition, ids: dict[str, bytes] = IDS) -> FetchRequest:
    """Return the request for these rows."""
    wanted = {TopicPartition("t", one.partition): one for one in rows}
    return session.request(wanted, ids, max_wait_ms=1, min_bytes=1, max_bytes=1, isolation_level=0, rack_id="")


def exchange(session: FetchSession, session_id: int, *rows: FetchPartition) -> FetchRequest:
    """Return the request for these rows, after it was answered."""
    made = request(session, *rows)
    session.answered(session_id, {TopicPartition("t", one.partition): one for one in rows}, IDS)
    return made


def named(made: FetchRequest) -> list[FetchPartition]:
    """Return the partitions that a request names."""
    return [one for topic in made.topics for one in topic.partitions]


def test_only_what_changed_is_named() -> None:
    """All at first; then a partition with another offset, one that is new, and one that is gone."""
    session = FetchSession()
    first = exchange(session, 7, row(ONE, 0), row(TWO, 0))
    assert (first.session_id, first.session_epoch, len(named(first))) == (0, 0, 2)
    second = exchange(session, 7, row(ONE, 5), row(TWO, 0))
    assert (second.session_id, second.session_epoch, named(second)) == (7, 1, [row(ONE, 5)])
    third = exchange(session, 7, row(TWO, 0))
    assert named(third) == []
    assert [(topic.topic_id, topic.partitions) for topic in third.forgotten_topics_data] == [(IDS["t"], [0])]
    assert exchange(session, 7, row(TWO, 0)).session_epoch == 3


def test_without_a_session_all_is_named_each_time() -> None:
    """A broker that has no room for it answers with id 0."""
    session = FetchSession()
    for _ in range(2):
        made = exchange(session, 0, row(ONE, 0))
        assert (made.session_id, made.session_epoch, len(named(made))) == (0, 0, 1)


def test_an_error_or_another_topic_id_begins_anew() -> None:
    """What the broker may have forgotten is named again."""
    session = FetchSession()
    exchange(session, 7, row(ONE, 0))
    session.reset()
    assert named(exchange(session, 8, row(ONE, 0))) == [row(ONE, 0)]
    made = request(session, row(ONE, 0), ids={"t": b"another-topic-id"})
    assert (made.session_id, made.session_epoch, named(made)) == (0, 0, [row(ONE, 0)])
