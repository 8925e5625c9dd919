"""Frames: how a byte stream is cut into requests and responses.

    int32 size | size bytes: header and body of one message

Nothing here touches a socket. `FrameSplitter` takes bytes as they come. A connection that receives large frames
directly into their own buffers reads four bytes and calls `frame_size`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator

from ottla.protocol.errors import EncodeError, FrameError

FRAME_SIZE = struct.Struct(">i")
SIZE_BYTES = FRAME_SIZE.size
_SIZE_MAX = 2**31 - 1

# A frame that arrives in pieces is collected in blocks of this size. A peer that announces 100 MB and
# sends nothing more costs us at most one block.
_BLOCK_BYTES = 64 * 1024

_HTTP_START = re.compile(rb"(GET|HEAD|POST|PUT|DELETE|OPTIONS|PATCH|TRACE|CONNECT|PRI) |HTTP/")

Buffer = bytes | bytearray | memoryview


def frame_size(data: Buffer, max_size: int, position: int = 0) -> int:
    """Return the size that the first four bytes of a frame announce; the frame starts at `position`.

    Raises FrameError if it is negative or above `max_size`: the rest of the stream cannot be read then.
    """
    if len(data) - position < SIZE_BYTES:
        raise FrameError(f"a frame starts with {SIZE_BYTES} bytes of size, got {len(data) - position}")
    size: int = FRAME_SIZE.unpack_from(data, position)[0]
    if not 0 <= size <= max_size:
        raise refused_size(size, max_size)
    return size


def refused_size(size: int, max_size: int) -> FrameError:
    """Return the error for a frame that announces an impossible size."""
    return FrameError(f"frame of {size} bytes is outside the limit of 0 to {max_size} bytes")


def size_prefix(size: int) -> bytes:
    """Return the size prefix for `size` bytes, for callers that send the bytes themselves."""
    if not 0 <= size <= _SIZE_MAX:
        raise EncodeError(f"a frame cannot hold {size} bytes, at most {_SIZE_MAX}")
    return FRAME_SIZE.pack(size)


def frame(parts: Collection[Buffer]) -> bytes:
    """Join the parts of one message into a frame."""
    return b"".join((size_prefix(sum(map(len, parts))), *parts))


class FrameSplitter:
    """Cuts one direction of one connection into frames; used by one reader at a time.

    Each byte is copied once if its frame arrives whole, and twice if it arrives in pieces of any size. Memory grows
    with the bytes received, never with the size announced.
    """

    def __init__(self, max_size: int) -> None:
        """Refuse frames of more than `max_size` bytes, without the size prefix."""
        self._max_size = max_size
        # The size bytes of the next frame. They stay if they are refused, so that every later feed fails too.
        self._size_bytes = bytearray()
        # The current frame: the bytes still missing, or None between frames; its blocks, all full except the
        # last; and how much of the last one is used.
        self._missing: int | None = None
        self._blocks: list[bytearray] = []
        self._filled = 0

    def __repr__(self) -> str:
        """Show how much of the current frame has arrived."""
        return f"<FrameSplitter buffered={self.buffered} missing={self._missing}>"

    @property
    def buffered(self) -> int:
        """The bytes held of an unfinished frame, including its size; 0 between frames."""
        if self._missing is None:
            return len(self._size_bytes)
        full_blocks = self._blocks[:-1]
        return SIZE_BYTES + sum(map(len, full_blocks)) + self._filled

    def feed(self, data: Buffer) -> Iterator[bytes]:
        """Take the next bytes of the stream; yield the bodies of the frames that they complete.

        The iterator must be exhausted before the next call. It raises FrameError at a bad size, after the
        good frames before it.
        """
        view = memoryview(data)
        while True:
            if self._missing is None:
                taken = SIZE_BYTES - len(self._size_bytes)
                self._size_bytes += view[:taken]
                view = view[taken:]
                if len(self._size_bytes) < SIZE_BYTES:
                    return
                self._missing = frame_size(self._size_bytes, self._max_size)
                self._size_bytes.clear()
            if len(view) < self._missing:
                self._gather(view)
                return
            body, view = view[: self._missing], view[self._missing :]
            yield self._finish(body)

    def _gather(self, piece: memoryview) -> None:
        """Copy a piece of the current frame into its blocks."""
        assert self._missing is not None
        while piece:
            if not self._blocks or self._filled == len(self._blocks[-1]):
                self._blocks.append(bytearray(min(_BLOCK_BYTES, self._missing)))
                self._filled = 0
            block = self._blocks[-1]
            taken = min(len(block) - self._filled, len(piece))
            block[self._filled : self._filled + taken] = piece[:taken]
            self._filled += taken
            self._missing -= taken
            piece = piece[taken:]

    def _finish(self, rest: memoryview) -> bytes:
        """Return the blocks joined with the rest of the frame, and prepare for the next frame."""
        self._missing = None
        if not self._blocks:
            return bytes(rest)
        last = memoryview(self._blocks.pop())[: self._filled]
        body = b"".join((*self._blocks, last, rest))
        self._blocks.clear()
        self._filled = 0
        return body


def describe_first_bytes(data: Buffer) -> str:
    """Describe what a peer sends whose first bytes are not a frame, for the log."""
    start = bytes(data[:16])
    if not start:
        return "nothing at all"
    if start.startswith(b"\x16\x03"):
        return "a TLS handshake: the peer speaks TLS, and this side is plaintext"
    if start.startswith(b"\x15\x03"):
        return "a TLS alert: the peer speaks TLS, and this side is plaintext"
    if _HTTP_START.match(start):
        return f"HTTP: the peer is a web client, a proxy or a health check, starting with {start!r}"
    if start.startswith(b"SSH-"):
        return "SSH"
    if start.startswith((b"PROXY ", b"\r\n\r\n\0\r\nQUIT\n")):
        return "the PROXY protocol of a load balancer: turn it off for this port"
    return f"something else than Kafka, starting with {start!r}"
