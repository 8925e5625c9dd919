"""Splits the bytes of a connection into frames, large ones without a copy.

    int32 size | size bytes: header and body of one response

Small frames are copied out of one buffer that the connection keeps. A frame that does not fit is received directly into
its own buffer, and readers may keep views of that. The buffer starts small and doubles as bytes arrive, whatever size
was announced. When no views are left, it is reused for another frame: allocating new memory costs more than filling it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.protocol.errors import FrameError, ProtocolError
from ottla.protocol.frame import SIZE_BYTES, Buffer, frame_size

_SHARED_BYTES: Final = 64 * 1024
# A little more than what a consumer asks of one partition at a time: the first size of a large frame's buffer, and the
# largest that is kept for another frame.
_OWN_BYTES: Final = 4 * 1024 * 1024 + 64 * 1024
# Enough to read some while others are filled.
_KEPT_MAX: Final = 4


class FrameReceiver(asyncio.BufferedProtocol):
    """The reading half of a connection; `frame_received` gets each frame without its size."""

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._shared = memoryview(bytearray(_SHARED_BYTES))
        # Bytes in use: of the shared buffer, or of the frame's own while there is one.
        self._filled = 0
        self._own: bytearray | None = None
        self._own_size = 0
        # The buffers of the last large frames, the newest last.
        self._kept: list[bytearray] = []
        self._refused = False

    def frame_received(self, frame: Buffer) -> None:
        """Handle a frame; must not raise."""
        raise NotImplementedError

    def frame_refused(self, error: ProtocolError, first_bytes: Buffer) -> None:
        """Handle a stream that cannot be split any further."""
        raise NotImplementedError

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        own = self._own
        if own is None:
            return self._shared[self._filled :]
        if self._filled == len(own):
            own += bytes(min(self._own_size - self._filled, len(own)))
        return memoryview(own)[self._filled : self._own_size]

    def buffer_updated(self, nbytes: int) -> None:
        """Handle bytes that were received."""
        self._filled += nbytes
        if self._refused:
            self._filled = 0
        elif self._own is None:
            self._cut()
        elif self._filled == self._own_size:
            own, self._own, self._filled = self._own, None, 0
            if len(own) <= _OWN_BYTES:
                self._kept = [*self._kept[-_KEPT_MAX + 1 :], own]
            self.frame_received(memoryview(own)[: self._own_size])

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
        own = self._take_kept(size) or bytearray(max(min(size, _OWN_BYTES), len(begun)))
        own[: len(begun)] = begun
        self._own, self._own_size, self._filled = own, size, len(begun)

    def _take_kept(self, size: int) -> bytearray | None:
        for index, buffer in enumerate(self._kept):
            if len(buffer) >= size and _has_no_views(buffer):
                return self._kept.pop(index)
        return None


def _has_no_views(buffer: bytearray) -> bool:
    """Whether the buffer has no views: Python refuses to resize a buffer that has some."""
    try:
        buffer.append(0)
    except BufferError:
        return False
    buffer.pop()
    return True
