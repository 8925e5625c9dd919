"""The way of records from callers' threads to a producer on an event loop, without a switch of threads for each."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from ottla.client.errors import KafkaTimeoutError, ProducerClosed
from ottla.client.producer.producer_batch import Delivery
from ottla.client.sync.loop_thread import LoopThread
from ottla.client.types import RecordMetadata

# How many records may wait until the producer takes them; then callers wait.
WAITING_MAX: Final = 1000
# After so many records the loop gets a turn for its other work.
TURN_RECORDS: Final = 100

Sending = Coroutine[Any, Any, Delivery]


class SendQueue:
    """Sends in the order of the calls: each begins when the producer has taken the record before it."""

    def __init__(self, loop: LoopThread) -> None:
        self._loop = loop
        # Shared by the threads, under the lock, on which callers wait for room.
        self._lock = threading.Condition(threading.Lock())
        self._waiting: deque[tuple[Sending, Future[RecordMetadata]] | asyncio.Future[None]] = deque()
        self._is_sending = False

    def put(self, sending: Sending, timeout_ms: int | None) -> Future[RecordMetadata]:
        """Have a record sent; the future has its metadata, or why it was not written."""
        future: Future[RecordMetadata] = Future()
        # It cannot be cancelled: the record is under way.
        future.set_running_or_notify_cancel()
        try:
            with self._lock:
                if len(self._waiting) >= WAITING_MAX:
                    self._wait_for_room(timeout_ms)
                if not self._is_sending:
                    self._loop.submit(self._send())
                    self._is_sending = True
                self._waiting.append((sending, future))
        except BaseException:
            sending.close()
            raise
        return future

    def __len__(self) -> int:
        """The number of records that the producer has not taken yet."""
        with self._lock:
            return sum(isinstance(each, tuple) for each in self._waiting)

    async def drain(self) -> None:
        """Wait until the producer has taken all that was put before."""
        taken = asyncio.get_running_loop().create_future()
        with self._lock:
            if not self._is_sending:
                return
            self._waiting.append(taken)
        await taken

    def _wait_for_room(self, timeout_ms: int | None) -> None:
        timeout_s = None if timeout_ms is None else timeout_ms / 1000
        if not self._lock.wait_for(lambda: len(self._waiting) <= WAITING_MAX // 2, timeout_s):
            raise KafkaTimeoutError(f"the producer had no room for the record in {timeout_ms} ms")

    async def _send(self) -> None:
        """Give the producer all that waits."""
        count = 0
        while (following := self._next()) is not None:
            if isinstance(following, asyncio.Future):
                if not following.done():
                    following.set_result(None)
                continue
            sending, future = following
            try:
                delivery = await sending
            except Exception as error:
                future.set_exception(error)
            except BaseException:
                self._give_up(future)
                raise
            else:
                delivery.add_done_callback(partial(_settle, future))
            count += 1
            if count % TURN_RECORDS == 0:
                await asyncio.sleep(0)

    def _next(self) -> tuple[Sending, Future[RecordMetadata]] | asyncio.Future[None] | None:
        with self._lock:
            if not self._waiting:
                self._is_sending = False
                return None
            # A caller that waited gets room for many, so that threads are switched rarely.
            if len(self._waiting) == WAITING_MAX // 2:
                self._lock.notify_all()
            return self._waiting.popleft()

    def _give_up(self, future: Future[RecordMetadata]) -> None:
        """The loop ends: nothing that waits is sent any more."""
        future.set_exception(ProducerClosed("the producer was closed before the record was sent"))
        while (following := self._next()) is not None:
            if isinstance(following, asyncio.Future):
                following.cancel()
            else:
                following[0].close()
                following[1].set_exception(ProducerClosed("the producer was closed before the record was sent"))


def _settle(future: Future[RecordMetadata], delivery: Delivery) -> None:
    try:
        future.set_result(delivery.result())
    except BaseException as error:
        future.set_exception(error)
