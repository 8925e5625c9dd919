"""A member of a consumer group, of whichever client library, in one form for all.

    with member("aiokafka", broker.bootstrap, Joining("readers", (topic,))) as reader:
        watch_until(lambda: reader.partitions == {0, 1}, reader)

Each has a thread of its own in which it polls all the time, as an application does; whatever a test wants from the
client happens in that thread, between two polls.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from tests.interop.clients.record import DEADLINE_S
from tests.kit.waiting import until

from ottla.protocol.identifiers import TopicPartition

POLL_MS = 50
HEARTBEAT_INTERVAL_MS = 300
METADATA_MAX_AGE_MS = 500

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Joining:
    """How to join: one of the topics or the pattern, and whatever is not as most members have it."""

    group: str
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assignor: str = "range"
    instance_id: str | None = None
    session_timeout_ms: int = 20_000
    auto_commit_interval_ms: int | None = None
    reset: str = "earliest"


class Got(NamedTuple):
    """A record as a member got it."""

    partition: TopicPartition
    offset: int
    value: bytes


class Commit(NamedTuple):
    """A committed offset with the words that came with it."""

    offset: int
    metadata: str = ""

    @staticmethod
    def of(offset: int, metadata: str | None) -> Commit:
        """Leave out the zero that ends a string in C, which confluent-kafka sends along."""
        return Commit(offset, (metadata or "").removesuffix("\0"))


class Member(ABC):
    """A client in a group; the abstract methods are called in its thread only."""

    name: str

    def __init__(self, bootstrap: str, how: Joining) -> None:
        self.bootstrap = bootstrap
        self.how = how
        # What the last poll left, and all there was.
        self.assignment: frozenset[TopicPartition] = frozenset()
        self.got: list[Got] = []
        # Each time that partitions were taken away: which.
        self.revoked: list[frozenset[TopicPartition]] = []
        self._wanted: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        self._closing = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"{self.name} in {how.group}", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{self.name} in {self.how.group}: {sorted(map(str, self.assignment))}, {len(self.got)} records>"

    @property
    def partitions(self) -> set[int]:
        """The numbers of its partitions."""
        return {partition.partition for partition in self.assignment}

    @property
    def values(self) -> list[bytes]:
        """What it has read so far, each record once: after a rebalance it starts again at what is committed."""
        return [got.value for got in dict.fromkeys(self.got)]

    def close(self) -> None:
        """Leave the group as the client does, unless the member is static."""
        self._closing.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), f"{self} does not close"
        self.check()

    def check(self) -> None:
        """Raise what ended its thread, if something did."""
        if self._failure is not None:
            raise AssertionError(f"{self} failed") from self._failure

    def generation(self) -> int:
        """Return the generation that it is in; -1 where the client does not tell."""
        return self._call(self._generation)

    def commit(self, offsets: dict[TopicPartition, Commit]) -> None:
        """Commit and wait for the answer."""
        self._call(lambda: self._commit(offsets))

    def committed(self, partition: TopicPartition) -> Commit | None:
        """Ask what the group has committed."""
        return self._call(lambda: self._committed(partition))

    def _call(self, function: Callable[[], T]) -> T:
        future: Future[T] = Future()
        self._wanted.put((function, future))
        return future.result(DEADLINE_S)

    def _run(self) -> None:
        try:
            self._open()
            try:
                while not self._closing.is_set():
                    self._do_what_is_wanted()
                    self.got += self._poll()
                    self.assignment = self._assignment()
            finally:
                self._leave()
                self.assignment = frozenset()
        except BaseException as error:
            self._failure = error

    def _do_what_is_wanted(self) -> None:
        with suppress(Empty):
            while True:
                function, future = self._wanted.get_nowait()
                try:
                    future.set_result(function())
                except BaseException as error:
                    future.set_exception(error)

    @abstractmethod
    def _open(self) -> None:
        """Make the client and subscribe."""

    @abstractmethod
    def _poll(self) -> Iterable[Got]:
        """Ask for records, for a short time."""

    @abstractmethod
    def _assignment(self) -> frozenset[TopicPartition]:
        """Return what is assigned now."""

    @abstractmethod
    def _leave(self) -> None:
        """Close the client."""

    @abstractmethod
    def _generation(self) -> int:
        """Return the generation; -1 where the client does not tell."""

    @abstractmethod
    def _commit(self, offsets: dict[TopicPartition, Commit]) -> None:
        """Commit and wait for the answer."""

    @abstractmethod
    def _committed(self, partition: TopicPartition) -> Commit | None:
        """Ask what the group has committed."""


def watch_until(condition: Callable[[], bool], *members: Member) -> None:
    """Wait until something holds; fail with what the members say if it never does, or one of them fails."""

    def holds() -> bool:
        if condition():
            return True
        for member in members:
            member.check()
        return False

    until(holds, lambda: members)


def share(members: Iterable[Member], partitions: Iterable[TopicPartition]) -> bool:
    """Say whether each of the partitions has one owner, and each member at least one partition."""
    owned = [partition for member in members for partition in member.assignment]
    return sorted(owned) == sorted(partitions) and all(member.assignment for member in members)
