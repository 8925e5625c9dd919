"""The guardian of a broker: closes its ZooKeeper session when, and only when, the broker's process is gone.

ZooKeeper keeps the ephemeral nodes of a dead process until its session times out. The kernel knows of the death at
once, so this process waits for that, attaches to the session with its id and password, and closes it. The nodes
disappear within milliseconds, and the controller elects new leaders.

`guardian.py` runs this file as a script, without site-packages, to keep it small. Only the standard library is here.

Standard input is a pipe from the broker, with one line for each session:

    session <id, 16 hex digits> <password, hex> <timeout in ms> <host:port>,<host:port>,...

The last line counts. `dismissed` means that the broker has closed its session itself, or will live without a guardian.
The first argument is a pidfd of the broker, or -1 where the system has none; then the end of the pipe is the end of the
broker. The pidfd names this one process: a paused or slow broker is not gone, a child that inherited the pipe does not
keep the broker alive, and a new process with the same pid is another one.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
import time

_ORDERS_FD = 0
_CONNECT_SECONDS_MAX = 1.0
_PAUSE_SECONDS = 0.05

# Messages of ZooKeeper's protocol, each behind its length in 4 bytes. The connect request has the protocol version, the
# last zxid seen, the session timeout, the session id, the length of the password, the password and a flag `read only`.
_LENGTH = struct.Struct(">i")
_CONNECT_HEAD = struct.Struct(">iqiQi")
# The answer begins with the protocol version, the granted timeout and the session id.
_CONNECTED_HEAD = struct.Struct(">iiQ")
_CLOSE_XID, _CLOSE_TYPE = 1, -11
_CLOSE = struct.Struct(">ii")


def main(process_fd: int) -> None:
    """Wait for the broker's death or its dismissal, and act."""
    order = last_order(process_fd)
    if order.startswith(b"session "):
        close_session(order.decode())


def last_order(process_fd: int) -> bytes:
    """Return the last whole line of the broker once the broker is gone, or `dismissed` at once."""
    os.set_blocking(_ORDERS_FD, False)
    order = torn = b""
    waiting = select.poll()
    waiting.register(_ORDERS_FD, select.POLLIN)
    if process_fd >= 0:
        waiting.register(process_fd, select.POLLIN)
    pipe_open = True
    while True:
        ready = {descriptor for descriptor, _event in waiting.poll()}
        is_gone = process_fd in ready
        while pipe_open:
            try:
                chunk = os.read(_ORDERS_FD, 65536)
            except BlockingIOError:
                break
            if chunk:
                *lines, torn = (torn + chunk).split(b"\n")
                order = lines[-1] if lines else order
            else:
                pipe_open = False
                waiting.unregister(_ORDERS_FD)
        if order == b"dismissed" or is_gone or (process_fd < 0 and not pipe_open):
            return order


def close_session(order: str) -> None:
    """Close a session; try all servers again and again, until the session must have timed out by itself."""
    _, session_id, password, timeout_ms, servers = order.split(" ")
    deadline = time.monotonic() + int(timeout_ms) / 1000
    while True:
        for server in servers.split(","):
            host, _, port = server.rpartition(":")
            try:
                with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS_MAX) as connection:
                    close_through(connection, int(session_id, 16), bytes.fromhex(password), int(timeout_ms))
                    return
            except OSError:
                # Down, or without a quorum. Another server may serve.
                continue
        if time.monotonic() > deadline:
            return
        time.sleep(_PAUSE_SECONDS)


def close_through(connection: socket.socket, session_id: int, password: bytes, timeout_ms: int) -> None:
    """Attach to a session and close it; OSError if the server does not confirm both."""
    head = _CONNECT_HEAD.pack(0, 0, timeout_ms, session_id, len(password))
    _send(connection, head + password + b"\0")
    _, granted_ms, attached_id = _CONNECTED_HEAD.unpack_from(_receive(connection))
    if granted_ms <= 0 or attached_id != session_id:
        # The session has ended already.
        return
    _send(connection, _CLOSE.pack(_CLOSE_XID, _CLOSE_TYPE))
    while _LENGTH.unpack_from(_receive(connection))[0] != _CLOSE_XID:
        pass


def _send(connection: socket.socket, message: bytes) -> None:
    connection.sendall(_LENGTH.pack(len(message)) + message)


def _receive(connection: socket.socket) -> bytes:
    (length,) = _LENGTH.unpack(_receive_exactly(connection, _LENGTH.size))
    if not _CONNECTED_HEAD.size <= length <= 1 << 20:
        raise ConnectionError(f"not an answer of ZooKeeper: {length} bytes")
    return _receive_exactly(connection, length)


def _receive_exactly(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        chunk = connection.recv(count - len(received))
        if not chunk:
            raise ConnectionError("the server closed the connection")
        received += chunk
    return received


if __name__ == "__main__":
    main(int(sys.argv[1]))
