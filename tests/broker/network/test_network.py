"""Sockets, order, back pressure and deadlines, with real connections on loopback."""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.broker.network.serving import DEADLINE_SECONDS, echo, receive_exactly, receive_frame, send_frame, serving
from tests.kit.waiting import until

from ottla.broker.common.turn import put_off
from ottla.broker.config import Listener, SecurityProtocol
from ottla.broker.network import connection as connection_module
from ottla.broker.network.connection import Connection
from ottla.broker.network.limits import NetworkLimits
from ottla.broker.storage.open_files import FileSlice, OpenFile
from ottla.protocol.api import Api

PIPELINED = (Api.JOIN_GROUP, Api.SYNC_GROUP, Api.OFFSET_COMMIT, Api.FETCH, Api.PRODUCE)


@pytest.fixture(autouse=True, params=["the loop reads", "a worker stays"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of this holds whoever reads from the sockets."""
    if request.param == "a worker stays":
        monkeypatch.setattr(connection_module, "_CLOSE_SECONDS", float("inf"))


def test_a_frame_is_answered() -> None:
    """The simplest exchange."""
    with serving(echo) as served, served.connect() as client:
        send_frame(client, b"hello")

        assert receive_frame(client) == b"hello"


def test_a_frame_may_arrive_byte_by_byte() -> None:
    """The kernel cuts a stream as it likes."""
    with serving(echo) as served, served.connect() as client:
        for byte in (5).to_bytes(4) + b"hello":
            client.sendall(bytes([byte]))

        assert receive_frame(client) == b"hello"


@pytest.mark.parametrize("size", [0, 1, 32 * 1024, 64 * 1024, 1024 * 1024, 5 * 1024 * 1024 + 7])
def test_frames_of_any_size_are_answered(size: int) -> None:
    """Through the scratch buffer, or received straight into a buffer of their own that grows."""
    body = os.urandom(size)
    with serving(echo) as served, served.connect() as client:
        for _ in range(3):
            sender = threading.Thread(target=send_frame, args=(client, body))
            sender.start()
            assert receive_frame(client) == body
            sender.join(DEADLINE_SECONDS)


def test_a_thousand_pipelined_requests_are_answered_in_order() -> None:
    """Several are in flight, one worker at a time takes them in turn."""
    with serving(echo) as served, served.connect() as client:
        sender = threading.Thread(
            target=lambda: client.sendall(b"".join((4).to_bytes(4) + number.to_bytes(4) for number in range(1000)))
        )
        sender.start()
        answers = [receive_frame(client) for _ in range(1000)]
        sender.join(DEADLINE_SECONDS)

    assert answers == [number.to_bytes(4) for number in range(1000)]


def begins_with(api: Api) -> bytes:
    """The first bytes of a request."""
    return api.value.to_bytes(2)


def test_an_answer_that_is_ready_early_waits_for_those_before_it() -> None:
    """A produce may be handled while another one waits for its replicas, but its answer does not overtake."""
    slow, quick = begins_with(Api.PRODUCE) + b"slow", begins_with(Api.PRODUCE) + b"quick"
    held: list[tuple[Connection, Any]] = []
    second_handled = threading.Event()

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        if frame.body == slow:
            held.append((connection, slot))
        else:
            connection.respond(slot, [frame.body])
            second_handled.set()

    with serving(dispatch) as served, served.connect() as client:
        send_frame(client, slow)
        send_frame(client, quick)
        assert second_handled.wait(DEADLINE_SECONDS)
        connection, slot = held[0]
        connection.respond(slot, [b"at last"])

        assert receive_frame(client) == b"at last"
        assert receive_frame(client) == quick


@pytest.mark.parametrize("second", PIPELINED, ids=lambda api: api.label)
@pytest.mark.parametrize("first", PIPELINED, ids=lambda api: api.label)
def test_a_request_begins_when_the_one_before_it_is_answered(first: Api, second: Api) -> None:
    """As in Kafka, which reads the next request then; only a produce may begin behind one that waits."""
    events: list[tuple[str, Api]] = []
    held: list[tuple[Connection, Any]] = []
    is_held, is_handled = threading.Event(), threading.Event()

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        api = Api(int.from_bytes(frame.body[:2]))
        events.append(("begun", api))
        if not held:
            held.append((connection, slot))
            is_held.set()
        else:
            is_handled.set()
            connection.respond(slot, [b"second"])

    with serving(dispatch, num_io_threads="1") as served, served.connect() as client, served.connect() as other:
        client.sendall(b"".join(len(body).to_bytes(4) + body for body in (begins_with(first), begins_with(second))))
        assert is_held.wait(DEADLINE_SECONDS)
        if first is second is Api.PRODUCE:
            assert is_handled.wait(DEADLINE_SECONDS)
        else:
            # The only worker does what there is to do for the first connection before it comes to this one.
            send_frame(other, begins_with(Api.METADATA))
            assert receive_frame(other) == b"second"
            assert events == [("begun", first), ("begun", Api.METADATA)]
        connection, slot = held[0]
        events.append(("answered", first))
        connection.respond(slot, [b"first"])

        assert [receive_frame(client), receive_frame(client)] == [b"first", b"second"]
    if not first is second is Api.PRODUCE:
        assert events.index(("answered", first)) < len(events) - 1 == events.index(("begun", second), 1)


def test_a_produce_does_not_overtake_one_that_is_not_in_the_log_yet() -> None:
    """The coordinator of its transaction is being asked; the next batch of the producer would come first."""
    begun: list[int] = []
    held: list[tuple[Connection, Any]] = []
    is_held = threading.Event()

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        begun.append(len(begun))
        if not held:
            held.append((connection, slot))
            connection.hold_back()
            is_held.set()
        else:
            connection.respond(slot, [b"next"])

    with serving(dispatch, num_io_threads="1") as served, served.connect() as client, served.connect() as other:
        body = begins_with(Api.PRODUCE)
        client.sendall((len(body).to_bytes(4) + body) * 3)
        assert is_held.wait(DEADLINE_SECONDS)
        send_frame(other, begins_with(Api.METADATA))
        assert receive_frame(other) == b"next"
        assert len(begun) == 2

        connection, slot = held[0]
        connection.respond(slot, [b"first"])
        assert [receive_frame(client) for _ in range(3)] == [b"first", b"next", b"next"]


def test_what_waits_behind_another_request_takes_effect_though_the_client_leaves() -> None:
    """A consumer commits and closes its connection while its fetch still waits."""
    held: list[tuple[Connection, Any]] = []
    is_held, is_handled = threading.Event(), threading.Event()

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        if frame.body == begins_with(Api.FETCH):
            held.append((connection, slot))
            is_held.set()
        else:
            connection.respond(slot, [frame.body])
            is_handled.set()

    with serving(dispatch) as served:
        with served.connect() as client:
            send_frame(client, begins_with(Api.FETCH))
            send_frame(client, begins_with(Api.OFFSET_COMMIT))
            assert is_held.wait(DEADLINE_SECONDS)
        connection, slot = held[0]
        until(lambda: connection.is_ended, "the end of the connection is noticed")
        connection.respond(slot, [b"records"])

        assert is_handled.wait(DEADLINE_SECONDS)
        until(lambda: connection.is_closed, "the connection is closed")


def test_an_answer_is_not_held_back_by_a_later_request_that_waits() -> None:
    """Answers are sent together where that costs nothing, not where somebody would wait for them."""
    held: list[tuple[Connection, Any]] = []
    is_held = threading.Event()

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        if frame.body == b"slow":
            held.append((connection, slot))
            is_held.set()
        else:
            connection.respond(slot, [frame.body])

    with serving(dispatch) as served, served.connect() as client:
        client.sendall(b"".join(len(body).to_bytes(4) + body for body in (b"first", b"second", b"slow")))

        assert [receive_frame(client), receive_frame(client)] == [b"first", b"second"]
        assert is_held.wait(DEADLINE_SECONDS)
        connection, slot = held[0]
        connection.respond(slot, [b"at last"])
        assert receive_frame(client) == b"at last"


def test_an_answer_is_not_held_back_by_a_later_request_that_blocks() -> None:
    """Only a Produce never waits for anybody, so others end the turn before they begin."""
    is_free = threading.Event()

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        if frame.body == begins_with(Api.CREATE_TOPICS):
            assert is_free.wait(DEADLINE_SECONDS)
        echo(connection, frame, slot, arrived)

    bodies = [begins_with(Api.PRODUCE), begins_with(Api.CREATE_TOPICS)]
    with serving(dispatch) as served, served.connect() as client:
        client.sendall(b"".join(len(body).to_bytes(4) + body for body in bodies))

        assert receive_frame(client) == bodies[0]
        is_free.set()
        assert receive_frame(client) == bodies[1]


def test_requests_that_arrive_together_are_handled_in_one_turn() -> None:
    """What they put off is done once, after the last of them."""
    done: list[bytes] = []

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        done.append(frame.body)
        assert put_off("wake", lambda: done.append(b"wake"))
        echo(connection, frame, slot, arrived)

    with serving(dispatch) as served, served.connect() as client:
        bodies = [begins_with(Api.PRODUCE) + bytes([number]) for number in range(5)]
        client.sendall(b"".join(len(body).to_bytes(4) + body for body in bodies))
        assert [receive_frame(client) for _ in bodies] == bodies
    assert done == [*bodies, b"wake"]


def test_a_large_request_ends_what_was_put_off() -> None:
    """Its records are worth a fetch of their own, and those behind it may be as large."""
    done: list[bytes] = []
    is_free = threading.Event()

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        assert is_free.wait(DEADLINE_SECONDS)
        done.append(bytes(frame.body[:3]))
        if not put_off("wake", lambda: done.append(b"wake")):
            done.append(b"wake")
        connection.respond(slot, [bytes(frame.body[:3])])

    sizes = (3, 3, 1024 * 1024, 3)
    bodies = [bytes([0, 0, number]).ljust(size) for number, size in enumerate(sizes)]
    with serving(dispatch) as served, served.connect() as client:
        sender = threading.Thread(
            target=client.sendall, args=(b"".join(len(body).to_bytes(4) + body for body in bodies),)
        )
        sender.start()
        until(
            lambda: [each.bytes_received for each in served.on_loop(served.network.connections)] == [sum(sizes)],
            "all requests are there",
        )
        is_free.set()
        assert [receive_frame(client) for _ in bodies] == [body[:3] for body in bodies]
        sender.join(DEADLINE_SECONDS)
    first, second, large, last = (body[:3] for body in bodies)
    assert done[-4:] == [large, b"wake", last, b"wake"]
    assert [each for each in done if each != b"wake"] == [first, second, large, last]


def test_reading_goes_on_when_requests_that_had_to_wait_are_answered() -> None:
    """A producer with acks=all has many in flight, and followers, not workers, bring their answers."""
    held: list[tuple[Connection, Any]] = []
    handled = threading.Semaphore(0)
    # More than is read at once, so that some is left to be read when too many are in flight.
    bodies = [number.to_bytes(4) * 256 for number in range(400)]

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        held.append((connection, slot))
        handled.release()

    with serving(dispatch) as served, served.connect() as client:
        sender = threading.Thread(
            target=lambda: client.sendall(b"".join(len(body).to_bytes(4) + body for body in bodies))
        )
        sender.start()
        while served.on_loop(lambda: all(connection.is_reading for connection in served.network.connections())):
            pass
        for number, body in enumerate(bodies):
            assert handled.acquire(timeout=DEADLINE_SECONDS)
            connection, slot = held[number]
            connection.respond(slot, [body])
            assert receive_frame(client) == body
        sender.join(DEADLINE_SECONDS)


def test_a_request_without_response_is_passed_over() -> None:
    """acks=0: the next answer belongs to the next request."""

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        connection.respond(slot, None if frame.body == b"silent" else [frame.body])

    with serving(dispatch) as served, served.connect() as client:
        send_frame(client, b"silent")
        send_frame(client, b"loud")

        assert receive_frame(client) == b"loud"


def test_small_file_slices_are_sent_in_one_piece_with_the_bytes_around(tmp_path: Path) -> None:
    """A follower that keeps up fetches one small batch at a time: copying it costs less than two calls more."""
    path = tmp_path / "segment.log"
    path.write_bytes(b"0123456789")
    file = OpenFile(path)

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        connection.respond(slot, [b"begin", FileSlice(file, 2, 3), b"end"])

    with serving(dispatch) as served, served.connect() as client:
        send_frame(client, b"")

        assert receive_frame(client) == b"begin234end"
        assert served.network.bytes_sendfile == 0


def test_a_small_file_slice_that_ends_early_costs_its_connection(tmp_path: Path) -> None:
    """What was announced cannot be sent: the client must not take what follows for records."""
    path = tmp_path / "segment.log"
    path.write_bytes(b"01")
    file = OpenFile(path)

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        connection.respond(slot, [FileSlice(file, 2, 3)])

    with serving(dispatch) as served, served.connect() as client:
        send_frame(client, b"")

        assert receive_exactly(client, 8) == (3).to_bytes(4)


def test_file_slices_are_sent_between_bytes(tmp_path: Path) -> None:
    """Zero copy, also when the socket blocks in the middle, with the bytes around in place."""
    content = os.urandom(8 * 1024 * 1024)
    path = tmp_path / "segment.log"
    path.write_bytes(content)
    file = OpenFile(path)

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        connection.respond(
            slot, [b"begin", FileSlice(file, 100, 4_000_000), b"middle", FileSlice(file, 0, 3_000_000), b"end"]
        )

    expected = b"begin" + content[100:4_000_100] + b"middle" + content[:3_000_000] + b"end"
    with serving(dispatch) as served, served.connect() as client:
        send_frame(client, b"")
        send_frame(client, b"")

        assert receive_frame(client) == expected
        assert receive_frame(client) == expected
        (connection,) = served.network.connections()
        assert connection.bytes_sendfile == 14_000_000


@pytest.mark.parametrize(
    "head", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", (104857601).to_bytes(4), b"GET / HTTP/1.1\r\n"]
)
def test_a_size_that_no_honest_client_sends_closes_its_connection_only(head: bytes) -> None:
    """Others are served on."""
    with serving(echo) as served, served.connect() as good, served.connect() as bad:
        bad.sendall(head)
        assert bad.recv(1) == b""
        send_frame(good, b"still here")

        assert receive_frame(good) == b"still here"
        assert served.network.counts.frames_refused == 1


def test_a_client_that_does_not_read_is_parked_and_others_are_served() -> None:
    """Its answers stay where they are, its requests wait."""
    answer = bytes(1024 * 1024)

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        connection.respond(slot, [answer] if frame.body == b"much" else [frame.body])

    with serving(dispatch) as served, served.connect() as slow, served.connect() as quick:
        for _ in range(50):
            send_frame(slow, b"much")
        for number in range(100):
            send_frame(quick, number.to_bytes(2))
            assert receive_frame(quick) == number.to_bytes(2)
        # Others are served before the answers to the slow one have filled its socket.
        parked = until(lambda: next((c for c in served.network.connections() if c.blocked_since is not None), None))
        assert parked.blocked_since is not None
        overdue = NetworkLimits(idle_seconds=1000).overdue(parked, parked.blocked_since + 31)

        assert overdue == "the client does not read its responses"
        assert parked.requests < 50
        assert sum(len(receive_exactly(slow, len(answer) + 4)) for _ in range(50)) == 50 * (len(answer) + 4)


def test_a_full_queue_stops_the_reading_until_there_is_room() -> None:
    """The bound holds while the workers are busy, and nothing is lost."""
    release = threading.Event()

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        assert release.wait(DEADLINE_SECONDS)
        echo(connection, frame, slot, arrived)

    with serving(dispatch, queued_max_requests="4", num_io_threads="1") as served:
        clients = [served.connect() for _ in range(10)]
        for client in clients:
            for number in range(8):
                send_frame(client, number.to_bytes(2))
        served.on_loop(lambda: None)
        assert len(served.network.queue) <= 4 + len(clients) * 8
        release.set()
        for client in clients:
            assert [receive_frame(client) for _ in range(8)] == [number.to_bytes(2) for number in range(8)]
            client.close()


def test_connections_are_limited_per_address() -> None:
    """The one too many is closed at once; when another goes, a new one is taken."""
    with serving(echo, max_connections_per_ip="2") as served:
        first, second = served.connect(), served.connect()
        send_frame(first, b"1")
        send_frame(second, b"2")
        assert (receive_frame(first), receive_frame(second)) == (b"1", b"2")
        with served.connect() as third:
            assert third.recv(1) == b""
        first.close()
        while served.on_loop(lambda: served.network.counts.total) > 1:
            pass
        with served.connect() as fourth:
            send_frame(fourth, b"4")
            assert receive_frame(fourth) == b"4"
        second.close()


def test_an_error_in_a_handler_closes_its_connection_only() -> None:
    """The worker lives on."""

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        if frame.body == b"bad":
            raise RuntimeError("a bug")
        echo(connection, frame, slot, arrived)

    with serving(dispatch, num_io_threads="1") as served, served.connect() as good, served.connect() as bad:
        send_frame(bad, b"bad")
        assert bad.recv(1) == b""
        send_frame(good, b"good")

        assert receive_frame(good) == b"good"


def test_a_client_that_goes_away_leaves_nothing_behind() -> None:
    """Frames that waited are counted out, descriptors come back."""
    with serving(echo) as served:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(50):
            client = served.connect()
            client.sendall((100).to_bytes(4) + b"half")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            client.close()
        while served.on_loop(lambda: served.network.counts.total):
            pass

        assert len(os.listdir("/proc/self/fd")) <= before
        assert len(served.network.queue) == 0


def test_a_port_that_is_taken_is_named() -> None:
    """The message says which one."""
    with serving(echo) as served:
        taken = Listener("PLAINTEXT", SecurityProtocol.PLAINTEXT, "127.0.0.1", served.port)
        with pytest.raises(OSError, match=f"127.0.0.1:{served.port}"):
            served.on_loop(lambda: served.network.bind([taken]))


def test_sockets_have_the_buffers_that_were_asked_for() -> None:
    """The system keeps as much again for itself; without a word they are its own, which grow."""
    options = {"socket.send.buffer.bytes": "40000", "socket.receive.buffer.bytes": "50000"}
    with serving(echo, **options) as served, served.connect() as client:
        send_frame(client, b"hello")
        assert receive_frame(client) == b"hello"
        (taken,) = served.on_loop(served.network.connections)
        sizes = [taken.socket.getsockopt(socket.SOL_SOCKET, each) for each in (socket.SO_SNDBUF, socket.SO_RCVBUF)]
    assert sizes == ([80_000, 100_000] if sys.platform == "linux" else [40_000, 50_000])
