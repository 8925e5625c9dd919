"""The bare cluster of `bench.limits` acknowledges what all three processes have written."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from bench.support import bare_replicas
from bench.support.bare_replicas import BareLeader, BareLog, follow
from confluent_kafka import Producer
from tests.bench.test_bare_broker import TIMEOUT_S, served

from ottla.protocol.records import RecordBatch

HEADER = struct.Struct(">qi")
# More than is sent as it was received, so that it comes from the file.
LARGE = bytes(100_000)


class Peer:
    """A follower in the hands of a test."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def receive(self) -> tuple[int, bytes]:
        """Return the number and the records that the leader sends next."""
        number, size = HEADER.unpack(self._connection.recv(HEADER.size, socket.MSG_WAITALL))
        return number, self._connection.recv(size, socket.MSG_WAITALL)

    def acknowledge(self, number: int) -> None:
        """Say that everything up to a number is written."""
        self._connection.sendall(struct.pack(">q", number))


@pytest.fixture
def peers() -> Iterator[tuple[list[socket.socket], list[Peer]]]:
    """Two connections: the leader's ends, which it closes itself, and the followers'."""
    with ExitStack() as stack:
        pairs = [socket.socketpair() for _ in range(2)]
        followers = [Peer(stack.enter_context(pair[1])) for pair in pairs]
        yield [pair[0] for pair in pairs], followers


@pytest.mark.parametrize("value", [b"small", LARGE], ids=["small", "large"])
def test_records_are_acknowledged_when_all_followers_have_them(
    tmp_path: Path, peers: tuple[list[socket.socket], list[Peer]], value: bytes
) -> None:
    """One follower is not enough, and both get the whole batch."""
    ends, followers = peers
    listener = socket.create_server(("127.0.0.1", 0))
    with served(BareLeader(listener, BareLog(tmp_path), ends), listener) as address:
        producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0})
        producer.produce("topic", value)
        (number, first), (_, second) = (follower.receive() for follower in followers)
        followers[0].acknowledge(number)
        # An acknowledgement that came too early would be here before the answer to a later question.
        producer.list_topics("topic", TIMEOUT_S)
        assert len(producer) == 1
        followers[1].acknowledge(number)
        assert producer.flush(TIMEOUT_S) == 0

    assert first == second
    batch = RecordBatch(first)
    batch.check()
    assert [record.value for record in batch.records()] == [value]


def test_a_follower_writes_what_it_acknowledges(tmp_path: Path) -> None:
    """In the order in which it comes, until the leader leaves."""
    listener = socket.create_server(("127.0.0.1", 0))
    log = BareLog(tmp_path)
    thread = threading.Thread(target=follow, args=(listener, log))
    thread.start()
    with listener, socket.create_connection(listener.getsockname()) as leader:
        for number, records in enumerate((b"a" * 100, b"b" * 100), 1):
            leader.sendall(HEADER.pack(number, len(records)) + records)
        acknowledged = leader.recv(16, socket.MSG_WAITALL)
    thread.join(TIMEOUT_S)

    assert struct.unpack(">qq", acknowledged) == (1, 2)
    file, position = log.append(memoryview(b"c"))
    assert os.pread(file, position + 1, 0) == b"a" * 100 + b"b" * 100 + b"c"


def test_a_full_file_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit begins a new one, and no file has a name."""
    monkeypatch.setattr(bare_replicas, "_FILE_BYTES_MAX", 10)
    log = BareLog(tmp_path)
    positions = [log.append(memoryview(b"12345"))[1] for _ in range(3)]

    assert positions == [0, 5, 0]
    assert list(tmp_path.iterdir()) == []
