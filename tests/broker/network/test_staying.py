"""A worker that stays with a connection whose requests follow each other closely, and receives them itself."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.broker.handlers.data_path import batch, running_broker
from tests.broker.network.serving import (
    DEADLINE_SECONDS,
    Served,
    echo,
    receive_frame,
    send_frame,
    serving,
    serving_securely,
)
from tests.kit.waiting import until

from ottla.broker.common.turn import put_off
from ottla.broker.handlers.table import HANDLERS
from ottla.broker.network import connection as connection_module
from ottla.broker.network.connection import Connection
from ottla.broker.network.limits import NetworkLimits
from ottla.broker.requests.dispatch import Dispatcher
from ottla.protocol.api import Api
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.requests import encode_request


@pytest.fixture(autouse=True)
def stays_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any pause between requests is short, and a worker waits longer than any test for the next one."""
    monkeypatch.setattr(connection_module, "_CLOSE_SECONDS", float("inf"))
    monkeypatch.setattr(connection_module, "_STAY_MS", 10 * DEADLINE_SECONDS * 1000)


def only_connection(served: Served) -> Connection:
    """The connection of the only client."""
    (connection,) = served.on_loop(served.network.connections)
    assert isinstance(connection, Connection)
    return connection


def attended(served: Served, client: socket.socket) -> Connection:
    """Send a request, and wait until a worker stays for the next one; return its connection."""
    send_frame(client, b"first")
    assert receive_frame(client) == b"first"
    connection = only_connection(served)
    until(lambda: connection.is_lent, "a worker stays")
    return connection


def test_the_worker_that_stays_handles_the_next_requests() -> None:
    """Nobody is woken for them."""
    threads: list[str] = []

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        threads.append(threading.current_thread().name)
        echo(connection, frame, slot, arrived)

    with serving(dispatch) as served, served.connect() as client:
        attended(served, client)
        for number in range(50):
            send_frame(client, bytes([number]) * number)
            assert receive_frame(client) == bytes([number]) * number

    assert len(threads) == 51
    assert len(set(threads)) == 1


def test_a_client_that_leaves_meanwhile_is_gone_for_the_handler() -> None:
    """A change that nobody waits for is dropped then, although the loop does not watch the socket."""
    seen: list[bool] = []

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        if bytes(frame.body) == b"second":
            seen.append(connection.is_gone)
            client.close()
            until(lambda: connection.is_gone, "the client is gone")
            seen.append(connection.is_lent)
        echo(connection, frame, slot, arrived)

    with serving(dispatch) as served, served.connect() as client:
        attended(served, client)
        send_frame(client, b"second")
        until(lambda: len(seen) == 2, "the request was handled")

    assert seen == [False, True]


def test_the_loop_watches_again_when_no_request_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker is free for others then, and the next request takes the usual way."""
    monkeypatch.setattr(connection_module, "_STAY_MS", 1)
    with serving(echo) as served, served.connect() as client:
        for body in (b"first", b"second"):
            send_frame(client, body)
            assert receive_frame(client) == body
            connection = only_connection(served)
            until(lambda: not connection.is_lent, "the loop watches")  # noqa: B023


def test_a_worker_stays_only_while_another_one_is_idle() -> None:
    """With one worker, a connection that is silent now would keep all others waiting."""
    with serving(echo, num_io_threads="1") as served, served.connect() as first, served.connect() as second:
        for client in (first, second, first, second):
            send_frame(client, b"hello")
            assert receive_frame(client) == b"hello"


def test_pipelined_requests_are_answered_in_order() -> None:
    """More than a worker handles in one turn, or than a connection may have in flight."""
    with serving(echo) as served, served.connect() as client:
        attended(served, client)
        sent = b"".join((4).to_bytes(4) + number.to_bytes(4) for number in range(1000))
        sender = threading.Thread(target=client.sendall, args=(sent,))
        sender.start()
        answers = [receive_frame(client) for _ in range(1000)]
        sender.join(DEADLINE_SECONDS)

    assert answers == [number.to_bytes(4) for number in range(1000)]


def record_calls(monkeypatch: pytest.MonkeyPatch, name: str) -> list[str]:
    """Note the threads that call a method of connections."""
    threads: list[str] = []
    original = getattr(Connection, name)

    def call(connection: Connection) -> Any:
        threads.append(threading.current_thread().name)
        return original(connection)

    monkeypatch.setattr(Connection, name, call)
    return threads


@pytest.mark.parametrize("size", [30 * 1024, 64 * 1024, 5 * 1024 * 1024])
def test_the_worker_that_stays_receives_and_answers_large_requests(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All parts of them, and it waits for room at the socket: the loop has no part in it."""
    body = os.urandom(size)
    with serving(echo) as served, served.connect() as client:
        attended(served, client)
        reads, drains = record_calls(monkeypatch, "receive"), record_calls(monkeypatch, "drain")
        for _ in range(3):
            sender = threading.Thread(target=send_frame, args=(client, body))
            sender.start()
            assert receive_frame(client) == body
            sender.join(DEADLINE_SECONDS)
        assert not reads
        assert not drains


def test_the_deadline_of_a_request_that_a_worker_receives_is_that_of_the_whole_request() -> None:
    """More of it does not make it longer."""
    with serving(echo) as served, served.connect() as client:
        connection = attended(served, client)
        client.sendall((9).to_bytes(4) + b"beg")
        until(lambda: connection.reader.is_within_frame, "the worker has the beginning")
        begun = connection.frame_begun
        client.sendall(b"in")
        until(lambda: connection.last_read > begun, "the worker reads on")
        assert connection.is_lent
        assert connection.frame_begun == begun
        client.sendall(b"ning")

        assert receive_frame(client) == b"beginning"


def test_a_request_that_stops_within_is_continued_by_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that pauses does not keep the worker; its deadline is that of the whole request."""
    body = os.urandom(256 * 1024)
    with serving(echo) as served, served.connect() as client:
        connection = attended(served, client)
        monkeypatch.setattr(connection_module, "_STAY_MS", 1)
        # The wait under way is still a long one.
        send_frame(client, b"second")
        assert receive_frame(client) == b"second"
        client.sendall(len(body).to_bytes(4) + body[:1000])
        until(lambda: not connection.is_lent and connection.reader.is_within_frame, "the loop waits for the rest")
        begun = connection.frame_begun
        client.sendall(body[1000:100_000])
        until(lambda: connection.last_read > begun, "the loop reads")
        assert connection.frame_begun == begun
        client.sendall(body[100_000:])

        assert receive_frame(client) == body


def test_a_large_request_waits_for_memory_though_a_worker_reads() -> None:
    """The worker gives it to the loop, which continues when another request gives memory back."""
    is_free = threading.Event()
    body = os.urandom(1024 * 1024)

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        if bytes(frame.body[:5]) == b"holds":
            assert is_free.wait(DEADLINE_SECONDS)
        echo(connection, frame, slot, arrived)

    limit = str(1024 * 1024)
    with (
        serving(dispatch, queued_max_request_bytes=limit, socket_request_max_bytes=limit) as served,
        served.connect() as client,
    ):
        connection = attended(served, client)
        buffers = connection.reader.buffers
        with served.connect() as holder, served.connect() as beyond:
            for other, used in ((holder, 1), (beyond, 2)):
                send_frame(other, b"holds" + bytes(len(body) - 5))
                until(lambda: buffers.used_bytes == used * len(body), "the other request is there")  # noqa: B023
            sender = threading.Thread(target=send_frame, args=(client, body))
            sender.start()
            until(lambda: connection.reader.awaits_memory and not connection.is_lent, "the request waits")
            is_free.set()

            assert receive_frame(client) == body
            sender.join(DEADLINE_SECONDS)


def test_the_loop_sends_what_a_client_does_not_take_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker is free for others then, and requests that waited behind the response are handled."""
    large = bytes(32 * 1024 * 1024)

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        connection.respond(slot, [large if frame.body == b"large" else bytes(frame.body)])

    with serving(dispatch) as served, served.connect() as client:
        connection = attended(served, client)
        monkeypatch.setattr(connection_module, "_STAY_MS", 1)
        client.sendall(b"".join(len(body).to_bytes(4) + body for body in (b"large", b"last")))
        until(lambda: connection.is_writing and not connection.is_lent, "the loop waits for room")

        assert receive_frame(client) == large
        assert receive_frame(client) == b"last"


def test_requests_behind_a_large_response_are_handled_by_the_worker_that_sends_it() -> None:
    """They wait until it is sent, and nobody is woken for them."""
    large = bytes(32 * 1024 * 1024)
    threads: list[str] = []

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        threads.append(threading.current_thread().name)
        connection.respond(slot, [large if frame.body == b"large" else bytes(frame.body)])

    with serving(dispatch) as served, served.connect() as client:
        attended(served, client)
        client.sendall(b"".join(len(body).to_bytes(4) + body for body in (b"large", b"last")))

        assert receive_frame(client) == large
        assert receive_frame(client) == b"last"
    assert len(threads) == 3
    assert len(set(threads)) == 1


def test_requests_that_wait_for_a_worker_are_bounded_by_their_bytes() -> None:
    """The rest waits at the client, whatever it sends, and comes when the worker has caught up."""
    begins, is_free = threading.Event(), threading.Event()
    body = os.urandom(1024 * 1024)

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        begins.set()
        assert is_free.wait(DEADLINE_SECONDS)
        echo(connection, frame, slot, arrived)

    with serving(dispatch) as served, served.connect() as client:
        send_frame(client, body)
        # Before the worker has taken it, it counts among those that wait.
        assert begins.wait(DEADLINE_SECONDS)
        sender = threading.Thread(target=client.sendall, args=((len(body).to_bytes(4) + body) * 39,))
        sender.start()
        connection = only_connection(served)
        until(lambda: not connection.is_reading, "nobody reads")
        # One is handled, four wait.
        assert connection.reader.buffers.used_bytes == 5 * len(body)
        is_free.set()

        assert all(receive_frame(client) == body for _ in range(40))
        sender.join(DEADLINE_SECONDS)


def test_a_request_that_is_cut_by_the_end_of_what_was_received_stays_with_the_worker() -> None:
    """With pipelined requests nearly every receive ends inside one, and nobody is woken for the rest."""
    threads: list[str] = []

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        threads.append(threading.current_thread().name)
        echo(connection, frame, slot, arrived)

    bodies = [os.urandom(16 * 1024) for _ in range(40)]
    with serving(dispatch) as served, served.connect() as client:
        attended(served, client)
        wire = b"".join(len(body).to_bytes(4) + body for body in bodies)
        sender = threading.Thread(target=client.sendall, args=(wire,))
        sender.start()

        assert [receive_frame(client) for _ in bodies] == bodies
        sender.join(DEADLINE_SECONDS)
    assert len(threads) == 1 + len(bodies)
    assert len(set(threads)) == 1


def test_the_deadline_of_a_request_does_not_run_while_the_one_before_it_is_handled() -> None:
    """Nobody reads the rest meanwhile, so the client is not to blame; afterwards it has as long as any other."""
    is_free = threading.Event()
    limits = NetworkLimits(idle_seconds=float("inf"), frame_seconds=30.0)
    passed: list[str | None] = []

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        if frame.body == b"slow":
            assert is_free.wait(DEADLINE_SECONDS)
            echo(connection, frame, slot, arrived)
            # It is answered, and the worker has not come back to the socket.
            passed.append(limits.overdue(connection, time.monotonic() + 3600))
        else:
            echo(connection, frame, slot, arrived)

    with serving(dispatch) as served, served.connect() as client:
        connection = attended(served, client)
        client.sendall((4).to_bytes(4) + b"slow" + (9).to_bytes(4) + b"begi")
        until(lambda: connection.reader.is_within_frame, "the worker has the beginning of the second")
        is_free.set()
        assert receive_frame(client) == b"slow"
        until(lambda: connection.frame_begun < float("inf"), "the worker reads again")
        now = time.monotonic()
        assert limits.overdue(connection, now) is None
        assert limits.overdue(connection, now + 31) == "a request did not arrive completely"
        client.sendall(b"nning")

        assert receive_frame(client) == b"beginning"
    assert passed == [None]


def test_requests_that_arrive_while_others_wait_for_followers_belong_to_one_turn() -> None:
    """The followers are woken once for all of them, when no more has arrived."""
    done: list[bytes] = []
    held: list[tuple[Connection, Any]] = []
    bodies = [bytes([0, 0, number]) for number in range(4)]

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        if frame.body == b"first":
            echo(connection, frame, slot, arrived)
            return
        held.append((connection, slot))
        done.append(frame.body)
        if frame.body in bodies[1:3]:
            send_frame(client, bodies[bodies.index(frame.body) + 1])
        if not put_off("wake", lambda: done.append(b"wake")):
            done.append(b"wake")

    with serving(dispatch) as served, served.connect() as client:
        attended(served, client)
        send_frame(client, bodies[0])
        until(lambda: done == [bodies[0], b"wake"], "the first one waits")
        send_frame(client, bodies[1])
        until(lambda: len(done) == 6, "all wait")
        assert done == [bodies[0], b"wake", *bodies[1:], b"wake"]
        for (connection, slot), body in zip(held, bodies, strict=True):
            connection.respond(slot, [body])

        assert [receive_frame(client) for _ in bodies] == bodies


def test_a_client_that_goes_away_leaves_nothing_behind() -> None:
    """The worker finds the end, and the loop closes the connection."""
    with serving(echo) as served:
        with served.connect() as client:
            attended(served, client)
        until(lambda: not served.on_loop(served.network.connections), "the connection is closed")


def test_what_was_sent_before_the_client_left_takes_effect() -> None:
    """A client with acks=0 does not wait for us."""
    handled: list[bytes] = []

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        handled.append(bytes(frame.body))
        if frame.body == b"first":
            echo(connection, frame, slot, arrived)
        else:
            connection.respond(slot, None)

    with serving(dispatch) as served:
        with served.connect() as client:
            attended(served, client)
            client.sendall(b"".join((4).to_bytes(4) + number.to_bytes(4) for number in range(100)))
        until(lambda: not served.on_loop(served.network.connections), "the connection is closed")

    assert handled == [b"first", *(number.to_bytes(4) for number in range(100))]


def test_a_size_that_no_honest_client_sends_closes_the_connection() -> None:
    """It is counted and logged as when the loop reads it."""
    with serving(echo) as served, served.connect() as client:
        attended(served, client)
        client.sendall(b"\xff\xff\xff\xff")

        assert receive_frame(client) is None
        assert served.on_loop(lambda: served.network.counts.frames_refused) == 1


def test_a_muted_client_is_not_read() -> None:
    """Its next request waits until the pause is over."""
    handled: list[bytes] = []

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        handled.append(bytes(frame.body))
        if frame.body == b"too much":
            connection.mute(10 * DEADLINE_SECONDS)
        echo(connection, frame, slot, arrived)

    with serving(dispatch) as served, served.connect() as client:
        connection = attended(served, client)
        send_frame(client, b"too much")
        assert receive_frame(client) == b"too much"
        send_frame(client, b"more")
        until(lambda: not connection.is_lent and not connection.is_reading, "nobody reads")
        assert handled == [b"first", b"too much"]


def test_a_worker_that_stays_ends_when_the_network_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives up after its wait, and takes no more requests."""
    monkeypatch.setattr(connection_module, "_STAY_MS", 10)
    with serving(echo) as served:
        client = served.connect()
        send_frame(client, b"first")
        assert receive_frame(client) == b"first"
    with client:
        assert receive_frame(client) is None


def produce_to(topic: str) -> bytes:
    """A Produce with one record."""
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch(b"v"))])
    request = ProduceRequest(acks=1, timeout_ms=60_000, topic_data=[data])
    return b"".join(encode_request(Api.PRODUCE, 9, 1, "producer", request))


def test_a_log_that_blocks_stalls_neither_the_loop_nor_other_connections(tmp_path: Path) -> None:
    """The lock stands for a disk that does not answer: only those who write there wait."""
    with running_broker(tmp_path, {}) as broker:
        for topic in ("slow", "quick"):
            broker.lead(topic, replicas=(1,))
        services = broker.services
        dispatch = Dispatcher(HANDLERS, services.for_handlers(), services.configs.broker, services.requests).dispatch
        slow = services.partitions.get(TopicPartition("slow", 0))
        with (
            serving_securely(dispatch, services.configs.broker(), {}) as served,
            served.connect() as writer,
            served.connect() as other,
        ):
            for _ in range(3):
                send_frame(writer, produce_to("slow"))
                assert receive_frame(writer) is not None
            until(lambda: any(each.is_lent for each in served.on_loop(served.network.connections)), "a worker stays")
            with slow.log.lock:
                send_frame(writer, produce_to("slow"))
                until(slow.lock.locked, "the worker waits for the log")
                for _ in range(20):
                    send_frame(other, produce_to("quick"))
                    assert receive_frame(other) is not None
                # The loop itself: it accepts and reads a connection that it has not seen before.
                with served.connect() as third:
                    send_frame(third, produce_to("quick"))
                    assert receive_frame(third) is not None
            assert receive_frame(writer) is not None
