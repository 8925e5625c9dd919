"""A client connection with TLS.

The handshake comes first. Its bytes are received on the loop and computed on separate threads, because one signature
takes as long as hundreds of small requests. After that the loop decrypts, or the worker that stays, and workers
encrypt. Workers also send what the socket did not take at once; without TLS, the loop does that.
"""

from __future__ import annotations

import select
import socket
import time

from ottla.broker.network.connection import Connection, Dispatch, Processor
from ottla.broker.network.frame_reader import FrameReader
from ottla.broker.network.tls.handshakes import Handshakes
from ottla.broker.network.tls.tls_channel import PIECE_BYTES, TlsChannel
from ottla.broker.network.tls.tls_outbox import TlsOutbox
from ottla.broker.network.workers import RequestQueue
from ottla.broker.security.tls.tls_listener import TlsListener

# So long a client takes for a piece that is worth receiving, or longer.
_PAUSE_SECONDS = 0.0003


class TlsConnection(Connection):
    """The socket of one client, encrypted. `begin_handshake` comes first."""

    def __init__(
        self,
        client: socket.socket,
        listener: str,
        processor: Processor,
        reader: FrameReader,
        queue: RequestQueue,
        tls: TlsListener,
        handshakes: Handshakes,
    ) -> None:
        super().__init__(client, listener, processor, reader, queue)
        self._tls = tls
        self._handshakes = handshakes
        self._source = self.channel = TlsChannel(client, tls.context)
        self._outbox = TlsOutbox(self.channel)
        # Used by the loop only.
        self.is_handshaking = True
        # Whether another thread works on the handshake and owns its memory.
        self._is_stepping = False
        # Changed under the lock: whether a worker must send what is left.
        self._is_draining = False

    # On the loop

    def begin_handshake(self) -> None:
        """Count the handshake, and close the connection with the oldest one if there are too many."""
        oldest = self._handshakes.begun(self)
        if oldest is not None:
            oldest.processor.discard(oldest, "newer TLS handshakes took its place")

    def receive(self) -> bool:
        """Read what the socket has; return whether the connection stays open. Raises FrameError, OSError."""
        if self.is_handshaking:
            return self._receive_handshake()
        return super().receive()

    def _take_frames(self) -> bool:
        goes_on = super()._take_frames()
        # Decrypted data must become requests now, because the selector does not know of it.
        while goes_on and self.channel.has_received and not self.reader.awaits_memory:
            goes_on = super()._take_frames()
        return goes_on

    @property
    def can_be_lent(self) -> bool:
        """Whether a worker may read, too: while no other client with TLS is busy.

        Python's `ssl` gives up the interpreter's lock for each record, and many clients make one for each kilobyte. So
        two threads that decrypt are slower than one.
        """
        return self.channel.is_alone

    @property
    def has_received(self) -> bool:
        """Whether decrypted data waits to be read, or the end. Any thread may ask."""
        return not self.is_handshaking and self.channel.has_received

    def _receive_handshake(self) -> bool:
        if not self._is_stepping:
            if not self.channel.receive_handshake():
                # A client that sent nothing only checked whether the port is open.
                if self.channel.first_bytes:
                    self._tls.failed(
                        self.peer, ConnectionAbortedError("the handshake did not complete"), self.channel.first_bytes
                    )
                return False
            self.last_read = time.monotonic()
            self._is_stepping = True
            self._handshakes.submit(self._step_handshake)
        self.processor.set_reading(self, False)
        return True

    def drain(self) -> None:
        """Let a worker continue to send."""
        self.processor.set_writing(self, False)
        with self._lock:
            self._is_draining = True
            schedule = not self._is_scheduled
            self._is_scheduled = True
        if schedule:
            self._queue.put(self)

    def close(self) -> None:
        """Drop the socket and queued requests; called by the processor, once."""
        if self.is_handshaking:
            self._handshakes.ended(self)
        else:
            self.channel.close()
        super().close()

    def _go_on(self, is_done: bool) -> None:
        self._is_stepping = False
        if self.is_closed:
            return
        if is_done:
            self.is_handshaking = False
            self._handshakes.ended(self)
            self.established = time.monotonic()
            # The first request may have come with the end of the handshake.
            self.channel.has_received = True
        self.processor.set_reading(self, True)

    # On a thread for handshakes

    def _step_handshake(self) -> None:
        if self.is_closed:
            return  # it gave way to others: do not compute for nobody
        try:
            is_done = self.channel.step_handshake()
            if is_done and self.session.authentication is None:
                self.session.principal = self._tls.principal(self.channel.peer_certificate())
                self._tls.note_login(self.session)
        except (OSError, ValueError) as error:
            if not self.is_closed:
                self._tls.failed(self.peer, error, self.channel.first_bytes)
            self.fail(f"the TLS handshake failed: {error}")
            return
        self.processor.call(lambda: self._go_on(is_done))

    # On a worker

    def _is_worth_reading(self, poll: select.poll) -> bool:
        """Wait for a while for data; in the middle of a large request for a large piece of it.

        Many clients encrypt and send record by record, and would wake us for every few kilobytes. They take longer for
        what is still to come than this pause is.
        """
        if self.reader.rest_bytes > PIECE_BYTES and self.channel.received_bytes < PIECE_BYTES // 2:
            time.sleep(_PAUSE_SECONDS)
        return super()._is_worth_reading(poll)

    def work(self, dispatch: Dispatch, scratch: memoryview) -> None:
        """Send what is left, then handle requests in turn, for a while."""
        with self._lock:
            drains, self._is_draining = self._is_draining, False
            if drains:
                self.blocked_since = None
                self._send()
        super().work(dispatch, scratch)
        with self._lock:
            schedule = self._is_draining and not self._is_scheduled
            self._is_scheduled = self._is_scheduled or schedule
        if schedule:
            self._queue.put(self)
