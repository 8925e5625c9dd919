"""Connections of clients that are beyond a quota."""

from __future__ import annotations

import threading
import time
from typing import Any

from tests.broker.network.serving import DEADLINE_SECONDS, echo, receive_frame, send_frame, serving

from ottla.broker.network.connection import Connection

MUTED_SECONDS = 0.2


def test_a_muted_connection_gets_its_answer_at_once_and_is_then_left_waiting() -> None:
    """What was sent meanwhile, pipelined or not, is handled when the time is over."""
    began: list[float] = []

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        if bytes(frame.body) == b"mute":
            began.append(time.monotonic())
            connection.mute(MUTED_SECONDS)
        echo(connection, frame, slot, arrived)

    with serving(dispatch) as served, served.connect() as client:
        send_frame(client, b"mute")
        assert receive_frame(client) == b"mute"
        send_frame(client, b"later")
        assert receive_frame(client) == b"later"
        assert time.monotonic() - began[0] >= MUTED_SECONDS

        client.sendall(b"".join(len(body).to_bytes(4) + body for body in (b"mute", b"mute", b"third")))
        assert [receive_frame(client) for _ in range(3)] == [b"mute", b"mute", b"third"]
        assert time.monotonic() - began[1] >= 2 * MUTED_SECONDS


def test_the_longest_of_several_times_counts() -> None:
    """They do not add up, and a short one does not end a long one."""
    began: list[float] = []

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        if not began:
            began.append(time.monotonic())
            connection.mute(MUTED_SECONDS)
            connection.mute(2 * MUTED_SECONDS)
            connection.mute(MUTED_SECONDS / 2)
        echo(connection, frame, slot, arrived)

    with serving(dispatch) as served, served.connect() as client:
        for body in (b"first", b"second"):
            send_frame(client, body)
            assert receive_frame(client) == body

        assert time.monotonic() - began[0] >= 2 * MUTED_SECONDS


def test_others_are_served_while_a_connection_is_muted() -> None:
    """On the same network coroutine, by the same worker."""
    muted = threading.Event()
    handled: list[bytes] = []

    def dispatch(connection: Connection, frame: Any, slot: Any, arrived: float) -> None:
        handled.append(bytes(frame.body))
        if handled[-1] == b"mute":
            connection.mute(10 * DEADLINE_SECONDS)
            muted.set()
        echo(connection, frame, slot, arrived)

    options = {"num_io_threads": "1", "num_network_threads": "1"}
    with serving(dispatch, **options) as served, served.connect() as first, served.connect() as second:
        first.sendall(b"".join(len(body).to_bytes(4) + body for body in (b"mute", b"never")))
        assert receive_frame(first) == b"mute"
        assert muted.wait(DEADLINE_SECONDS)
        for _ in range(20):
            send_frame(second, b"hello")
            assert receive_frame(second) == b"hello"
        # A queue that was full and has room again must not wake the one that is muted.
        for processor in served.network.processors:
            served.on_loop(processor.resume)
        send_frame(second, b"hello")
        assert receive_frame(second) == b"hello"

    assert b"never" not in handled


def test_what_a_muted_client_left_behind_still_takes_effect() -> None:
    """With acks=0 nobody waits for an answer."""
    handled: list[bytes] = []
    done = threading.Event()

    def dispatch(connection: Connection, frame: Any, slot: Any, _arrived: float) -> None:
        handled.append(bytes(frame.body))
        if len(handled) == 1:
            connection.mute(MUTED_SECONDS)
        connection.respond(slot, None)
        connection.release(frame)
        if len(handled) == 3:
            done.set()

    with serving(dispatch) as served:
        with served.connect() as client:
            client.sendall(b"".join(len(body).to_bytes(4) + body for body in (b"1", b"2", b"3")))
        assert done.wait(DEADLINE_SECONDS)

    assert handled == [b"1", b"2", b"3"]
