"""The guardian of a broker: closes its ZooKeeper session when, and only when, the broker's process is gone.

ZooKeeper keeps the ephemeral nodes of a dead process until its session times out. The kernel knows of the death at
once, so this process waits for that, attaches to the session with its id and password, and closes it. The nodes
disappear within milliseconds, and the controller elects new leaders.

`guardian.py` runs this file as a script, without site-packages, to keep it small. Only the standard library is here.

Standard input is a pipe from the broker, with one line for each session:

    session <id, 16 hex digits> <password, hex> <timeout in ms> <host:port>,<host:port>,...

If ZooKeeper is reached with TLS, a line before them has what that needs. The texts are PEM in hex, or `-`: trusted
certificates, our key with its certificates, and the key's password.

    tls <trusted> <key> <password> <check host names: 0 or 1>

The last line of each kind counts. `dismissed` means that the broker has closed its session itself, or will live without
a guardian. To close a session one needs its password, but no login.

The first argument is a pidfd of the broker, or -1 where the system has none; then the end of the pipe is the end of the
broker. The pidfd names this one process: a paused or slow broker is not gone, a child that inherited the pipe does not
keep the broker alive, and a new process with the same pid is another one.
"""

from __future__ import annotations

import os
import select
import struct
import sys
import time

# As in `typing`, which is larger than all else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from socket import socket

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
    order, tls = last_order(process_fd)
    if order.startswith(b"session "):
        close_session(order.decode(), tls.decode())


def last_order(process_fd: int) -> tuple[bytes, bytes]:
    """Return the last whole line about a session, and about TLS, once the broker is gone; `dismissed` at once."""
    os.set_blocking(_ORDERS_FD, False)
    order = tls = torn = b""
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
                for line in lines:
                    if line.startswith(b"tls "):
                        tls = line
                    else:
                        order = line
            else:
                pipe_open = False
                waiting.unregister(_ORDERS_FD)
        if order == b"dismissed" or is_gone or (process_fd < 0 and not pipe_open):
            return order, tls


def close_session(order: str, tls: str = "") -> None:
    """Close a session; try all servers again and again, until the session must have timed out by itself."""
    _, session_id, password, timeout_ms, servers = order.split(" ")
    deadline = time.monotonic() + int(timeout_ms) / 1000
    while True:
        for server in servers.split(","):
            host, _, port = server.rpartition(":")
            try:
                with connected(host.strip("[]"), int(port), tls) as connection:
                    close_through(connection, int(session_id, 16), bytes.fromhex(password), int(timeout_ms))
                    return
            except OSError:
                # Down, or without a quorum. Another server may serve.
                continue
        if time.monotonic() > deadline:
            return
        time.sleep(_PAUSE_SECONDS)


def connected(host: str, port: int, tls: str) -> socket:
    """Connect to a server; OSError if it does not answer, or we do not trust it."""
    # Only now: the memory of this process is small while it waits.
    from socket import create_connection

    connection = create_connection((host, port), _CONNECT_SECONDS_MAX)
    if not tls:
        return connection
    import ssl
    import tempfile

    try:
        _, trusted, key, password, checks_names = tls.split(" ")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = checks_names == "1"
        if trusted == "-":
            context.load_default_certs()
        else:
            context.load_verify_locations(cadata=bytes.fromhex(trusted).decode("ascii", errors="ignore"))
        if key != "-":
            # For its owner alone, and gone with this process.
            with tempfile.NamedTemporaryFile() as file:
                file.write(bytes.fromhex(key))
                file.flush()
                # No password is one of no length: without any, OpenSSL would ask at the terminal.
                context.load_cert_chain(file.name, password=bytes.fromhex(password.strip("-")))
        return context.wrap_socket(connection, server_hostname=host)
    except BaseException:
        connection.close()
        raise


def close_through(connection: socket, session_id: int, password: bytes, timeout_ms: int) -> None:
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


def _send(connection: socket, message: bytes) -> None:
    connection.sendall(_LENGTH.pack(len(message)) + message)


def _receive(connection: socket) -> bytes:
    (length,) = _LENGTH.unpack(_receive_exactly(connection, _LENGTH.size))
    if not _CONNECTED_HEAD.size <= length <= 1 << 20:
        raise ConnectionError(f"not an answer of ZooKeeper: {length} bytes")
    return _receive_exactly(connection, length)


def _receive_exactly(connection: socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        chunk = connection.recv(count - len(received))
        if not chunk:
            raise ConnectionError("the server closed the connection")
        received += chunk
    return received


if __name__ == "__main__":
    main(int(sys.argv[1]))
