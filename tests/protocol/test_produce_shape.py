"""What is decoded by the shape of an earlier Produce is what the ordinary decoder makes of it, or nothing."""

from __future__ import annotations

from random import Random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.api import Api
from ottla.protocol.errors import ProtocolError
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.produce_shape import ProduceShape
from ottla.protocol.requests import decode_request, encode_request

FLEXIBLE: Final = range(ProduceRequest.flexible.first, ProduceRequest.versions.last + 1)
CORRELATION_ID: Final = slice(4, 8)
# At the ends of what one and two bytes of size can say, and beyond.
SIZES: Final = (0, 1, 125, 126, 127, 128, 200, 16_381, 16_382, 16_383, 20_000)


# If the fields were looked for some bytes too late, these would still look like a size and its records.
TREACHEROUS: Final = bytes(range(9, 0, -1))


def one_batch(
    records: bytes | None = b"r" * 170,
    *,
    topic: str = "orders",
    index: int = 3,
    acks: int = 1,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """A Produce with one batch."""
    data = PartitionProduceData(index=index, records=records)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def frame_of(
    message: ProduceRequest, version: int = 10, correlation_id: int = 1, client_id: str | None = "rdkafka"
) -> bytes:
    """The frame of a request."""
    return b"".join(encode_request(Api.PRODUCE, version, correlation_id, client_id, message))


def shape_of(frame: bytes) -> ProduceShape:
    """A shape that was learned from one frame."""
    shape = ProduceShape()
    assert shape.decode(frame) is None
    shape.learn(frame, *decode_request(frame))
    return shape


def assert_decoded_alike(shape: ProduceShape, frame: bytes) -> bool:
    """Check what the shape makes of a frame against the ordinary decoder; return whether it made anything of it."""
    known = shape.decode(frame)
    if known is not None:
        header, message = decode_request(frame)
        assert header.request_api_key == Api.PRODUCE
        assert (shape.version, shape.client_id) == (header.request_api_version, header.client_id)
        assert known == (header.correlation_id, message)
    return known is not None


@pytest.mark.parametrize("version", FLEXIBLE)
@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "größe"])
@pytest.mark.parametrize("transactional_id", [None, "", "payments"])
def test_the_next_batch_of_the_same_producer_is_known(
    version: int, client_id: str | None, transactional_id: str | None
) -> None:
    """Another correlation id, partition and batch, and any size that two bytes can say."""
    shape = shape_of(frame_of(one_batch(transactional_id=transactional_id), version, client_id=client_id))

    for size in SIZES:
        message = one_batch(b"x" * size, index=size, transactional_id=transactional_id)
        frame = frame_of(message, version, -size, client_id)
        assert assert_decoded_alike(shape, frame) == (size <= 16_382)


@given(st.integers(0, 2**32), st.sampled_from(FLEXIBLE), st.integers(0, 300), st.integers(0, 300), st.integers(1, 3))
def test_any_other_byte_is_left_to_the_decoder_or_means_the_same(
    seed: int, version: int, learned_size: int, size: int, changes: int
) -> None:
    """Bytes that are changed, missing or too many: never a message that the ordinary decoder would not return."""
    random = Random(seed)
    shape = shape_of(frame_of(one_batch(random.randbytes(learned_size)), version))
    frame = frame_of(one_batch(random.randbytes(size), index=random.randrange(5)), version, random.randrange(2**31))
    assert assert_decoded_alike(shape, frame)

    changed = bytearray(frame)
    for _ in range(changes):
        match random.randrange(3):
            case 0:
                changed[random.randrange(len(changed))] = random.randrange(256)
            case 1:
                changed.insert(random.randrange(len(changed) + 1), random.choice((0, 1, 127, 128, 255)))
            case _:
                del changed[random.randrange(len(changed))]
    assert_decoded_alike(shape, bytes(changed))


@pytest.mark.parametrize("version", FLEXIBLE)
def test_every_byte_before_the_partition_must_be_the_same(version: int) -> None:
    """Only the correlation id may differ there: each of the other bytes may change what the request means."""
    frame = frame_of(one_batch(), version)
    shape = shape_of(frame)
    partition = frame.index(b"orders") + len("orders") + 1

    for position in range(partition):
        for value in range(256):
            other = bytearray(frame)
            other[position] = value
            is_same = value == frame[position] or position in range(*CORRELATION_ID.indices(8))
            assert (shape.decode(bytes(other)) is not None) == is_same, position


def test_cut_frames_are_left_to_the_decoder() -> None:
    """Which refuses them."""
    frame = frame_of(one_batch())
    shape = shape_of(frame)

    for end in range(len(frame)):
        assert shape.decode(frame[:end]) is None
        with pytest.raises(ProtocolError):
            decode_request(frame[:end])


@pytest.mark.parametrize(
    "frame",
    [
        # Classic versions.
        frame_of(one_batch(), 8),
        frame_of(one_batch(None)),
        frame_of(one_batch(b"r" * 16_383)),
        frame_of(one_batch(topic="t" * 2000)),
        frame_of(ProduceRequest(acks=1, timeout_ms=1, topic_data=[])),
        frame_of(ProduceRequest(acks=1, timeout_ms=1, topic_data=[*one_batch().topic_data, *one_batch().topic_data])),
        # Kafka ignores bytes behind a request.
        frame_of(one_batch(TREACHEROUS)) + b"\0",
        # A field that nobody knows, with a payload that looks like empty tagged sections: of the partition, the topic.
        frame_of(one_batch(TREACHEROUS))[:-3] + b"\x01\x07\x02\0\0\0\0",
        frame_of(one_batch(TREACHEROUS))[:-2] + b"\x01\x07\x02\0\0\0",
        # A size that takes more bytes than it needs.
        frame_of(one_batch(TREACHEROUS)).replace(b"\x0a\x09", b"\x8a\0\x09"),
    ],
)
def test_other_shapes_are_not_learned(frame: bytes) -> None:
    """Several batches, none, large ones, and whatever says more than the message shows."""
    shape = shape_of(frame)

    assert shape.decode(frame) is None
    assert shape.decode(frame_of(one_batch(TREACHEROUS))) is None


def test_records_that_are_null_are_left_to_the_decoder() -> None:
    """Also when a tagged section is missing behind them, so that the frame looks as long as it must be."""
    shape = shape_of(frame_of(one_batch()))
    null = frame_of(one_batch(None))

    assert shape.decode(null) is None
    assert shape.decode(null[:-1]) is None
    assert shape.decode(null[:-4] + b"\x80" + bytes(3)) is None


def test_the_last_shape_counts() -> None:
    """A producer that goes on to another topic is known there, and no longer where it was."""
    first, second = frame_of(one_batch()), frame_of(one_batch(topic="returns", acks=-1))
    shape = shape_of(first)
    shape.learn(second, *decode_request(second))

    assert assert_decoded_alike(shape, second)
    assert shape.decode(first) is None


def test_a_buffer_is_left_to_the_decoder() -> None:
    """A large request is not compared: its memory is used again."""
    frame = frame_of(one_batch())

    assert shape_of(frame).decode(memoryview(frame)) is None


def test_clients_that_differ_each_time_are_given_up() -> None:
    """Learning costs as much as decoding. A shape that is used makes it worth it again."""
    shape = ProduceShape()
    frames = [frame_of(one_batch(topic=f"topic-{number}")) for number in range(20)]
    for frame in frames:
        shape.learn(frame, *decode_request(frame))

    assert [shape.decode(frame) is not None for frame in frames] == [number == 7 for number in range(20)]

    shape.learn(frames[0], *decode_request(frames[0]))
    assert assert_decoded_alike(shape, frames[0])


def test_a_message_is_not_shared_with_the_next_one() -> None:
    """Requests are in flight together."""
    shape = shape_of(frame_of(one_batch()))
    frames = [frame_of(one_batch(bytes([number]) * 9, index=number), correlation_id=number) for number in (1, 2)]
    one, two = (shape.decode(frame) for frame in frames)

    assert one is not None
    assert two is not None
    assert [one, two] == [(number, decode_request(frame)[1]) for number, frame in zip((1, 2), frames, strict=True)]
