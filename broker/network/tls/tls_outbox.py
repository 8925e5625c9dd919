"""What a connection with TLS has to send. The kernel cannot encrypt files, so file slices are read piece by piece."""

from __future__ import annotations

from typing import Any, Final

from ottla.broker.network.connection import ResponseOutbox
from ottla.broker.network.tls.tls_channel import PIECE_BYTES, SCRATCH, TlsChannel
from ottla.broker.storage.open_files import FileSlice

# What is sent before other threads, such as the loop, may take the connection's lock.
_TURN_BYTES: Final = 4 * 1024 * 1024


class TlsOutbox(ResponseOutbox):
    """Like `ResponseOutbox`, with at most one piece encrypted ahead of what the socket has taken."""

    __slots__ = ("_channel",)

    def __init__(self, channel: TlsChannel) -> None:
        super().__init__()
        self._channel = channel

    def send(self, sink: Any) -> bool:
        """Send what the socket takes; return whether all is sent. Raises OSError as the socket does."""
        channel, parts = self._channel, self._parts
        turn = 0
        while channel.flush() and turn < _TURN_BYTES:
            if not parts:
                self.is_blocked = False
                return True
            taken = 0
            while parts and taken < PIECE_BYTES:
                taken += self._encrypt_some(parts[0], PIECE_BYTES - taken)
            turn += taken
        self.is_blocked = True
        return False

    def _encrypt_some(self, part: Any, count_max: int) -> int:
        """Encrypt the next bytes of the first part, and drop the part when it is done."""
        count = min(len(part) - self.sent, count_max)
        if isinstance(part, FileSlice):
            piece = SCRATCH.piece[:count]
            part.read_into(piece, self.sent)
            self._channel.encrypt(piece)
        else:
            self._channel.encrypt(memoryview(part)[self.sent : self.sent + count])
        self.bytes_copied += count
        self.sent += count
        if self.sent == len(part):
            self._parts.popleft()
            self.sent = 0
        return count
