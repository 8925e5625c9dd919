"""TLS on a non-blocking socket. A connection reads from it and sends to it instead of the socket.

TLS itself works in memory, between two buffers, and never blocks:

    socket --recv--> _incoming --decrypt--> the reader's memory
    socket <--send-- _unsent <-- _outgoing <--encrypt-- parts of responses

So a piece of a response costs one system call and not one for each record of 16 KiB, and the handshake can run on any
thread. One thread may decrypt, the loop or a worker that stays, while another encrypts. They share the state of TLS,
which has a lock.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, cast

from ottla.broker.common.scratch import scratch_memory

# What is received or encrypted at once; also the most that is kept in memory each way.
PIECE_BYTES: Final = 256 * 1024
# Records do not end where requests end: the last bytes of a request may come in a record with much that follows.
_READ_BYTES_MIN: Final = 64 * 1024
# Enough for hellos and a chain of certificates; no honest client sends more.
_HANDSHAKE_BYTES_MAX: Final = 128 * 1024
_HANDSHAKE_READ_BYTES: Final = 16 * 1024
_NOTHING: Final = memoryview(b"")
# A channel is alone when no other one has received anything for so long.
ALONE_SECONDS: Final = 0.01


class _Scratch(threading.local):
    """Memory for a piece, one for each thread that sends or receives."""

    def __init__(self) -> None:
        self.piece = scratch_memory(PIECE_BYTES)


SCRATCH: Final = _Scratch()


class LatestReceiver:
    """The channel that received last, and since when it has been the same one.

    Changed and read without a lock: this says which thread should decrypt, and any may.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._id = 0
        self._since = 0.0

    def note(self, channel: object) -> None:
        """Note that a channel receives."""
        if self._id != id(channel):
            self._id = id(channel)
            self._since = self._clock()

    def is_alone(self, channel: object) -> bool:
        """Whether no other channel has received anything for a while."""
        return self._id == id(channel) and self._clock() - self._since >= ALONE_SECONDS


_LATEST: Final = LatestReceiver()


class TlsChannel:
    """The server's side of TLS on one socket."""

    def __init__(self, client: socket.socket, context: ssl.SSLContext) -> None:
        self._socket = client
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        # With a buffer, it returns the number of bytes put there, whatever its type says.
        self._read = cast(Callable[[int, memoryview], int], self._tls.read)
        self._lock = threading.Lock()
        self._unsent = _NOTHING
        self._is_ended = False
        # What the client sent that is not TLS; there is nothing to be read after it.
        self._failure: ssl.SSLError | None = None
        # Whether something waits here that no selector knows of: data, apart from an unfinished record, or the end.
        self.has_received = False
        self._handshake_bytes = 0
        # How much was received last.
        self.received_bytes = 0
        # The start of what the client sent, which shows the protocol that a stranger speaks.
        self.first_bytes = b""

    # The handshake: received on the loop, computed on another thread

    def receive_handshake(self) -> bool:
        """Receive the client's part of the handshake; False at the end of the connection. Raises OSError."""
        data = self._socket.recv(_HANDSHAKE_READ_BYTES)
        if not data:
            return False
        self._handshake_bytes += len(data)
        if self._handshake_bytes > _HANDSHAKE_BYTES_MAX:
            raise ConnectionError(f"a handshake of more than {_HANDSHAKE_BYTES_MAX} bytes")
        if not self.first_bytes:
            self.first_bytes = data[:16]
        self._incoming.write(data)
        return True

    def step_handshake(self) -> bool:
        """Compute our part as far as possible, and send it; return whether the handshake is done. Raises SSLError,
        OSError.
        """
        with self._lock:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._send_pending()
                return False
            except ssl.SSLError:
                with suppress(OSError):
                    self._send_pending()  # the alert that tells the client the reason
                raise
            self._send_pending()
            return True

    def peer_certificate(self) -> bytes | None:
        """Return the client's certificate in DER, if it has sent one that we trust."""
        return self._tls.getpeercert(binary_form=True)

    @property
    def version(self) -> str | None:
        """The version of TLS, such as `TLSv1.3`."""
        return self._tls.version()

    # Reading, by the thread that reads from the connection

    def recv_into(self, buffer: memoryview) -> int:
        """Decrypt into a buffer, like `socket.recv_into`; 0 at the end, BlockingIOError if there is no data yet."""
        with self._lock:
            count = self._decrypt(buffer)
            if count or self._is_ended:
                return count
            if self._failure is not None:
                raise self._failure
            received = self._socket.recv_into(SCRATCH.piece, min(max(len(buffer), _READ_BYTES_MIN), PIECE_BYTES))
            self.received_bytes = received
            if not received:
                return 0
            _LATEST.note(self)
            self._incoming.write(SCRATCH.piece[:received])
            count = self._decrypt(buffer)
            if self._outgoing.pending:
                self._send_answer()
            if not count and self._failure is not None:
                raise self._failure
        if not count and not self._is_ended:
            raise BlockingIOError
        return count

    @property
    def is_alone(self) -> bool:
        """Whether no other channel has received anything for a while."""
        return _LATEST.is_alone(self)

    def _send_answer(self) -> None:
        """Send the answer to a key update: it must not wait for our next response, nor pile up."""
        if not self._send_pending() and self._outgoing.pending > PIECE_BYTES:
            raise ConnectionError("the client updates keys without reading")

    def _decrypt(self, buffer: memoryview) -> int:
        """Fill a buffer as far as there are whole records; librdkafka sends one for each kilobyte."""
        read, size, filled = self._read, len(buffer), 0
        is_over = self._is_ended or self._failure is not None
        while filled < size and not is_over:
            try:
                count = read(size - filled, buffer[filled:])
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                count = 0
            except ssl.SSLError as error:
                self._failure = error
                is_over = True
                break
            if count == 0:
                self._is_ended = is_over = True
            filled += count
        self.has_received = is_over or filled == size > 0
        return filled

    # Sending, by the thread that holds the connection's lock

    def encrypt(self, data: memoryview) -> None:
        """Take data to send; `flush` sends it. Callers flush earlier data first."""
        with self._lock:
            taken = 0
            while taken < len(data):
                taken += self._tls.write(data[taken:])

    def flush(self) -> bool:
        """Send what the socket takes; return whether all is sent. Raises OSError."""
        with self._lock:
            return self._send_pending()

    def _send_pending(self) -> bool:
        while self._unsent or self._outgoing.pending:
            if not self._unsent:
                self._unsent = memoryview(self._outgoing.read())
            try:
                sent = self._socket.send(self._unsent)
            except BlockingIOError:
                return False
            # An empty view of the data would keep it in memory.
            self._unsent = self._unsent[sent:] if sent < len(self._unsent) else _NOTHING
        return True

    def close(self) -> None:
        """Send the end of the TLS stream, if the socket takes it."""
        with self._lock, suppress(OSError, ValueError):
            if not self._unsent:
                with suppress(ssl.SSLWantReadError):
                    self._tls.unwrap()
                self._send_pending()
