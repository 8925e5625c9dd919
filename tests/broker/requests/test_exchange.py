"""Every request ends exactly once: with its answer, with an error answer, or with a closed connection."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.broker.handlers.small_cluster import SmallCluster

from ottla.broker.common.caller_check import check_caller
from ottla.broker.common.timings import RequestMetrics
from ottla.broker.handlers.table import HANDLERS
from ottla.broker.requests.dispatch import Dispatcher, Entry
from ottla.broker.requests.metadata_wait import answer_when_met
from ottla.broker.requests.request import AnyRequest, Delayed, Handler, Refusal, RequestFailedError
from ottla.broker.security.session import Session
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Message
from ottla.protocol.messages.delete_records import DeleteRecordsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.produce_shape import ProduceShape
from ottla.protocol.requests import decode_response, encode_request

TIMEOUT_MS = 1000
HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
DONE = HeartbeatResponse(error_code=0)
# An error code is two bytes long.
NOT_ENCODABLE = HeartbeatResponse(error_code=70_000)


class FakeConnection:
    """Notes in which ways a request ended."""

    peer, listener = "127.0.0.1", "PLAINTEXT"

    def __init__(self) -> None:
        self.session = Session("PLAINTEXT", "127.0.0.1")
        self.produce_shape = ProduceShape()
        self.answers: list[Any] = []
        self.failures: list[str] = []
        self.refused: list[Any] = []
        self.released = 0
        self.is_gone = False

    def respond(self, _slot: Any, parts: Any) -> None:
        """Take the answer."""
        self.answers.append(parts)

    def refuse(self, _slot: Any, parts: Any, _seconds: float, reason: str) -> None:
        """Take the answer, and close."""
        self.refused.append(parts)
        self.failures.append(reason)

    def release(self, _frame: Any) -> None:
        """Take the frame back."""
        self.released += 1

    def fail(self, reason: str) -> None:
        """Close."""
        self.failures.append(reason)


class Exchanged:
    """One request to a handler of the test's own, and what became of it."""

    def __init__(
        self,
        handle: Handler[Any],
        api: Api = Api.HEARTBEAT,
        version: int = 4,
        body: Message = HEARTBEAT,
        *,
        is_gone: bool = False,
    ) -> None:
        self.cluster = SmallCluster()
        self.connection = FakeConnection()
        self.connection.is_gone = is_gone
        self._api, self._version = api, version
        handlers = {api: Entry(handle, api.versions, HANDLERS[api].services)}
        services = self.cluster.services
        self.metrics = RequestMetrics()
        dispatcher = Dispatcher(handlers, services.for_handlers(), services.configs.broker, self.metrics)
        frame = b"".join(encode_request(api, version, 7, "test", body))
        with capture_logs() as self.logged:
            dispatcher.dispatch(self.connection, SimpleNamespace(body=frame), None, 0.0)

    def time_passes(self) -> None:
        """Let everything that waits come to its deadline."""
        with capture_logs() as logged:
            self.cluster.delayed_topics.expire(TIMEOUT_MS)
        self.logged += logged

    @property
    def answer(self) -> Any:
        """The one answer, decoded; its connection is not closed."""
        assert self.connection.failures == []
        return self.only(self.connection.answers)

    def only(self, answers: list[Any]) -> Any:
        """Decode the only answer of a list."""
        assert len(answers) == 1, f"{len(answers)} answers"
        header, response = decode_response(self._api, self._version, b"".join(answers[0]))
        assert header.correlation_id == 7
        return response

    @property
    def reasons(self) -> list[str]:
        """Why the connection was closed; it had no answer."""
        assert self.connection.answers == []
        return self.connection.failures


def raising(error: Exception) -> Callable[..., Any]:
    """A function that fails, whatever it is given."""

    def fail(*_args: object) -> Any:
        raise error

    return fail


def giving(response: Message | Delayed | None) -> Handler[Any]:
    """A handler with this answer."""
    return lambda request: response


def later(answer: Callable[[Any], Message]) -> Handler[Any]:
    """A handler that waits in purgatory, and then answers."""
    return lambda request: answer_when_met(request, TIMEOUT_MS, {"t": lambda _: False}, answer)


class FailsToWait:
    """An answer for later that cannot even begin to wait."""

    def __init__(self, response: Message | None = None) -> None:
        self._response = response

    def then(self, respond: Callable[[Any], None]) -> None:
        """Answer, perhaps, and fail."""
        if self._response is not None:
            response = self._response
            respond(lambda: response)
        raise RuntimeError("no room")


UNEXPECTED = {
    "in the handler": raising(RuntimeError("oh")),
    "in encoding": giving(NOT_ENCODABLE),
    "in waiting": giving(FailsToWait()),
    "in the later callback": later(raising(RuntimeError("oh"))),
    "in encoding later": later(lambda late: NOT_ENCODABLE),
}


@pytest.mark.parametrize("handle", UNEXPECTED.values(), ids=UNEXPECTED)
def test_an_unexpected_failure_is_answered_wherever_it_happens(handle: Handler[Any]) -> None:
    """As Kafka does; without an answer the connection would wait for ever, and its later answers with it."""
    asked = Exchanged(handle)
    asked.time_passes()

    assert asked.answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    failure = next(line for line in asked.logged if line["event"] == "request_failed")
    assert (failure["api"], failure["version"], failure["peer"]) == ("Heartbeat", 4, "127.0.0.1")
    assert asked.connection.released == 1


@pytest.mark.parametrize("handle", [raising, lambda error: later(raising(error))], ids=["now", "later"])
def test_an_error_of_the_protocol_is_answered_with_its_code(handle: Callable[[Exception], Handler[Any]]) -> None:
    """And needs no line in the log: it is an answer as any other."""
    asked = Exchanged(handle(KafkaError(ErrorCode.NOT_COORDINATOR, "ask another")))
    asked.time_passes()

    assert asked.answer.error_code == ErrorCode.NOT_COORDINATOR
    assert asked.logged == []


def test_every_entry_of_a_request_carries_the_code_where_the_answer_has_no_other_place() -> None:
    """Here a partition of a topic."""
    wanted = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=3, timestamp=-1)])

    asked = Exchanged(
        raising(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)),
        Api.LIST_OFFSETS,
        7,
        ListOffsetsRequest(replica_id=-1, topics=[wanted]),
    )

    [topic] = asked.answer.topics
    [row] = topic.partitions
    assert (topic.name, row.partition_index, row.error_code) == ("t", 3, ErrorCode.KAFKA_STORAGE_ERROR)


def test_a_response_comes_at_once_or_later_and_only_the_first_counts() -> None:
    """Whatever is raised behind it."""
    for handle in (giving(DONE), later(lambda late: DONE), giving(FailsToWait(DONE))):
        asked = Exchanged(handle)
        asked.time_passes()
        asked.time_passes()
        assert asked.answer == DONE


@pytest.mark.parametrize(
    "error", [RuntimeError("oh"), KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)], ids=["unexpected", "of the protocol"]
)
def test_a_connection_is_closed_with_a_reason_where_no_answer_can_carry_the_error(error: Exception) -> None:
    """Metadata of all topics has no entry to put it in, and acks=0 has no answer."""
    rows = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=b"")])]
    produce = ProduceRequest(acks=0, timeout_ms=1, topic_data=rows)

    for api, version, body in ((Api.METADATA, 9, MetadataRequest(topics=None)), (Api.PRODUCE, 9, produce)):
        asked = Exchanged(raising(error), api, version, body)
        assert len(asked.reasons) == 1
        assert asked.reasons[0] in [line.get("error") for line in asked.logged]


def test_a_request_that_a_handler_gives_up_closes_its_connection() -> None:
    """As it says."""
    asked = Exchanged(raising(RequestFailedError("not for you")))

    assert asked.reasons == ["not for you"]
    assert [line["event"] for line in asked.logged] == ["request_refused"]


@pytest.mark.parametrize("is_refused", [True, False])
def test_who_fails_to_say_who_it_is_does_not_stay(is_refused: bool) -> None:
    """Neither where the handler says so, nor where it fails itself: it is answered, and the connection closed."""
    refusal = Refusal(SaslAuthenticateResponse(error_code=58, error_message="no", auth_bytes=b""), "no")

    def handle(_request: AnyRequest) -> Delayed:
        if is_refused:
            return refusal
        raise RuntimeError("oh")

    asked = Exchanged(handle, Api.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b""))

    code = ErrorCode.SASL_AUTHENTICATION_FAILED if is_refused else ErrorCode.UNKNOWN_SERVER_ERROR
    assert asked.only(asked.connection.refused).error_code == code
    assert len(asked.reasons) == 1


@pytest.mark.parametrize(
    ("api", "is_made"),
    [(Api.DELETE_TOPICS, False), (Api.DELETE_RECORDS, False), (Api.HEARTBEAT, True), (Api.METADATA, True)],
)
def test_a_change_whose_client_is_gone_is_not_begun(api: Api, is_made: bool) -> None:
    """A user who was told that the outcome is open may have decided otherwise; what programs send counts."""
    handled: list[AnyRequest] = []

    def handle(request: AnyRequest) -> None:
        handled.append(request)

    bodies = {
        Api.DELETE_TOPICS: DeleteTopicsRequest(topic_names=["t"], timeout_ms=1),
        Api.DELETE_RECORDS: DeleteRecordsRequest(topics=[], timeout_ms=1),
        Api.METADATA: MetadataRequest(topics=[]),
        Api.HEARTBEAT: HEARTBEAT,
    }
    version = 1 if api is Api.DELETE_RECORDS else 4
    assert len(Exchanged(handle, api, version, bodies[api]).connection.failures) == 0
    assert len(handled) == 1

    gone = Exchanged(handle, api, version, bodies[api], is_gone=True)

    assert len(handled) == 1 + is_made
    assert gone.connection.failures == ([] if is_made else ["the client is gone"])


def test_a_change_that_has_waited_asks_again_whether_it_is_wanted() -> None:
    """For as long as a worker has the request, its client may go; afterwards the thread has no check."""

    def handle(request: AnyRequest) -> None:
        check_caller()
        connection: Any = request.origin
        connection.is_gone = True
        check_caller()

    late = Exchanged(handle, Api.DELETE_TOPICS, 4, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1))

    assert late.connection.failures == ["the client is gone"]
    check_caller()


@pytest.mark.parametrize(("handle", "waits"), [(giving(DONE), 0), (later(lambda _: DONE), 1)], ids=["now", "later"])
def test_only_a_response_that_comes_later_has_waited(handle: Handler[Any], waits: int) -> None:
    """One that its handler returns spends no time in purgatory, however slow the machine is."""
    asked = Exchanged(handle)
    asked.time_passes()

    assert asked.answer == DONE
    assert sum(asked.metrics.by_api[Api.HEARTBEAT].remote.counts) == waits
