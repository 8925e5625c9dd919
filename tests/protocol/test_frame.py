"""Frames come out as they went in, however the stream is cut, and lies about sizes cost nothing."""

from __future__ import annotations

import itertools
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.recorded import FOLDER, recorded_frames
from tests.kit.examples import examples

from ottla.protocol.errors import EncodeError, FrameError
from ottla.protocol.frame import FrameSplitter, describe_first_bytes, frame, frame_size, size_prefix

MIB = 1024 * 1024
MAX_SIZE = 100 * MIB

bodies = st.lists(st.binary(max_size=200), max_size=12)


def stream_of(frames: list[bytes]) -> bytes:
    """Put frames behind each other as a peer would send them."""
    return b"".join(frame([body]) for body in frames)


def cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    """Cut a stream at the given positions, some of which may lie outside."""
    edges = [0, *sorted(min(position, len(stream)) for position in cuts), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(edges)]


def split(splitter: FrameSplitter, pieces: list[bytes]) -> list[bytes]:
    """Feed the pieces in turn and gather the frames."""
    return [body for piece in pieces for body in splitter.feed(piece)]


@contextmanager
def peak_bytes() -> Iterator[list[int]]:
    """Measure the peak of memory allocated inside the block; the list holds it afterwards."""
    peak: list[int] = []
    tracemalloc.start()
    try:
        yield peak
        peak.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


@given(frames=bodies, cuts=st.lists(st.integers(0, 2600), max_size=30))
def test_any_cut_of_a_stream_gives_the_same_frames(frames: list[bytes], cuts: list[int]) -> None:
    """How the network cuts the stream does not matter."""
    splitter = FrameSplitter(200)

    assert frames == split(splitter, cut(stream_of(frames), cuts))
    assert splitter.buffered == 0


@examples(30)
@given(frames=bodies)
def test_a_stream_that_comes_byte_by_byte_gives_the_same_frames(frames: list[bytes]) -> None:
    """The slowest peer is served like any other."""
    stream = stream_of(frames)

    assert frames == split(FrameSplitter(200), [stream[i : i + 1] for i in range(len(stream))])


@examples(30)
@given(size=st.integers(0, 300_000), piece_bytes=st.integers(1_000, 200_000), seed=st.integers(0, 255))
def test_a_frame_of_several_blocks_keeps_its_bytes_in_order(size: int, piece_bytes: int, seed: int) -> None:
    """Pieces that are smaller, larger and out of step with the inner blocks all fit together."""
    body = bytes((seed + position * 7) % 251 for position in range(1009)) * (size // 1009 + 1)
    stream = stream_of([body[:size], b"next"])
    pieces = [stream[start : start + piece_bytes] for start in range(0, len(stream), piece_bytes)]

    assert split(FrameSplitter(MAX_SIZE), pieces) == [body[:size], b"next"]


def test_ten_frames_in_one_piece_come_out_together() -> None:
    """A peer that pipelines fills one receive with many requests."""
    frames = [bytes([number]) * number for number in range(10)]

    assert frames == list(FrameSplitter(100).feed(stream_of(frames)))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_frames_are_independent_of_the_receive_buffer(kind: type[bytes | bytearray | memoryview]) -> None:
    """A connection may reuse its buffer as soon as it was fed."""
    buffer = bytearray(stream_of([b"first", b"second"]))
    splitter = FrameSplitter(100)

    frames = list(splitter.feed(kind(buffer)))
    buffer[:] = bytes(len(buffer))

    assert frames == [b"first", b"second"]
    assert all(type(body) is bytes for body in frames)


def test_a_gathered_piece_is_independent_of_the_receive_buffer() -> None:
    """The same holds for the start of a frame that goes on in the next piece."""
    stream = stream_of([b"in two pieces"])
    buffer = bytearray(stream[:9])
    splitter = FrameSplitter(100)

    assert list(splitter.feed(buffer)) == []
    buffer[:] = bytes(9)

    assert list(splitter.feed(stream[9:])) == [b"in two pieces"]


def test_an_empty_feed_changes_nothing() -> None:
    """Zero bytes are no frame, not even in the middle of one."""
    splitter = FrameSplitter(100)

    assert split(splitter, [b"", b"\0\0", b"", b"\0\x02", b"", b"a", b"", b"b", b""]) == [b"ab"]


@pytest.mark.parametrize(("fed", "buffered"), [(0, 0), (3, 3), (4, 4), (5, 5), (13, 13), (14, 0)])
def test_buffered_counts_the_bytes_of_the_unfinished_frame(fed: int, buffered: int) -> None:
    """An idle check or an end of stream can tell a clean boundary from a torn frame."""
    splitter = FrameSplitter(100)

    list(splitter.feed(stream_of([b"0123456789"])[:fed]))

    assert splitter.buffered == buffered
    assert f"buffered={buffered}" in repr(splitter)


@pytest.mark.parametrize("size", [-1, -(2**31), 101, 2**31 - 1])
def test_a_size_outside_the_limit_is_refused_by_name(size: int) -> None:
    """The error names the size and the limit, for the log line."""
    with pytest.raises(FrameError, match=f"frame of {size} bytes .* 100 bytes"):
        list(FrameSplitter(100).feed(struct.pack(">i", size)))


@pytest.mark.parametrize("size", [0, 1, 100])
def test_a_size_within_the_limit_is_taken(size: int) -> None:
    """The limit itself is allowed."""
    assert frame_size(struct.pack(">i", size) + b"more", 100) == size


@pytest.mark.parametrize("header", [b"", b"\0\0\0"])
def test_less_than_four_bytes_are_no_size(header: bytes) -> None:
    """A short read is a typed error too."""
    with pytest.raises(FrameError, match=f"got {len(header)}"):
        frame_size(header, 100)


@given(frames=bodies, cuts=st.lists(st.integers(0, 2600), max_size=30))
def test_frames_before_a_bad_size_are_given_first(frames: list[bytes], cuts: list[int]) -> None:
    """What an honest start of a stream says does not depend on how the network cut it."""
    splitter = FrameSplitter(200)
    pieces = cut(stream_of(frames) + b"GET / HTTP/1.1\r\n", cuts)
    incoming = (body for piece in pieces for body in splitter.feed(piece))

    seen = list(itertools.islice(incoming, len(frames)))
    with pytest.raises(FrameError):
        next(incoming)

    assert frames == seen


def test_a_splitter_that_met_a_bad_size_stays_broken() -> None:
    """There is no boundary to find again in such a stream."""
    splitter = FrameSplitter(100)

    with pytest.raises(FrameError, match="frame of -1 bytes"):
        list(splitter.feed(b"\xff\xff\xff\xff"))

    with pytest.raises(FrameError, match="frame of -1 bytes"):
        list(splitter.feed(stream_of([b"fine"])))


@given(pieces=st.lists(st.binary(max_size=50), max_size=20))
def test_arbitrary_bytes_give_frames_or_a_frame_error(pieces: list[bytes]) -> None:
    """Nothing that a peer sends raises anything else."""
    splitter = FrameSplitter(64)

    with suppress(FrameError):
        assert all(len(body) <= 64 for body in split(splitter, pieces))


def test_an_announced_size_allocates_nothing() -> None:
    """Many idle peers may announce the largest frame; only bytes that came take memory."""
    splitter = FrameSplitter(MAX_SIZE)

    with peak_bytes() as peak:
        list(splitter.feed(size_prefix(MAX_SIZE)))
        after_size = tracemalloc.get_traced_memory()[1]
        list(splitter.feed(b"x"))

    assert after_size < 4096
    assert peak[0] < 128 * 1024


@pytest.mark.timeout(30)
def test_a_large_frame_in_small_pieces_is_held_twice_at_most() -> None:
    """10 MB in pieces of 1 KB are gathered once and joined once."""
    splitter = FrameSplitter(MAX_SIZE)
    piece = bytes(range(256)) * 4
    count = 10 * MIB // len(piece)

    with peak_bytes() as peak:
        assert list(splitter.feed(size_prefix(10 * MIB))) == []
        gathered = [body for _ in range(count) for body in splitter.feed(piece)]

    assert gathered == [piece * count]
    assert peak[0] < 20 * MIB + 256 * 1024


def test_memory_of_a_finished_frame_is_given_back() -> None:
    """The splitter keeps no buffer between frames."""
    splitter = FrameSplitter(MAX_SIZE)
    half = bytes(MIB)

    with peak_bytes():
        list(splitter.feed(size_prefix(2 * MIB) + half))
        list(splitter.feed(half))
        held = tracemalloc.get_traced_memory()[0]

    assert held < 64 * 1024


def test_a_frame_is_written_as_size_and_parts() -> None:
    """The size counts the parts and not itself."""
    assert frame([b"ab", memoryview(b"cd"), bytearray(b"e")]) == b"\0\0\0\x05abcde"
    assert frame([]) == b"\0\0\0\0"


@pytest.mark.parametrize("size", [-1, 2**31])
def test_a_frame_larger_than_its_size_field_is_not_written(size: int) -> None:
    """The failure is ours, and typed."""
    with pytest.raises(EncodeError, match=str(size)):
        size_prefix(size)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "nothing"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS handshake"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS alert"),
        (b"GET /metrics HTTP/1.1\r\nHost: b\r\n", "HTTP"),
        (b"POST /topics HTTP/1.1", "HTTP"),
        (b"PRI * HTTP/2.0\r\n", "HTTP"),
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP"),
        (b"SSH-2.0-OpenSSH_9.2", "SSH"),
        (b"PROXY TCP4 10.0.0.1", "PROXY protocol"),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11", "PROXY protocol"),
        (b"GETAWAY", "something else"),
        (b"\x16", "something else"),
        (b"\xde\xad\xbe\xef", r"\xde\xad\xbe\xef"),
    ],
)
def test_first_bytes_are_described_in_plain_words(data: bytes, words: str) -> None:
    """The log line says what to fix, not just that a size was wrong."""
    assert words in describe_first_bytes(data)


@given(data=st.binary(max_size=64))
def test_a_description_never_breaks_its_log_line(data: bytes) -> None:
    """A peer cannot forge log lines by what it sends."""
    described = describe_first_bytes(data)

    assert described.isascii()
    assert described.isprintable()


def test_recorded_conversations_are_split_into_their_frames() -> None:
    """Real traffic of real clients, cut at awkward places, comes out frame by frame."""
    frames = [recorded.frame for recorded in recorded_frames()]
    stream = stream_of(frames)
    pieces = [stream[start : start + 1447] for start in range(0, len(stream), 1447)]

    assert len(frames) > 1000
    assert frames == split(FrameSplitter(MAX_SIZE), pieces)


def test_recorded_frames_are_what_their_lines_say() -> None:
    """A request begins with its API key and version; a request and its response come in the same versions."""
    recorded = recorded_frames()
    requests = {(r.client, r.api_key, r.api_version) for r in recorded if r.direction == "request"}
    responses = {(r.client, r.api_key, r.api_version) for r in recorded if r.direction == "response"}

    for request in (r for r in recorded if r.direction == "request"):
        assert struct.unpack_from(">hh", request.frame) == (request.api_key, request.api_version)
    assert responses <= requests
    assert len({(r.api_key, r.api_version) for r in recorded}) > 200
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 1.5 * MIB
