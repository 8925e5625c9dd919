"""What waits to be sent to other brokers: a thread and a connection for each, one request at a time.

Everything that waits for a broker goes in one request, up to a limit: while one is under way, the next fills up.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from ottla.broker.coordination.work import Work
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.message import Message

ITEMS_MAX: Final = 1000

T = TypeVar("T")


class Link(Protocol):
    """The connection to a broker, as a channel needs it: see `BrokerLink`."""

    def request(self, api: Api, build: Callable[[int], Message]) -> Any:
        """Send a request, and wait for the response. Raises KafkaError or ProtocolError."""
        ...

    def close(self) -> None:
        """Close it for good; a request under way fails."""
        ...


class BrokerChannels(Generic[T]):
    """The channels to all brokers. Thread-safe."""

    def __init__(
        self,
        name: str,
        link_to: Callable[[int], Link],
        send: Callable[[Link, Sequence[T]], None],
        failed: Callable[[int, Sequence[T], Exception], None],
    ) -> None:
        """`send` sends items over a link and handles the answer. `failed` gets what it could not send, and why."""
        self._name = name
        self._link_to = link_to
        self._send = send
        self._failed = failed
        self._lock = threading.Lock()
        self._channels: dict[int, _Channel[T]] = {}
        self._is_started = self._is_stopped = False

    def start(self) -> None:
        """Start to send."""
        with self._lock:
            self._is_started = True
            channels = list(self._channels.values())
        for channel in channels:
            channel.start()

    def stop(self) -> None:
        """End requests under way; what still waits has failed, as has all that is added later."""
        with self._lock:
            self._is_stopped = True
            channels = list(self._channels.values())
        for channel in channels:
            channel.stop()

    def to(self, broker: int) -> _Channel[T]:
        """Return the channel to a broker."""
        with self._lock:
            channel = self._channels.get(broker)
            if channel is None:
                channel = self._channels[broker] = _Channel(
                    f"{self._name}-{broker}", broker, self._link_to(broker), self._send, self._failed
                )
                if self._is_stopped:
                    channel.stop()
                elif self._is_started:
                    channel.start()
        return channel


class _Channel(Generic[T]):
    """The channel to one broker."""

    def __init__(
        self,
        name: str,
        broker: int,
        link: Link,
        send: Callable[[Link, Sequence[T]], None],
        failed: Callable[[int, Sequence[T], Exception], None],
    ) -> None:
        self._broker = broker
        self._link = link
        self._send = send
        self._failed = failed
        self._work = Work(name)
        # The fields below change under `_lock`.
        self._lock = threading.Lock()
        self._waiting: deque[T] = deque()
        self._is_stopped = False

    def start(self) -> None:
        """Start the thread."""
        self._work.start()

    def stop(self) -> None:
        """Cut a request under way short, and wait for the thread."""
        with self._lock:
            self._is_stopped = True
            waiting = list(self._waiting)
            self._waiting.clear()
        self._link.close()
        self._work.stop()
        if waiting:
            self._failed(self._broker, waiting, _stopping())

    def add(self, item: T) -> None:
        """Queue an item."""
        with self._lock:
            is_taken = not self._is_stopped
            is_first = not self._waiting
            if is_taken:
                self._waiting.append(item)
        if not is_taken:
            self._failed(self._broker, [item], _stopping())
        elif is_first:
            self._work.submit(self.send_waiting)

    def send_waiting(self) -> None:
        """Send all that waits, on the calling thread."""
        while items := self._take():
            try:
                self._send(self._link, items)
            except (KafkaError, ProtocolError) as error:
                self._failed(self._broker, items, error)

    def _take(self) -> list[T]:
        with self._lock:
            return [self._waiting.popleft() for _ in range(min(len(self._waiting), ITEMS_MAX))]


def _stopping() -> KafkaError:
    return KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "this broker stops")
