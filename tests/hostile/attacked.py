"""A broker in this process, with real logs, groups and rights, that takes frames as its workers do."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.broker.groups.coordinating import coordinating_broker
from tests.broker.handlers.data_path import Broker
from tests.broker.handlers.small_cluster import FakeCluster

from ottla.broker.common.timings import RequestMetrics
from ottla.broker.config import BrokerConfig
from ottla.broker.handlers.table import HANDLERS
from ottla.broker.network.frame_reader import Frame
from ottla.broker.requests.dispatch import Dispatcher
from ottla.broker.security.acls.acl import WILDCARD, AclEntry, ResourcePattern
from ottla.broker.security.acls.acl_snapshot import AclSnapshot
from ottla.broker.security.acls.authorizer import AclAuthorizer
from ottla.broker.security.session import Session
from ottla.protocol.acls import AclOperation, AclPermissionType, ResourceType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.produce_shape import ProduceShape

Rights = dict[tuple[ResourceType, str], AclOperation]


class NoController:
    """Refuses all work."""

    def submit(self, _work: object, finish: Any) -> None:
        """Answer that somebody else is controller."""
        finish(KafkaError(ErrorCode.NOT_CONTROLLER))


@dataclass(eq=False)
class OneRequest:
    """The connection of one request; remembers how it ended."""

    session: Session = field(default_factory=lambda: Session("PLAINTEXT", "127.0.0.1", principal="User:mallory"))
    peer: str = "127.0.0.1"
    listener: str = "PLAINTEXT"
    answer: bytes | None = None
    closed: str | None = None
    is_gone: bool = False
    produce_shape: ProduceShape = field(default_factory=ProduceShape)

    def respond(self, _slot: object, parts: list[Any] | None) -> None:
        """Take the response."""
        self.answer = b"".join(parts or ())

    def refuse(self, slot: object, parts: list[Any] | None, _delay_seconds: float, _reason: str) -> None:
        """Take the response to a failed login."""
        self.respond(slot, parts)

    def fail(self, reason: str) -> None:
        """Note why the connection would be closed."""
        self.closed = reason

    def release(self, _frame: Frame) -> None:
        """Keep the memory of the frame: the test has it."""

    def mute(self, _seconds: float) -> None:
        """Go on."""

    def hold_back(self) -> None:
        """Send nothing else."""


@dataclass(frozen=True)
class Cost:
    """What a request cost the thread that handled it, and how it ended."""

    seconds: float
    ended: OneRequest


class AttackedBroker:
    """Handles frames one by one and says what they cost."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._dispatcher = Dispatcher(
            HANDLERS, broker.services.for_handlers(), broker.services.configs.broker, RequestMetrics()
        )

    def allow(self, rights: Rights) -> None:
        """Let these rights be all that there are."""
        acls = {
            ResourcePattern(*resource): frozenset(
                {AclEntry(WILDCARD_USER, WILDCARD, operation, AclPermissionType.ALLOW)}
            )
            for resource, operation in rights.items()
        }
        self.broker.services.security.authorizer = AclAuthorizer([], allow_if_no_acl=False, snapshot=AclSnapshot(acls))

    def take(self, frame: bytes) -> Cost:
        """Handle the body of one frame."""
        ended = OneRequest()
        begun = time.thread_time()
        self._dispatcher.dispatch(ended, Frame(memoryview(frame), None), object(), time.monotonic())
        return Cost(time.thread_time() - begun, ended)

    def peak_bytes(self, frame: bytes) -> int:
        """Handle the body of one frame; return the most memory that this took at a time."""
        gc.collect()
        tracemalloc.start()
        try:
            self._dispatcher.dispatch(OneRequest(), Frame(memoryview(frame), None), object(), time.monotonic())
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    def kept_bytes(self, frame: bytes, times: int) -> int:
        """Handle the body of one frame several times; return the memory that is still used afterwards."""
        gc.collect()
        tracemalloc.start()
        try:
            for _ in range(times):
                self._dispatcher.dispatch(OneRequest(), Frame(memoryview(frame), None), object(), time.monotonic())
            gc.collect()
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()


WILDCARD_USER = "User:*"


@contextmanager
def attacked_broker(directory: Path, *, is_open: bool = False, **options: str) -> Iterator[AttackedBroker]:
    """Run a broker with a topic `t`, where nobody has any right, or everybody has all."""
    services = {"cluster": FakeCluster(lambda: BrokerConfig.of({})), "controller": NoController()}
    with coordinating_broker(directory, services, is_loaded=True, **options) as broker:
        attacked = AttackedBroker(broker)
        if not is_open:
            attacked.allow({})
        yield attacked
