"""Three processes that do what three replicas cannot do without, and nothing else.

    python -m bench.support.bare_replicas CONFIG

CONFIG is the properties file of a broker. Broker 1 serves clients; without followers it is a `BareBroker`. With
followers it reads the records once for their CRC, writes them to a file, sends them to each follower from the page
cache, and acknowledges them when all followers have. A follower receives, reads and writes them, and answers with a
number. Followers need not ask for records, nobody looks into a batch, and nothing can be fetched.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench.support.bare_broker import BROKER_ID, BareBroker

from ottla.client.net.settings import read_properties
from ottla.protocol.checksum import crc32c
from ottla.protocol.records import ATTRIBUTES_POSITION

# The followers' addresses, in the file of broker 1.
FOLLOWERS: Final = "bare.followers"
# A number and the size of what follows.
_HEADER: Final = struct.Struct(">qi")
_NUMBER: Final = struct.Struct(">q")
_BUFFER_BYTES: Final = 2 * 1024 * 1024
# What is small is sent as it was received: `sendfile` would be a second call.
_SENDFILE_BYTES_MIN: Final = 16 * 1024
# A file is given up long before the system writes it to the disk, which would have its say otherwise.
_FILE_BYTES_MAX: Final = 256 * 1024 * 1024
_CONNECT_SECONDS_MAX: Final = 30.0
_PAUSE_SECONDS: Final = 0.02


class BareLog:
    """A file without a name that is written at its end. When it is full, another one takes its place."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._file = self._new_file()
        self._end = 0

    def append(self, records: memoryview) -> tuple[int, int]:
        """Write records; return the file and the position, valid until the next call."""
        if self._end + len(records) > _FILE_BYTES_MAX:
            os.close(self._file)
            self._file = self._new_file()
            self._end = 0
        position = self._end
        self._end += os.pwrite(self._file, records, position)
        return self._file, position

    def _new_file(self) -> int:
        file, name = tempfile.mkstemp(dir=self._folder)
        os.unlink(name)
        return file


class BareLeader(BareBroker):
    """Acknowledges records when all followers have them."""

    def __init__(self, listener: socket.socket, log: BareLog, followers: Sequence[socket.socket]) -> None:
        super().__init__(listener)
        self._log = log
        self._followers = followers
        # Protects the log, the numbers, and what is sent to followers.
        self._order = threading.Lock()
        self._number = 0
        # What the followers have, what waits for them, and who may end it.
        self._acknowledged = [0] * len(followers)
        self._pending: deque[tuple[int, Callable[[], None]]] = deque()
        self._ending = threading.Lock()
        for index in range(len(followers)):
            threading.Thread(target=self._collect, args=(index,), daemon=True).start()

    def take(self, topic: str, index: int, records: memoryview, acknowledge: Callable[[], None]) -> None:
        """Write records and send them to the followers."""
        crc32c(records[ATTRIBUTES_POSITION:])
        size = len(records)
        with self._order:
            self._number += 1
            self._pending.append((self._number, acknowledge))
            file, position = self._log.append(records)
            header = _HEADER.pack(self._number, size)
            for follower in self._followers:
                if size < _SENDFILE_BYTES_MIN:
                    follower.sendmsg((header, records))
                    continue
                follower.send(header, socket.MSG_MORE)
                sent = 0
                while sent < size:
                    sent += os.sendfile(follower.fileno(), file, position + sent, size - sent)

    def _collect(self, index: int) -> None:
        """Answer producers as a follower acknowledges records, until it leaves."""
        with self._followers[index] as follower:
            while received := follower.recv(_NUMBER.size, socket.MSG_WAITALL):
                (number,) = _NUMBER.unpack(received)
                with self._ending:
                    self._acknowledged[index] = number
                    committed = min(self._acknowledged)
                    while self._pending and self._pending[0][0] <= committed:
                        self._pending.popleft()[1]()


def follow(listener: socket.socket, log: BareLog) -> None:
    """Write what the leader sends, until it leaves."""
    header = bytearray(_HEADER.size)
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    leader, _ = listener.accept()
    with leader:
        leader.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while leader.recv_into(header, 0, socket.MSG_WAITALL):
            number, size = _HEADER.unpack(header)
            records = buffer[:size]
            leader.recv_into(records, 0, socket.MSG_WAITALL)
            crc32c(records[ATTRIBUTES_POSITION:])
            log.append(records)
            leader.send(_NUMBER.pack(number))


def _connected(address: tuple[str, int]) -> socket.socket:
    """Return a connection to a process that may not have begun to listen."""
    deadline = time.monotonic() + _CONNECT_SECONDS_MAX
    while True:
        try:
            connection = socket.create_connection(address)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def main() -> None:
    """Lead or follow, as the file says."""
    properties = read_properties(Path(sys.argv[1]))
    listener = socket.create_server(_address(properties["listeners"].removeprefix("PLAINTEXT://")))
    log = BareLog(Path(properties["log.dirs"]))
    followers = [address for address in properties[FOLLOWERS].split(",") if address]
    if int(properties["broker.id"]) != BROKER_ID:
        follow(listener, log)
    elif followers:
        BareLeader(listener, log, [_connected(_address(address)) for address in followers]).serve()
    else:
        BareBroker(listener).serve()


if __name__ == "__main__":
    main()
