"""Cuts what a connection receives into frames, large ones without a copy.

    int32 size | size bytes: header and body of one response

Small frames are copied out of one buffer that the connection keeps. A frame that does not fit in there is received
straight into a buffer of its own, which its reader may keep views of. That buffer begins small and doubles as bytes
come in, whatever size was announced.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.protocol.errors import FrameError, ProtocolError
from ottla.protocol.frame import SIZE_BYTES, Buffer, frame_size

_SHARED_BYTES: Final = 64 * 1024
_OWN_BYTES_FIRST: Final = 1024 * 1024


class FrameReceiver(asyncio.BufferedProtocol):
    """The reading half of a connection; `frame_received` gets each frame without its size."""

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._shared = memoryview(bytearray(_SHARED_BYTES))
        # Bytes in use: of the shared buffer, or of the frame's own while there is one.
        self._filled = 0
        self._own: bytearray | None = None
        self._own_size = 0
        self._refused = False

    def frame_received(self, frame: Buffer) -> None:
        """Take a frame; must not raise."""
        raise NotImplementedError

    def frame_refused(self, error: ProtocolError, first_bytes: Buffer) -> None:
        """Learn that the stream cannot be followed any further."""
        raise NotImplementedError

    def get_buffer(self, sizehint: int) -> memoryview:
        """Offer room for the next bytes."""
        own = self._own
        if own is None:
            return self._shared[self._filled :]
        if self._filled == len(own):
            own += bytes(min(self._own_size - self._filled, len(own)))
        return memoryview(own)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take note of bytes that were received."""
        self._filled += nbytes
        if self._refused:
            self._filled = 0
        elif self._own is None:
            self._cut()
        elif self._filled == self._own_size:
            frame, self._own, self._filled = self._own, None, 0
            self.frame_received(frame)

    def _cut(self) -> None:
        shared, filled = self._shared, self._filled
        position = 0
        while filled - position >= SIZE_BYTES:
            try:
                size = frame_size(shared[position : position + SIZE_BYTES], self._frame_bytes_max)
            except FrameError as error:
                self._refused = True
                self._filled = 0
                self.frame_refused(error, bytes(shared[position:filled]))
                return
            begin, end = position + SIZE_BYTES, position + SIZE_BYTES + size
            if end > filled:
                if SIZE_BYTES + size > len(shared):
                    self._start_own(shared[begin:filled], size)
                    return
                break
            self.frame_received(bytes(shared[begin:end]))
            position = end
        if position:
            rest = bytes(shared[position:filled])
            shared[: len(rest)] = rest
            self._filled = len(rest)

    def _start_own(self, begun: memoryview, size: int) -> None:
        own = bytearray(max(min(size, _OWN_BYTES_FIRST), len(begun)))
        own[: len(begun)] = begun
        self._own, self._own_size, self._filled = own, size, len(begun)
