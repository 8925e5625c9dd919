"""Fetches that wait: until there are enough bytes, until something is wrong, or until their time is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any, Protocol

import pytest
from tests.interop.clients.record import DEADLINE_S
from tests.interop.raw import FETCH_VERSION, RawConnection, fetch_request, one_record
from tests.kit.broker_process import BrokerProcess

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest

# Longer than any test waits: whoever is answered was woken.
FOREVER_MS = int(DEADLINE_S * 2 * 1000)
# How much later than asked an answer may come, on a machine with too much to do.
LATE_S_MAX = 20.0
DELETE_TOPICS_VERSION = 5


class Waiter:
    """A fetch under way on a connection and a thread of its own."""

    def __init__(self, broker: BrokerProcess, topic: str, min_bytes: int, max_wait_ms: int) -> None:
        self.answered = threading.Event()
        self._answer: Any = None
        self._connection = RawConnection(broker.bootstrap)
        body = fetch_request(topic, 0, min_bytes=min_bytes, max_wait_ms=max_wait_ms)
        self._connection.send(Api.FETCH, FETCH_VERSION, body)
        self._thread = threading.Thread(target=self._receive)
        self._thread.start()

    def _receive(self) -> None:
        # The connection ends under the hands of a test that fails.
        with suppress(OSError, ProtocolError):
            self._answer = self._connection.receive(Api.FETCH, FETCH_VERSION)[1].responses[0].partitions[0]
            self.answered.set()

    def wait(self) -> Any:
        """Return the answer."""
        assert self.answered.wait(DEADLINE_S), "the fetch was not answered"
        return self._answer

    def close(self) -> None:
        """Close the connection, whether there was an answer or not."""
        self._connection.shut_down()
        self._thread.join(DEADLINE_S)
        self._connection.close()


class StartFetch(Protocol):
    """Begins a fetch of all of partition 0."""

    def __call__(self, *, min_bytes: int, max_wait_ms: int = FOREVER_MS) -> Waiter:
        """Send it, and do not wait."""
        ...


@pytest.fixture
def fetch(broker: BrokerProcess, topic: str) -> Iterator[StartFetch]:
    """Begin fetches of the topic, each on a connection of its own."""
    with ExitStack() as stack:

        def start(*, min_bytes: int, max_wait_ms: int = FOREVER_MS) -> Waiter:
            return stack.enter_context(closing(Waiter(broker, topic, min_bytes, max_wait_ms)))

        yield start


@pytest.fixture
def producer(broker: BrokerProcess) -> Iterator[RawConnection]:
    """A connection to produce with."""
    with RawConnection(broker.bootstrap) as connection:
        yield connection


def test_a_fetch_wakes_when_there_are_enough_bytes(fetch: StartFetch, topic: str, producer: RawConnection) -> None:
    """Not for the first batch, which is too little, and at once for the second."""
    batch = one_record(b"x" * 100)
    waiter = fetch(min_bytes=len(batch) + 1)

    producer.produce(topic, batch)
    assert not waiter.answered.is_set()
    producer.produce(topic, batch)

    # An answer that came too early would have the first batch alone.
    assert len(waiter.wait().records) == 2 * len(batch)


def test_a_fetch_that_finds_enough_does_not_wait(fetch: StartFetch, topic: str, producer: RawConnection) -> None:
    """Whatever time it would have."""
    batch = one_record(b"value")
    producer.produce(topic, batch)

    assert len(fetch(min_bytes=len(batch)).wait().records) == len(batch)
    assert len(fetch(min_bytes=0).wait().records) == len(batch)


@pytest.mark.parametrize("max_wait_ms", [1, 250, 1000])
def test_a_fetch_is_answered_when_its_time_is_over(max_wait_ms: int, fetch: StartFetch) -> None:
    """Empty, not before, and not much later."""
    begun = time.monotonic()
    answer = fetch(min_bytes=1, max_wait_ms=max_wait_ms).wait()
    waited_s = time.monotonic() - begun

    assert (answer.error_code, bytes(answer.records)) == (0, b"")
    assert max_wait_ms / 1000 <= waited_s < max_wait_ms / 1000 + LATE_S_MAX


def test_what_is_there_is_given_when_the_time_is_over(fetch: StartFetch, topic: str, producer: RawConnection) -> None:
    """Too little for min_bytes, and still more than nothing."""
    batch = one_record(b"value")
    producer.produce(topic, batch)

    assert len(fetch(min_bytes=1_000_000, max_wait_ms=100).wait().records) == len(batch)


def test_one_append_wakes_all_who_wait(fetch: StartFetch, topic: str, producer: RawConnection) -> None:
    """Fifty connections that wait for the same partition."""
    waiters = [fetch(min_bytes=1) for _ in range(50)]
    batch = one_record(b"value")
    producer.produce(topic, batch)

    assert {len(waiter.wait().records) for waiter in waiters} == {len(batch)}


def test_a_fetch_is_answered_when_its_topic_is_deleted(fetch: StartFetch, topic: str, producer: RawConnection) -> None:
    """With an error, rather than at the end of its time."""
    waiter = fetch(min_bytes=1)
    wanted = DeleteTopicsRequest(topic_names=[topic], timeout_ms=FOREVER_MS)
    producer.request(Api.DELETE_TOPICS, DELETE_TOPICS_VERSION, wanted)

    assert waiter.wait().error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_those_who_go_away_while_they_wait_do_no_harm(fetch: StartFetch, topic: str, producer: RawConnection) -> None:
    """Connections that are closed in the middle of a long poll are forgotten, and others are served."""
    for _ in range(20):
        fetch(min_bytes=1).close()
    waiter = fetch(min_bytes=1)
    batch = one_record(b"value")
    producer.produce(topic, batch)

    assert len(waiter.wait().records) == len(batch)
