"""Requests of one connection take effect, and are answered, in the order in which they were sent."""

from __future__ import annotations

import threading

from tests.interop.clients.record import DEADLINE_S
from tests.interop.raw import (
    FETCH_VERSION,
    LIST_OFFSETS_VERSION,
    PRODUCE_VERSION,
    RawConnection,
    end_offset_request,
    fetch_request,
    one_record,
    produce_request,
    stored_batches,
)
from tests.kit.broker_process import BrokerProcess
from tests.kit.waiting import until

from ottla.protocol.api import Api

COUNT = 1000


def test_a_thousand_pipelined_produce_requests_are_answered_in_order(broker: BrokerProcess, topic: str) -> None:
    """Offsets go from 0 to 999 in the order of the requests, and so do the answers."""
    with RawConnection(broker.bootstrap) as connection:

        def send() -> None:
            for number in range(COUNT):
                connection.send(Api.PRODUCE, PRODUCE_VERSION, produce_request(topic, one_record(b"%d" % number)))

        sender = threading.Thread(target=send)
        sender.start()
        answers = [connection.receive(Api.PRODUCE, PRODUCE_VERSION) for _ in range(COUNT)]
        sender.join(DEADLINE_S)

    assert [correlation_id for correlation_id, _ in answers] == list(range(COUNT))
    results = [response.responses[0].partition_responses[0] for _, response in answers]
    assert {result.error_code for result in results} == {0}
    assert [result.base_offset for result in results] == list(range(COUNT))
    stored = [record.value for batch in stored_batches(broker.bootstrap, topic) for record in batch.records()]
    assert stored == [b"%d" % number for number in range(COUNT)]


def test_a_request_sees_what_those_before_it_have_done(broker: BrokerProcess, topic: str) -> None:
    """Also when different requests alternate, and none waits for the answer to another."""
    rounds = 100
    with RawConnection(broker.bootstrap) as connection:
        for number in range(rounds):
            connection.send(Api.PRODUCE, PRODUCE_VERSION, produce_request(topic, one_record(b"%d" % number), acks=1))
            connection.send(Api.LIST_OFFSETS, LIST_OFFSETS_VERSION, end_offset_request(topic))
        for number in range(rounds):
            produced, _ = connection.receive(Api.PRODUCE, PRODUCE_VERSION)
            listed, response = connection.receive(Api.LIST_OFFSETS, LIST_OFFSETS_VERSION)
            assert (produced, listed) == (2 * number, 2 * number + 1)
            assert response.topics[0].partitions[0].offset == number + 1


def test_a_response_waits_for_those_before_it(broker: BrokerProcess, topic: str) -> None:
    """A fetch that waits for records holds back the answer to what was sent after it."""
    with RawConnection(broker.bootstrap) as waiting, RawConnection(broker.bootstrap) as other:
        long_poll = fetch_request(topic, 0, min_bytes=1, max_wait_ms=int(DEADLINE_S * 1000))
        first = waiting.send(Api.FETCH, FETCH_VERSION, long_poll)
        second = waiting.send(Api.LIST_OFFSETS, LIST_OFFSETS_VERSION, end_offset_request(topic))
        other.produce(topic, one_record(b"value"))

        correlation_id, response = waiting.receive(Api.FETCH, FETCH_VERSION)
        assert correlation_id == first
        assert response.responses[0].partitions[0].records
        assert waiting.receive(Api.LIST_OFFSETS, LIST_OFFSETS_VERSION)[0] == second


def test_requests_without_an_answer_keep_their_place(broker: BrokerProcess, topic: str) -> None:
    """acks=0 between others: it takes effect in its turn, and nothing is answered for it."""
    with RawConnection(broker.bootstrap) as connection:
        for number in range(100):
            request = produce_request(topic, one_record(b"%d" % number), acks=0 if number % 2 else 1)
            connection.send(Api.PRODUCE, PRODUCE_VERSION, request)
        for number in range(0, 100, 2):
            correlation_id, response = connection.receive(Api.PRODUCE, PRODUCE_VERSION)
            assert correlation_id == number
            assert response.responses[0].partition_responses[0].base_offset == number
        assert connection.end_offset(topic) == 100


def test_what_was_sent_before_a_connection_is_closed_takes_effect(broker: BrokerProcess, topic: str) -> None:
    """A producer with acks=0 sends and goes."""
    connections, requests = 50, 10
    for _ in range(connections):
        with RawConnection(broker.bootstrap) as connection:
            for _ in range(requests):
                connection.send(Api.PRODUCE, PRODUCE_VERSION, produce_request(topic, one_record(b"value"), acks=0))

    with RawConnection(broker.bootstrap) as connection:
        until(lambda: connection.end_offset(topic) == connections * requests, "all is appended")
