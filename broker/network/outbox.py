"""What a connection has to send: responses in the order of their requests, whichever thread completes them.

Each request takes a slot when its handling starts. Any thread may fill a slot with the parts of its response. The
response is sent when all slots before it are sent. Parts are bytes, or file slices that go from the page cache to the
socket with `os.sendfile`. Small parts are copied, because one call that sends all is cheaper than three that copy
nothing. Nothing blocks here: what the socket does not take now is kept, and the loop continues with it.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ottla.broker.storage.open_files import FileSlice

_JOINED_BYTES_MAX = 64 * 1024
_COPIED_BYTES_MAX = 16 * 1024
_MORE = getattr(socket, "MSG_MORE", 0)


class Slot:
    """The place of one response."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        # None while there is no response yet; empty for a request without a response.
        self.parts: Sequence[Any] | None = None


class ResponseOutbox:
    """Slots and unsent parts of one connection. Not thread-safe: the connection's lock protects it."""

    __slots__ = ("_parts", "_slots", "bytes_copied", "bytes_sendfile", "is_blocked", "sent")

    def __init__(self) -> None:
        self._slots: deque[Slot] = deque()
        # Parts being sent; `sent` bytes of the first one are done.
        self._parts: deque[Any] = deque()
        self.sent = 0
        # Whether the socket refused a part of the last data.
        self.is_blocked = False
        self.bytes_sendfile = 0
        self.bytes_copied = 0

    @property
    def slots_waiting(self) -> int:
        """How many responses are incomplete, or wait for others."""
        return len(self._slots)

    @property
    def has_parts(self) -> bool:
        """Whether something is ready to be sent."""
        return bool(self._parts)

    def open_slot(self) -> Slot:
        """Reserve the slot for the response of the request that is being handled."""
        slot = Slot()
        self._slots.append(slot)
        return slot

    def fill(self, slot: Slot, parts: Sequence[Any]) -> bool:
        """Fill a slot with a response; return whether something is ready to be sent."""
        slot.parts = parts
        slots = self._slots
        while slots and slots[0].parts is not None:
            self._add(_joined(slots.popleft().parts or ()))
        return bool(self._parts)

    def _add(self, parts: list[Any]) -> None:
        """Queue parts. The first one is joined to the last queued one if both are small."""
        queued = self._parts
        if (
            parts
            and len(queued) > (self.sent > 0)
            and type(queued[-1]) is type(parts[0]) is bytes
            and len(queued[-1]) + len(parts[0]) <= _JOINED_BYTES_MAX
        ):
            queued[-1] += parts.pop(0)
        queued.extend(parts)

    def send(self, sink: socket.socket) -> bool:
        """Send what the socket takes; return whether all is sent. Raises OSError as the socket does."""
        parts = self._parts
        while parts:
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


def _joined(parts: Sequence[Any]) -> list[Any]:
    """Join small neighbouring byte strings: a system call costs more than copying them."""
    joined: list[Any] = []
    run: list[Any] = []
    size = 0
    for part in map(_copied, parts):
        if isinstance(part, FileSlice) or len(part) > _JOINED_BYTES_MAX or size + len(part) > _JOINED_BYTES_MAX:
            if run:
                joined.append(b"".join(run))
                run, size = [], 0
            if isinstance(part, FileSlice) or len(part) > _JOINED_BYTES_MAX:
                if len(part):
                    joined.append(part)
                continue
        run.append(part)
        size += len(part)
    if run:
        joined.append(b"".join(run))
    return joined


def _copied(part: Any) -> Any:
    """Read a small file slice. If that fails, sending it fails too and closes the connection."""
    if isinstance(part, FileSlice) and len(part) <= _COPIED_BYTES_MAX:
        with suppress(OSError):
            return part.read()
    return part
