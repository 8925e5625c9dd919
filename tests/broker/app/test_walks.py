"""The files that a Produce and a Fetch pass are those that docs/adr/0014-the-walks.md lists."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import pytest
from tests.broker.handlers.data_path import batch, running_broker, topic_id
from tests.broker.network.serving import receive_frame, send_frame, serving_securely
from tests.kit.waiting import until

import ottla.broker
from ottla.broker.handlers.table import HANDLERS
from ottla.broker.network import connection
from ottla.broker.requests.dispatch import Dispatcher
from ottla.protocol.api import Api
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.requests import decode_response, encode_request

_BROKER: Final = f"{Path(ottla.broker.__file__).parent}/"
_PAGE: Final = Path(__file__).parents[3] / "docs" / "adr" / "0014-the-walks.md"
_FOLLOWER: Final = 2
# The first ones create what is created once: the write map of the segment, the producer's state.
_WARM_UP: Final = 3
# What also runs while nothing is requested.
_TIMERS: Final = frozenset({"Network._watch_deadlines"})
# Listed because a reader must open it; its functions are generated, and have no file.
_NOT_RUN: Final = frozenset({"requests/request.py"})


class Tracer:
    """Notes the files of the broker whose functions run, in threads that start while it is installed."""

    def __init__(self) -> None:
        # Set while something is to be noted: everything, or only what the root calls.
        self._files: set[str] | None = None
        self._root: str | None = None
        self._threads = threading.local()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Watch the threads that start in the block."""
        threading.setprofile(self._note)
        try:
            yield
        finally:
            threading.setprofile(None)

    @contextmanager
    def noting(self, root: str | None = None, files: set[str] | None = None) -> Iterator[set[str]]:
        """Note what runs in the block; with `root`, only what the function of that name calls. `files` get more."""
        noted = set() if files is None else files
        self._root, self._files = root, noted
        try:
            yield noted
        finally:
            self._files = None

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        files = self._files
        if files is None or event not in ("call", "return"):
            return
        if self._root is None:
            # The loop of a thread was called before the block, and belongs to the walk.
            stack = [frame]
            while (caller := stack[-1].f_back) is not None:
                stack.append(caller)
            if all(each.f_code.co_qualname not in _TIMERS for each in stack):
                files.update(_broker_files(stack))
            return
        depth = getattr(self._threads, "depth", 0)
        if frame.f_code.co_qualname == self._root:
            depth = self._threads.depth = depth + (1 if event == "call" else -1)
        if depth:
            files.update(_broker_files([frame]))


def _broker_files(frames: list[FrameType]) -> Iterator[str]:
    for frame in frames:
        path = frame.f_code.co_filename
        if path.startswith(_BROKER):
            yield path.removeprefix(_BROKER)


def send_produce(client: socket.socket, sequence: int) -> None:
    """Send a batch of an idempotent producer with acks=all, large enough for an index entry."""
    records = batch(b"v" * 5000, producer_id=7, producer_epoch=0, base_sequence=sequence)
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])
    request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[topic])
    send_frame(client, b"".join(encode_request(Api.PRODUCE, 9, sequence, "producer", request)))


def send_fetch(client: socket.socket, replica: int, offset: int) -> None:
    """Send a Fetch: that of a follower that has everything below an offset, or of a consumer (-1)."""
    partition = FetchPartition(
        partition=0, fetch_offset=offset, last_fetched_epoch=0, log_start_offset=0, partition_max_bytes=100_000
    )
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=replica),
        max_wait_ms=0,
        min_bytes=0,
        topics=[FetchTopic(topic_id=topic_id("t"), partitions=[partition])],
    )
    send_frame(client, b"".join(encode_request(Api.FETCH, 15, offset, "reader", request)))


class Walks(NamedTuple):
    """The files that requests pass."""

    produce: set[str]
    fetch: set[str]


def walks(directory: Path) -> Walks:
    """Trace a Produce up to purgatory, and from the follower's fetch to its response; then a consumer's Fetch."""
    tracer = Tracer()
    with running_broker(directory, {}) as broker, tracer.installed():
        broker.racks[_FOLLOWER] = None
        broker.lead("t", isr=(1, _FOLLOWER))
        services = broker.services
        waiting = services.partitions.waits.produces
        dispatch = Dispatcher(HANDLERS, services.for_handlers(), services.configs.broker, services.requests).dispatch
        with (
            serving_securely(dispatch, services.configs.broker(), {}) as served,
            served.connect() as producer,
            served.connect() as follower,
            served.connect() as consumer,
        ):
            for sequence in range(_WARM_UP + 1):
                with tracer.noting() as produce:
                    send_produce(producer, sequence)
                    until(lambda: len(waiting) == 1, "the produce waits for the follower")
                with tracer.noting("Partition.read_for_follower", produce):
                    send_fetch(follower, _FOLLOWER, sequence + 1)
                    answer = receive_frame(producer)
                    # The follower is answered after the producer, by the same thread.
                    assert receive_frame(follower) is not None
                assert answer is not None
                _, response = decode_response(Api.PRODUCE, 9, answer)
                assert response.responses[0].partition_responses[0].base_offset == sequence
            for offset in range(_WARM_UP + 1):
                with tracer.noting() as fetch:
                    before = services.requests.by_api[Api.FETCH].requests
                    send_fetch(consumer, -1, offset)
                    answer = receive_frame(consumer)
                    until(lambda: services.requests.by_api[Api.FETCH].requests > before, "it is counted")  # noqa: B023
                assert answer is not None
                assert len(answer) > 5000
    return Walks(produce, fetch)


def documented_files(request: str) -> set[str]:
    """Return the files that the page lists for a request."""
    section = _PAGE.read_text().partition(f"## The files of a {request}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `([a-z_/]+\.py)`", section, re.MULTILINE)) - _NOT_RUN


def test_requests_pass_the_documented_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file more or less on the way from the socket to the disk and back is a decision, and changes the page."""
    # The whole way: a worker that stays with a connection needs neither the loop nor the queue.
    monkeypatch.setattr(connection, "_CLOSE_SECONDS", float("-inf"))
    passed = walks(tmp_path)

    assert passed.produce == documented_files("Produce")
    assert passed.fetch == documented_files("Fetch")
