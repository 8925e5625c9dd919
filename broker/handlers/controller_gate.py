"""What every request of the controller passes first: is it the newest controller, and does it mean this life of ours?

A controller that was replaced does not know it at once, and goes on sending: its epoch is older than one that we have
seen. A request made before this broker registered anew carries an older broker epoch. Both are refused. One request at
a time passes, so that they take effect in the order in which they were sent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ottla.protocol.errors import ErrorCode, KafkaError

_UNKNOWN_BROKER_EPOCH = -1


class ControllerGate:
    """The newest controller epoch that this broker has seen. Thread-safe."""

    def __init__(self, broker_epoch: Callable[[], int]) -> None:
        self._broker_epoch = broker_epoch
        self._controller_epoch = -1
        self._lock = threading.Lock()

    @contextmanager
    def passing(self, controller_epoch: int, broker_epoch: int) -> Iterator[None]:
        """Let a request pass; raise KafkaError where it comes from the past."""
        with self._lock:
            if controller_epoch < self._controller_epoch:
                raise KafkaError(
                    ErrorCode.STALE_CONTROLLER_EPOCH, f"epoch {controller_epoch}, {self._controller_epoch} is known"
                )
            if _UNKNOWN_BROKER_EPOCH < broker_epoch < self._broker_epoch():
                raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"epoch {broker_epoch}, ours is {self._broker_epoch()}")
            self._controller_epoch = controller_epoch
            yield
