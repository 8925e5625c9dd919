"""How large a request may be, and how much memory requests take that are still on their way."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.broker.network.serving import DEADLINE_SECONDS, echo, receive_frame, send_frame, serving
from tests.kit.waiting import until

from ottla.broker.network.frame_reader import FrameBuffers, FrameReader
from ottla.protocol.api import Api
from ottla.protocol.errors import FrameError

KIB, MIB = 1024, 1024 * 1024


class Pieces:
    """A source of bytes that come in pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)

    def recv_into(self, buffer: memoryview, /) -> int:
        """Give the next piece, as much of it as fits."""
        piece = self.pieces.pop(0)
        taken = min(len(buffer), len(piece))
        buffer[:taken] = piece[:taken]
        if piece[taken:]:
            self.pieces.insert(0, piece[taken:])
        return taken


def reader(buffers: FrameBuffers | None = None, any_size: int = 100) -> FrameReader:
    """A reader that takes Produce requests of any size, and others of `any_size` bytes."""
    made = FrameReader(memoryview(bytearray(64 * KIB)), buffers or FrameBuffers(0), 100 * MIB)
    made.any_size = any_size
    made.max_size_of = lambda api_key: 100 * MIB if api_key == Api.PRODUCE else any_size
    return made


def start(api: Api, size: int) -> bytes:
    """The size of a frame, and the first bytes of a request."""
    return size.to_bytes(4) + api.value.to_bytes(2)


def test_only_produce_may_be_larger_than_other_requests() -> None:
    """The first two bytes of a request tell which it is; nothing more is read of one that is too large."""
    with pytest.raises(FrameError, match=r"above the limit of 100 bytes .* ottla.request.max.bytes"):
        reader().read(Pieces(start(Api.METADATA, 101)))
    assert reader().read(Pieces(start(Api.METADATA, 100))) == ([], 6)
    assert reader().read(Pieces(start(Api.PRODUCE, 90 * MIB))) == ([], 6)


def test_the_kind_of_a_request_may_come_later_than_its_size() -> None:
    """The kernel cuts a stream as it likes."""
    slow = reader()
    source = Pieces(start(Api.METADATA, 101)[:4], b"\0", b"\x03")
    assert slow.read(source) == ([], 4)
    assert slow.read(source) == ([], 1)
    with pytest.raises(FrameError):
        slow.read(source)
    with pytest.raises(FrameError):
        reader().read(Pieces(start(Api.HEARTBEAT, 10) + bytes(8) + start(Api.METADATA, 101)))


def test_frames_that_have_arrived_in_part_share_a_limit() -> None:
    """The one that finds no memory waits; one goes beyond the limit, so that there is always one that gets on."""
    room: list[str] = []
    buffers = FrameBuffers(0, 2 * MIB, lambda: room.append("room"))
    first, second, third = (reader(buffers, any_size=100 * MIB) for _ in range(3))
    for each in (first, second):
        each.read(Pieces(start(Api.PRODUCE, 8 * MIB) + bytes(50 * KIB)))
    assert buffers.used_bytes == 2 * MIB
    rest = Pieces(bytes(8 * MIB))
    first.read(rest)
    assert not first.awaits_memory
    second.read(Pieces(bytes(8 * MIB)))
    third.read(Pieces(start(Api.PRODUCE, 40 * KIB) + bytes(10)))
    assert second.awaits_memory
    assert third.awaits_memory
    assert not second.retry()

    frames: list[Any] = []
    while not frames:
        frames = (first.read(rest) or ([], 0))[0]
    assert len(frames[0].body) == 8 * MIB
    buffers.give_back(frames[0].buffer)
    assert (room, buffers.used_bytes) == (["room"], MIB)
    assert second.retry()
    assert third.retry()
    for each in (second, third):
        each.close()
    assert buffers.used_bytes == 0


def test_requests_of_many_clients_take_bounded_memory_and_all_are_answered() -> None:
    """Twenty clients send two megabytes each at the same time, and four are allowed in all."""
    body = Api.PRODUCE.value.to_bytes(2) + bytes(2 * MIB - 2)
    most = 0
    with serving(echo, queued_max_request_bytes=str(4 * MIB), socket_request_max_bytes=str(4 * MIB)) as served:
        buffers = served.network._buffers
        clients = [served.connect() for _ in range(20)]
        threads = [threading.Thread(target=send_frame, args=(client, body), daemon=True) for client in clients]
        for thread in threads:
            thread.start()
        for client in clients:
            most = max(most, buffers.used_bytes)
            assert receive_frame(client) == body
        for thread in threads:
            thread.join(DEADLINE_SECONDS)
        for client in clients:
            client.close()
        until(lambda: buffers.used_bytes == 0)
    # The frame that may go beyond the limit grows from one buffer into another.
    assert 0 < most <= 4 * MIB + 3 * MIB


def test_a_client_that_leaves_in_the_middle_gives_its_memory_back() -> None:
    """Half a frame counts for nothing once nobody will send the rest."""
    with serving(echo) as served:
        buffers = served.network._buffers
        client = served.connect()
        client.sendall(start(Api.PRODUCE, 10 * MIB) + bytes(MIB))
        until(lambda: buffers.used_bytes > 0)
        client.close()
        until(lambda: buffers.used_bytes == 0)
