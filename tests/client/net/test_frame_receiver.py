"""How what a connection receives is cut into frames."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.client.consumer.settings import ConsumerSettings
from ottla.client.net import frame_receiver as receiving
from ottla.client.net.frame_receiver import FrameReceiver
from ottla.protocol.errors import ProtocolError
from ottla.protocol.frame import Buffer

FRAME_BYTES_MAX = 10_000_000


class Receiver(FrameReceiver):
    """Keeps the frames, as copies or as they come."""

    def __init__(self, *, keep_views: bool = False) -> None:
        super().__init__(FRAME_BYTES_MAX)
        self.keep_views = keep_views
        self.frames: list[Buffer] = []
        self.refused: ProtocolError | None = None

    def frame_received(self, frame: Buffer) -> None:
        self.frames.append(frame if self.keep_views else bytes(frame))

    def frame_refused(self, error: ProtocolError, first_bytes: Buffer) -> None:
        self.refused = error

    def feed(self, data: bytes, step: int) -> None:
        """Receive bytes, at most `step` at a time, as a transport does."""
        position = 0
        while position < len(data):
            room = self.get_buffer(-1)
            assert len(room)
            size = min(step, len(room), len(data) - position)
            room[:size] = data[position : position + size]
            room.release()
            self.buffer_updated(size)
            position += size


def framed(*frames: bytes) -> bytes:
    """Return frames with their sizes."""
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


@given(
    st.lists(st.sampled_from([0, 1, 1000, 60_000, 65_531, 65_532, 65_533, 300_000, 2_500_000]), max_size=6),
    st.sampled_from([999, 70_000, 3_000_000]),
)
@examples(25)
def test_frames_come_as_they_were_sent(sizes: list[int], step: int) -> None:
    """Whatever their sizes, and in whatever pieces they come, in buffers that served before or not."""
    frames = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    receiver = Receiver()

    receiver.feed(framed(*frames), step)

    assert receiver.frames == frames


def test_a_frame_that_is_looked_at_is_not_written_over() -> None:
    """However many come behind it; and without views of it, its buffer serves again."""
    frames = [bytes([number]) * 200_000 for number in range(10)]
    keeping = Receiver(keep_views=True)
    keeping.feed(framed(*frames), 1 << 20)
    assert [bytes(frame) for frame in keeping.frames] == frames

    copying = Receiver()
    copying.feed(framed(frames[0]), 1 << 20)
    buffer = copying._kept[0]
    copying.feed(framed(*frames), 1 << 20)
    assert len(copying._kept) == 1
    assert copying._kept[0] is buffer


def test_few_buffers_are_kept_and_none_that_is_huge(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that once got much does not hold on to it."""
    monkeypatch.setattr(receiving, "_OWN_BYTES", 300_000)
    receiver = Receiver(keep_views=True)
    receiver.feed(framed(*[bytes(200_000)] * 10, bytes(400_000)), 1 << 20)

    assert [len(buffer) for buffer in receiver._kept] == [200_000] * receiving._KEPT_MAX


def test_the_buffer_of_a_full_answer_to_a_fetch_is_kept() -> None:
    """With as much as a consumer asks of a partition by default, the header of the answer included."""
    receiver = Receiver()
    receiver.feed(framed(bytes(ConsumerSettings.max_partition_fetch_bytes + 1024)), 1 << 20)

    assert len(receiver._kept) == 1


def test_a_frame_that_is_too_large_is_refused() -> None:
    """Before any room is made for it."""
    receiver = Receiver()
    receiver.feed((FRAME_BYTES_MAX + 1).to_bytes(4, "big") + b"more", 100)

    assert receiver.refused is not None
    assert receiver.frames == []
