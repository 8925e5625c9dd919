"""One client connection: which thread reads, handles and sends.

    loop      reads frames, and continues to send after the socket was full
    worker    handles the requests of the connection in turn, one worker at a time, and sends what is ready;
              reads the next ones itself while they follow each other closely, and waits for room to send meanwhile
    any       fills the slot of a response that had to wait, and sends it if it is next

So requests take effect and are answered in the order in which they came. A request starts when the one before it is
answered, as in Kafka: three JoinGroups of one member must not run in parallel. Only a Produce may start while earlier
Produces wait for their replicas, because a log keeps their order. It, too, waits for a Produce that is not in the log
yet, because the coordinator of its transaction is being asked. A client that does not read its responses is not
served further: its requests wait, its socket is not read, and after the write deadline it is disconnected.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from msgspec import Struct

from ottla.broker.common.turn import Turn, carry_out, put_off
from ottla.broker.network.frame_reader import ByteSource, Frame, FrameReader
from ottla.broker.network.workers import RequestQueue
from ottla.broker.security.session import Session, plain_address
from ottla.broker.storage.open_files import FileSlice
from ottla.protocol.api import Api
from ottla.protocol.errors import FrameError
from ottla.protocol.frame import FRAME_SIZE, size_prefix
from ottla.protocol.produce_shape import ProduceShape

# Requests of one connection that may be queued or in flight. Beyond that, its socket is not read until half are
# answered.
_PIPELINED_MAX = 128
# Bytes of one connection's requests that may wait for a worker. Beyond that, too, until half of them are handled.
_QUEUED_BYTES_MAX = 4 * 1024 * 1024
# Requests that a worker handles before it lets other connections have a turn.
_TURN_REQUESTS_MAX = 16
# A worker stays with a connection if a request came so soon after the last one was handled, and then waits so long for
# the next one.
_CLOSE_SECONDS = 0.005
_STAY_MS = 10
# A time that no deadline counts from.
_NOT_YET = float("inf")
# A request starts with the key of its API.
_PRODUCE = Api.PRODUCE.value.to_bytes(2)
# Parts of a response that are sent with one call, and file slices that are copied for that.
_JOINED_BYTES_MAX = 64 * 1024
_COPIED_BYTES_MAX = 16 * 1024
_MORE = getattr(socket, "MSG_MORE", 0)


class Processor(Protocol):
    """The network coroutine that a connection belongs to. All of it happens on the loop."""

    def call(self, function: Callable[[], None]) -> None:
        """Run a function on the loop soon; from any thread."""
        ...

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Run a function on the loop after some time; from any thread."""
        ...

    def set_reading(self, connection: Connection, wanted: bool) -> None:
        """Watch the socket for data to read, or stop watching; a muted one is not watched."""
        ...

    def set_writing(self, connection: Connection, wanted: bool) -> None:
        """Watch the socket for room to write, or stop watching."""
        ...

    def lend(self, connection: Connection, lent: bool) -> None:
        """Let a worker wait for data on the socket, or watch the socket again; from any thread."""
        ...

    def refuse(self, connection: Connection, error: FrameError) -> None:
        """Log a frame that cannot be read, and close the connection."""
        ...

    def discard(self, connection: Connection, reason: str) -> None:
        """Close the connection; calling it again does nothing."""
        ...


class Slot(Struct, eq=False):
    """The place of one response."""

    # None while there is no response yet; empty for a request without a response.
    parts: Sequence[Any] | None = None


class ResponseOutbox:
    """What a connection has to send: responses in the order of their requests, whichever thread completes them.

    Each request takes a slot when its handling starts. Any thread may fill a slot with the parts of its response. The
    response is sent when all slots before it are sent. Parts are bytes, or file slices that go from the page cache to
    the socket with `os.sendfile`. Small parts are copied, because one call that sends all is cheaper than three that
    copy nothing. Nothing blocks here: what the socket does not take now is kept, and the loop continues with it.

    Not thread-safe: the connection's lock protects it.
    """

    __slots__ = ("_parts", "bytes_copied", "bytes_sendfile", "is_blocked", "sent", "slots")

    def __init__(self) -> None:
        # Of responses that are incomplete, or wait for others.
        self.slots: deque[Slot] = deque()
        # Parts being sent; `sent` bytes of the first one are done.
        self._parts: deque[Any] = deque()
        self.sent = 0
        # Whether the socket refused a part of the last data.
        self.is_blocked = False
        self.bytes_sendfile = 0
        self.bytes_copied = 0

    @property
    def has_parts(self) -> bool:
        """Whether something is ready to be sent."""
        return bool(self._parts)

    def fill(self, slot: Slot, parts: Sequence[Any]) -> bool:
        """Fill a slot with a response; return whether something is ready to be sent."""
        slot.parts = parts
        slots, queued = self.slots, self._parts
        while slots and (ready := slots[0].parts) is not None:
            slots.popleft()
            queued.extend(ready)
        return bool(queued)

    def _join_small(self) -> None:
        """Make one part of all, if they are small."""
        parts = self._parts
        if FileSlice not in map(type, parts) and sum(map(len, parts)) <= _JOINED_BYTES_MAX:
            joined = b"".join(parts)
            parts.clear()
            parts.append(joined)

    def send(self, sink: socket.socket) -> bool:
        """Send what the socket takes; return whether all is sent. Raises OSError as the socket does."""
        parts = self._parts
        while parts:
            if len(parts) > 1 and not self.sent:
                self._join_small()
            part = parts[0]
            try:
                if isinstance(part, FileSlice):
                    count = part.send(sink.fileno(), self.sent)
                    self.bytes_sendfile += count
                    if count == 0:
                        raise ConnectionError(f"{part} ended early")
                else:
                    flags = _MORE if len(parts) > 1 else 0
                    count = sink.send(part[self.sent :] if self.sent else part, flags)
                    self.bytes_copied += count
            except BlockingIOError:
                self.is_blocked = True
                return False
            self.sent += count
            if self.sent == len(part):
                parts.popleft()
                self.sent = 0
        self.is_blocked = False
        return True


def _framed(parts: Sequence[Any]) -> Sequence[Any]:
    """Return a response with its size in front, in as few parts as are cheap to make: calls cost more than copies."""
    size = sum(map(len, parts))
    if size <= _JOINED_BYTES_MAX:
        if FileSlice in map(type, parts):
            parts = [_copied(part) if type(part) is FileSlice else part for part in parts]
        if FileSlice not in map(type, parts):
            return (b"".join((FRAME_SIZE.pack(size), *parts)),)
    return _joined((size_prefix(size), *parts))


def _joined(parts: Sequence[Any]) -> list[Any]:
    """Join small neighbouring byte strings, and small file slices among them."""
    joined: list[Any] = []
    run: list[Any] = []
    size = 0
    for given in parts:
        part = _copied(given) if type(given) is FileSlice else given
        if type(part) is FileSlice or len(part) > _JOINED_BYTES_MAX or size + len(part) > _JOINED_BYTES_MAX:
            if run:
                joined.append(b"".join(run))
                run, size = [], 0
            if type(part) is FileSlice or len(part) > _JOINED_BYTES_MAX:
                if len(part):
                    joined.append(part)
                continue
        run.append(part)
        size += len(part)
    if run:
        joined.append(b"".join(run))
    return joined


def _copied(part: FileSlice) -> FileSlice | bytes:
    """Read a slice if it is small. If that fails, sending it fails too and closes the connection."""
    if len(part) <= _COPIED_BYTES_MAX:
        with suppress(OSError):
            return part.read()
    return part


# What a worker does with a frame: decode and handle it, and have the slot filled, now or later.
Dispatch = Callable[["Connection", Frame, Slot, float], None]


class Connection:
    """The socket of one client and its requests in flight."""

    def __init__(
        self,
        client: socket.socket,
        listener: str,
        processor: Processor,
        reader: FrameReader,
        queue: RequestQueue,
    ) -> None:
        # Shared.
        self.processor = processor
        self._queue = queue
        # Per connection, set once.
        self.socket = client
        self.fd = client.fileno()
        self.listener = listener
        self.peer = plain_address(client.getpeername()[0])
        self.session = Session(listener, self.peer)
        # Used by the worker that has the connection.
        self.produce_shape = ProduceShape()
        self.opened = time.monotonic()
        self._source: ByteSource = client
        # Used by the loop only. When the client could start to authenticate, and whether it still has to.
        self.established = self.opened
        self.is_handshaking = False
        self.reader = reader
        self.is_reading = True
        self.is_writing = False
        self.last_read = self.opened
        self.bytes_received = 0
        self.frame_begun = self.opened
        # Held by the thread that reads from the socket: by the loop for one read, by a worker as long as it stays.
        self._reading = threading.Lock()
        # Set while a worker waits for data, so that the loop does not. The processor holds `watching` when it changes
        # what it waits for.
        self.is_lent = False
        self.watching = threading.Lock()
        # Used by the worker that has the connection. When it handled the last request, and whether that had to wait.
        self._handled = 0.0
        self._waits_for_followers = False
        # Changed under the lock.
        self._lock = threading.Lock()
        self._frames: deque[tuple[Frame, float]] = deque()
        self._queued_bytes = 0
        self._outbox = ResponseOutbox()
        self._is_scheduled = False
        # Whether a worker stays that will send what the socket refuses.
        self._sends_here = False
        # Whether all requests that are handled and not answered are Produces.
        self._only_produces_wait = True
        # Whether the socket is not read because too many requests are queued or in flight.
        self._is_held = False
        # Beyond a quota: until this time, nothing is read and no queued request is handled.
        self.is_muted = False
        self._muted_until = 0.0
        self.is_closed = False
        # The connection will be closed: requests pipelined behind the failed one must not take effect.
        self.is_failed = False
        # The client is gone: what it sent before still takes effect, and then the connection is closed.
        self.is_ended = False
        self.requests = 0
        self.blocked_since: float | None = None

    def __repr__(self) -> str:
        return (
            f"Connection({self.peer} on {self.listener}, requests={self.requests}, waiting={len(self._frames)}, "
            f"in flight={len(self._outbox.slots)}, blocked={self._outbox.is_blocked})"
        )

    @property
    def is_busy(self) -> bool:
        """Whether a request is queued or in flight."""
        return bool(self._frames or self._outbox.slots)

    @property
    def bytes_sendfile(self) -> int:
        """Bytes sent from the page cache to the socket without a copy in this process."""
        return self._outbox.bytes_sendfile

    @property
    def bytes_copied(self) -> int:
        """Bytes that were copied to the socket."""
        return self._outbox.bytes_copied

    @property
    def can_be_lent(self) -> bool:
        """Whether a worker may stay, and read from the socket."""
        return True

    # On the loop

    def receive(self) -> bool:
        """Read what the socket has; return whether the connection stays open. Raises FrameError, OSError."""
        if not self._reading.acquire(blocking=False):
            return True  # A worker does.
        try:
            with self._lock:
                self._is_held = (
                    len(self._frames) + len(self._outbox.slots) >= _PIPELINED_MAX
                    or self._queued_bytes >= _QUEUED_BYTES_MAX
                )
            if self._is_held or self._queue.is_full:
                self.processor.set_reading(self, False)
                return True
            if self.reader.awaits_memory:
                if not self.reader.retry():
                    self.processor.set_reading(self, False)
                    return True
                # The client could not send while it waited for us.
                self.frame_begun = time.monotonic()
            return self._take_frames()
        finally:
            self._reading.release()

    def _take_frames(self) -> bool:
        was_within = self.reader.is_within_frame
        received = self.reader.read(self._source)
        if received is None:
            return False
        frames, _ = received
        self.last_read = now = time.monotonic()
        if frames or not was_within:
            self.frame_begun = now
        if frames:
            self._arrived(frames, now)
        if self.reader.awaits_memory:
            self.processor.set_reading(self, False)
        return True

    @property
    def has_received(self) -> bool:
        """Whether something waits to be read that the selector does not know of. Any thread may ask."""
        return False

    def _arrived(self, frames: list[Frame], now: float) -> None:
        with self._lock:
            schedule = self._enqueue(frames, now)
        if schedule:
            self._queue.put(self)

    def _enqueue(self, frames: list[Frame], now: float) -> bool:
        """Queue requests; return whether a worker must begin to handle them. The caller holds the lock."""
        size = sum([len(frame.body) for frame in frames])
        self.bytes_received += size
        self._queued_bytes += size
        self._queue.arrived(len(frames), size)
        self._frames.extend([(frame, now) for frame in frames])
        schedule = not (self._is_scheduled or self._outbox.is_blocked or self.is_muted)
        self._is_scheduled = self._is_scheduled or schedule
        return schedule

    def drain(self) -> None:
        """Continue to send; called when the socket has room. Raises OSError."""
        with self._lock:
            if self.is_closed or not self._outbox.send(self.socket):
                self.blocked_since = time.monotonic()
                return
            self.blocked_since = None
            schedule = bool(self._frames) and not (self._is_scheduled or self.is_muted)
            self._is_scheduled = self._is_scheduled or schedule
        self.processor.set_writing(self, False)
        if schedule:
            self._queue.put(self)

    def end(self) -> bool:
        """Note that the client is gone; return whether the connection can be closed, as nothing is left to handle."""
        with self._lock:
            self.is_ended = True
            return not self._has_work

    def close(self) -> None:
        """Drop the socket and queued requests; called by the processor, once."""
        with self._lock:
            self.is_closed = True
            waiting = list(self._frames)
            self._frames.clear()
            self.socket.close()
        self.reader.close()
        for frame, _ in waiting:
            self._queue.taken(len(frame.body))
            self.release(frame)

    # On a worker

    def work(self, dispatch: Dispatch, scratch: memoryview) -> None:
        """Handle queued requests. If more come soon, receive and handle them here: nobody need be woken for that."""
        was_handled = self._handled
        self._handle_queued(dispatch)
        if (
            self.last_read - was_handled < _CLOSE_SECONDS
            and self.can_be_lent
            and self._queue.has_idle_worker
            and self._reading.acquire(blocking=False)
        ):
            try:
                self._stay(dispatch, scratch)
            finally:
                self._reading.release()
                self.processor.lend(self, False)

    def _stay(self, dispatch: Dispatch, scratch: memoryview) -> None:
        """Receive and handle requests as long as they follow each other closely, and nobody waits for this worker."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        self.processor.lend(self, True)
        while (
            self._queue.has_idle_worker
            and self.can_be_lent
            and self._is_at_rest
            and (self.has_received or self._is_worth_reading(poll))
            and self._receive_here(scratch)
        ):
            if self._frames and not self._handle_burst(dispatch, scratch, poll):
                return

    def _is_worth_reading(self, poll: select.poll) -> bool:
        """Wait for a while for data at the socket."""
        return bool(poll.poll(_STAY_MS))

    def _handle_burst(self, dispatch: Dispatch, scratch: memoryview, poll: select.poll) -> bool:
        """Handle requests; if they wait for followers, also those that have arrived meanwhile, all in one turn.

        A client sends the requests that it may have in flight one by one, so the first one is alone here. If it woke
        the followers, they would come back for the others. Returns whether this worker can go on.
        """
        if not self._waits_for_followers:
            return self._handle_here(dispatch)
        with Turn():
            requests_max = self.requests + _TURN_REQUESTS_MAX
            while self._handle_here(dispatch):
                if self.requests >= requests_max or not self._is_at_rest or not (self.has_received or poll.poll(0)):
                    return True
                if not self._receive_here(scratch):
                    return True
        return False

    def _handle_here(self, dispatch: Dispatch) -> bool:
        """Handle requests, and wait for room at the socket to send all that is ready; return whether that was soon.

        Otherwise the loop sends the rest.
        """
        self._sends_here = True
        try:
            self._handle_queued(dispatch)
            while self._is_waiting_for_room and self._queue.has_idle_worker and self._gets_room():
                if self._send_more():
                    self._handle_queued(dispatch)
        finally:
            self.frame_begun = time.monotonic()
        with self._lock:
            self._sends_here = False
            if self._outbox.is_blocked:
                self.processor.call(self._send_on_loop)
                return False
        return True

    @property
    def _is_waiting_for_room(self) -> bool:
        return self._outbox.is_blocked and not (self.is_closed or self.is_failed)

    def _gets_room(self) -> bool:
        """Wait for a while until the socket takes more."""
        poll = select.poll()
        poll.register(self.fd, select.POLLOUT)
        return bool(poll.poll(_STAY_MS))

    def _send_more(self) -> bool:
        """Continue to send; return whether this worker must handle requests that waited until all was sent."""
        with self._lock:
            self._send()
            schedule = bool(self._frames) and not (self._outbox.is_blocked or self._is_scheduled or self.is_muted)
            self._is_scheduled = self._is_scheduled or schedule
            return schedule

    @property
    def _is_at_rest(self) -> bool:
        """Whether the next request can begin when it comes, as far as this connection is concerned."""
        return self.is_reading and not (
            self._is_scheduled
            or self._frames
            or self._outbox.is_blocked
            or len(self._outbox.slots) >= _PIPELINED_MAX
            or self.reader.awaits_memory
            or self.is_muted
            or self.is_closed
            or self.is_failed
        )

    def _receive_here(self, scratch: memoryview) -> bool:
        """Receive what the socket has; return whether this worker can go on with it, as all is as simple as it was.

        Otherwise the loop goes on: it finds the same data, end or error at the socket.
        """
        with self._lock:
            if not self._is_at_rest or self._queue.is_full:
                return False
            was_within = self.reader.is_within_frame
            try:
                received = self.reader.read(self._source, scratch)
            except BlockingIOError:
                return True  # not a whole record of TLS
            except OSError:
                return False
            except FrameError as error:
                refused = error
                self.is_failed = True
                self.processor.call(lambda: self.processor.refuse(self, refused))
                return False
            if received is None:
                return False
            frames, _ = received
            self.last_read = now = time.monotonic()
            if not frames:
                if not was_within:
                    self.frame_begun = now
                return True
            # The rest of a request behind these is read when they are handled, so its deadline begins then.
            self.frame_begun = _NOT_YET
            return self._enqueue(frames, now)

    def _handle_queued(self, dispatch: Dispatch) -> None:
        """Handle queued requests, for a while; if there are several, as one turn, so that others are woken once."""
        if len(self._frames) > 1:
            with Turn():
                self._handle_each(dispatch)
        else:
            self._handle_each(dispatch)
        self._waits_for_followers = bool(self._outbox.slots)
        self._handled = time.monotonic()
        if self.is_ended:
            self.processor.call(self._close_ended)
        elif not self.is_reading:
            self.processor.call(self._resume_reading)

    def _handle_each(self, dispatch: Dispatch) -> None:
        frames, outbox = self._frames, self._outbox
        slots = outbox.slots
        for _ in range(_TURN_REQUESTS_MAX):
            with self._lock:
                if not frames or outbox.is_blocked or self.is_muted or self.is_closed or self.is_failed:
                    self._is_scheduled = False
                    return
                frame, arrived = frames[0]
                body = frame.body
                is_produce = body[:2] == _PRODUCE
                if not slots:
                    self._only_produces_wait = is_produce
                elif not (is_produce and self._only_produces_wait):
                    # It waits for earlier responses.
                    self._is_scheduled = False
                    return
                del frames[0]
                self._queued_bytes -= len(body)
                slot = Slot()
                slots.append(slot)
                self.requests += 1
            self._queue.taken(len(body))
            if not is_produce:
                # A Produce never waits for others. Any other request may, and those before it must not wait with it.
                carry_out()
            dispatch(self, frame, slot, arrived)
            if frame.buffer is not None:
                # A large request is worth a fetch of its own, while its records are in the caches.
                carry_out()
        self._queue.put(self)

    def _send_ready(self) -> None:
        """Send the responses of a turn together."""
        with self._lock:
            if self._outbox.has_parts and not self._outbox.is_blocked:
                self._send()

    def release(self, frame: Frame) -> None:
        """Return the memory of a handled request."""
        if frame.buffer is not None:
            self.reader.buffers.give_back(frame.buffer)

    @property
    def _has_work(self) -> bool:
        """Whether requests are being handled, or will be once earlier ones are answered or the pause is over."""
        return self._is_scheduled or (bool(self._frames) and (self.is_muted or bool(self._outbox.slots)))

    def _close_ended(self) -> None:
        if not self._has_work:
            self.processor.discard(self, "the client closed it")

    def _resume_reading(self) -> None:
        if not self.is_closed and not self._queue.is_full:
            self.processor.set_reading(self, True)

    def _unmute(self) -> None:
        """Continue after `mute`; on the loop."""
        with self._lock:
            left_seconds = self._muted_until - time.monotonic()
            self.is_muted = left_seconds > 0
            schedule = bool(self._frames) and not (self.is_muted or self._is_scheduled or self._outbox.is_blocked)
            self._is_scheduled = self._is_scheduled or schedule
        if self.is_muted:
            self.processor.call_later(left_seconds, self._unmute)
            return
        # The deadline of a request that had started to arrive starts again.
        self.frame_begun = self.last_read = time.monotonic()
        if schedule:
            self._queue.put(self)
        self._resume_reading()

    def hold_back(self) -> None:
        """Begin no further request before all are answered: one of them has not taken effect yet. On the worker."""
        with self._lock:
            self._only_produces_wait = False

    # From any thread

    @property
    def is_gone(self) -> bool:
        """Whether the client has closed the connection. While a worker has the socket, the loop does not notice it."""
        return self.is_ended or self.is_closed or (self.is_lent and self._has_hung_up())

    def _has_hung_up(self) -> bool:
        poll = select.poll()
        try:
            poll.register(self.socket, select.POLLRDHUP)
        except ValueError:
            return True  # The loop has closed it.
        return bool(poll.poll(0))

    def mute(self, seconds: float) -> None:
        """Read nothing from the client for a while; responses are still sent. The longest of several pauses counts."""
        with self._lock:
            self._muted_until = max(self._muted_until, time.monotonic() + seconds)
            begins, self.is_muted = not self.is_muted, True
        if begins:
            self.processor.call(lambda: self.processor.set_reading(self, False))
            self.processor.call_later(seconds, self._unmute)

    def respond(self, slot: Slot, parts: Sequence[Any] | None) -> None:
        """Fill a slot, and send what is ready. None means that the request has no response."""
        framed = () if parts is None else _framed(parts)
        with self._lock:
            if self.is_closed:
                return
            outbox = self._outbox
            has_parts = outbox.fill(slot, framed)
            resumes = schedule = False
            # The last of them may be answered long after a worker last handled this connection.
            if (
                self._is_held
                and len(self._frames) + len(outbox.slots) <= _PIPELINED_MAX // 2
                and self._queued_bytes <= _QUEUED_BYTES_MAX // 2
            ):
                resumes, self._is_held = True, False
            # Requests that waited for this response, if it was the last one missing.
            if (
                not (self._is_scheduled or outbox.slots or outbox.is_blocked or self.is_muted or self.is_failed)
                and self._frames
            ):
                schedule = self._is_scheduled = True
            if has_parts and not (outbox.is_blocked or put_off(self, self._send_ready)):
                self._send()
        if resumes:
            self.processor.call(self._resume_reading)
        if schedule:
            self._queue.put(self)

    def _send(self) -> None:
        """Send what the socket takes; the loop sends the rest. The caller holds the lock."""
        try:
            if self.is_closed:
                return
            if self._outbox.send(self.socket):
                self.blocked_since = None
                return
            self.blocked_since = time.monotonic()
        except OSError as error:
            self.fail(f"cannot send: {error}")
            return
        if not self._sends_here:
            self.processor.call(self._send_on_loop)

    def _send_on_loop(self) -> None:
        self.processor.set_writing(self, True)

    def refuse(self, slot: Slot, parts: Sequence[Any] | None, delay_seconds: float, reason: str) -> None:
        """Answer after a pause, and close; later requests do not take effect. None means no response."""
        self.is_failed = True
        self.processor.call(lambda: self.processor.set_reading(self, False))

        def answer() -> None:
            self.respond(slot, parts)
            self.processor.discard(self, reason)

        self.processor.call_later(delay_seconds, answer)

    def fail(self, reason: str) -> None:
        """Close the connection."""
        self.is_failed = True
        self.processor.call(lambda: self.processor.discard(self, reason))
