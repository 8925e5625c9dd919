"""The asking side of a fetch session, against a broker's side written down in a few lines."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.client.net.fetch_session_client import (
    FetchSessionClient,
    SessionFetch,
    SessionPartition,
    fetch_topics,
    forgotten_topics,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import NO_SESSION, FetchPartition, FetchResponse, FetchTopic, ForgottenTopic
from ottla.protocol.primitives import UUID_ZERO

ID_OF = {"a": b"A" * 16, "b": b"B" * 16, "nameless": UUID_ZERO}
# A position is whatever the caller compares: here, an offset.
Position = int
named = st.builds(
    lambda topic, index: SessionPartition(topic, ID_OF[topic], index), st.sampled_from("ab"), st.integers(0, 2)
)
partitions = st.one_of(named, st.just(SessionPartition("nameless", UUID_ZERO, 0)))
positions = st.integers(0, 3)


@dataclasses.dataclass
class BrokersSide:
    """What a broker keeps of a session."""

    session_id: int = NO_SESSION
    epoch: int = 0
    asked: dict[SessionPartition, Position] = dataclasses.field(default_factory=dict)

    def take(self, fetch: SessionFetch[Position]) -> FetchResponse:
        """Apply a fetch, and answer with the session and nothing else."""
        if fetch.session_epoch == 0:
            self.session_id, self.epoch, self.asked = self.session_id + 1, 0, {}
        elif fetch.session_id != self.session_id:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
        elif fetch.session_epoch != self.epoch:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, responses=[])
        self.epoch += 1
        self.asked.update(fetch.positions)
        for partition in fetch.forgotten:
            del self.asked[partition]
        return FetchResponse(session_id=self.session_id, responses=[])


@examples(150)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["put", "enter"]), partitions, positions),
            st.tuples(st.just("drop"), partitions),
            st.tuples(st.just("replace"), st.dictionaries(partitions, positions)),
            st.tuples(st.sampled_from(["fetch", "lose the request", "lose the answer", "lose the session"])),
        ),
        max_size=40,
    )
)
def test_after_each_fetch_the_broker_knows_what_is_wanted(steps: list[tuple[object, ...]]) -> None:
    """Whatever is changed between, and whatever gets lost."""
    session, broker, wanted = FetchSessionClient[Position](), BrokersSide(), dict[SessionPartition, Position]()

    def fetch() -> None:
        for _ in range(2):
            if session.answered(broker.take(session.next_fetch())) is ErrorCode.NONE:
                break
        assert broker.asked == wanted
        assert len(session) == len(wanted)
        assert session.is_by_id == all(partition.topic_id != UUID_ZERO for partition in wanted)

    for step in steps:
        match step:
            case ("put", SessionPartition() as partition, int() as position):
                session.put(partition, position)
                wanted[partition] = position
            case ("enter", SessionPartition() as partition, int() as position):
                session.enter(partition, position)
                wanted[partition] = position
            case ("drop", SessionPartition() as partition):
                session.drop(partition)
                wanted.pop(partition, None)
            case ("replace", dict() as every):
                session.replace(every)
                wanted.clear()
                wanted.update(every)
            case ("fetch",):
                fetch()
            case ("lose the request",):
                session.next_fetch()
                session.restart()
            case ("lose the answer",):
                broker.take(session.next_fetch())
                session.restart()
            case ("lose the session",):
                broker.session_id += 1000
    fetch()


def entered(*names: SessionPartition) -> FetchSessionClient[Position]:
    """A session that has begun with some partitions."""
    session = FetchSessionClient[Position]()
    for name in names:
        session.enter(name, 0)
    assert session.next_fetch().session_epoch == 0
    session.answered(FetchResponse(session_id=9, responses=[]))
    return session


ORDERS = SessionPartition("a", ID_OF["a"], 0)


def test_a_fetch_names_what_has_changed_and_nothing_else() -> None:
    """However many partitions there are."""
    session = entered(*(SessionPartition("a", ID_OF["a"], index) for index in range(700)))
    session.put(ORDERS, 1)
    assert session.next_fetch() == SessionFetch(9, 1, {ORDERS: 1}, {})


def test_a_partition_that_comes_back_begins_the_session_anew() -> None:
    """Or the broker would not repeat what it has reported."""
    session = entered(ORDERS)
    session.drop(ORDERS)
    session.enter(ORDERS, 0)
    fetch = session.next_fetch()
    assert (fetch.session_id, fetch.session_epoch) == (9, 0)


def test_the_count_of_fetches_begins_at_one_again() -> None:
    """After the largest number, as the broker's does."""
    session = entered(ORDERS)
    session._epoch = 2**31 - 1
    session.next_fetch()
    session.answered(FetchResponse(session_id=9, responses=[]))
    assert session.next_fetch().session_epoch == 1


def test_all_that_is_wanted_can_be_given_at_once() -> None:
    """What has changed is named, and what is gone is forgotten."""
    other = ORDERS._replace(partition=1)
    session = entered(ORDERS, other)
    session.replace({ORDERS: 1, other: 0})
    assert session.next_fetch() == SessionFetch(9, 1, {ORDERS: 1}, {})
    session.answered(FetchResponse(session_id=9, responses=[]))
    session.replace({other: 0})
    assert session.next_fetch() == SessionFetch(9, 2, {}, {ORDERS: None})


def test_a_broker_that_keeps_no_session_is_given_all_in_the_order_of_the_caller() -> None:
    """Callers put those first that were served longest ago."""
    other = ORDERS._replace(partition=1)
    session = FetchSessionClient[Position]()
    for order in ([ORDERS, other], [other, ORDERS]):
        session.replace(dict.fromkeys(order, 0))
        fetch = session.next_fetch()
        session.answered(FetchResponse(session_id=NO_SESSION, responses=[]))
        assert (fetch.session_id, fetch.session_epoch, [*fetch.positions]) == (NO_SESSION, 0, order)


def test_a_topic_with_another_id_is_another_topic() -> None:
    """The old one is forgotten under its old id."""
    session = entered(ORDERS)
    again = ORDERS._replace(topic_id=b"C" * 16)
    session.replace({again: 0})
    assert session.next_fetch() == SessionFetch(9, 1, {again: 0}, {ORDERS: None})


def test_requests_list_partitions_by_topic() -> None:
    """Each topic once, with its id."""
    keys = [SessionPartition(topic, ID_OF[topic], index) for topic, index in (("a", 0), ("b", 0), ("a", 1))]
    rows = [(key, FetchPartition(partition=key.partition, fetch_offset=5, partition_max_bytes=1)) for key in keys]

    assert fetch_topics(rows) == [
        FetchTopic(topic="a", topic_id=ID_OF["a"], partitions=[rows[0][1], rows[2][1]]),
        FetchTopic(topic="b", topic_id=ID_OF["b"], partitions=[rows[1][1]]),
    ]
    assert forgotten_topics(keys) == [
        ForgottenTopic(topic="a", topic_id=ID_OF["a"], partitions=[0, 1]),
        ForgottenTopic(topic="b", topic_id=ID_OF["b"], partitions=[0]),
    ]
