"""The check that every request of the controller passes first: is it from the newest controller, and for this
registration?

A controller that was replaced may not know it yet and keeps sending; its epoch is older than one that we have seen. A
request from before this broker registered again has an older broker epoch. Both are refused. While this broker is not
registered, a request waits until it is. The controller may know of the new registration a moment before we do, and what
it meant for the old one must not give us a role. One request passes at a time, so they take effect in the order in
which they were sent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import UNKNOWN_BROKER_EPOCH


class ControllerGate:
    """The newest controller epoch that this broker has seen. Thread-safe."""

    def __init__(self, broker_epoch: Callable[[], int], await_registration: Callable[[], None] = lambda: None) -> None:
        """`await_registration` returns when this broker is registered, or after a timeout."""
        self._broker_epoch = broker_epoch
        self._await_registration = await_registration
        self._controller_epoch = -1
        self._lock = threading.Lock()

    @contextmanager
    def passing(self, controller_epoch: int, broker_epoch: int) -> Iterator[None]:
        """Let a request pass; raise KafkaError if its controller or broker epoch is too old."""
        with self._lock:
            if controller_epoch < self._controller_epoch:
                raise KafkaError(
                    ErrorCode.STALE_CONTROLLER_EPOCH, f"epoch {controller_epoch}, newest is {self._controller_epoch}"
                )
            if broker_epoch != UNKNOWN_BROKER_EPOCH:
                self._check_life(broker_epoch)
            self._controller_epoch = controller_epoch
            yield

    def _check_life(self, broker_epoch: int) -> None:
        if self._broker_epoch() == UNKNOWN_BROKER_EPOCH:
            self._await_registration()
        own_epoch = self._broker_epoch()
        if own_epoch == UNKNOWN_BROKER_EPOCH or broker_epoch < own_epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"epoch {broker_epoch}, ours is {own_epoch}")
