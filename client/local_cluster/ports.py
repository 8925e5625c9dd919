"""Ports of the loopback interface: find free ones, and report those in use."""

from __future__ import annotations

import errno
import os
import random
import socket
import sys
from collections import deque
from collections.abc import Collection, Iterable

from ottla.client.local_cluster.errors import ClusterError, PortTakenError

# Below the ports of outgoing connections on Linux and macOS, so that none of them takes the port first.
FREE_PORT_RANGE = range(20_000, 32_000)
FREE_PORT_ATTEMPTS = 1000
# Not the generator that programs seed: two processes with the same seed would choose the same ports.
_RANDOM = random.SystemRandom()
CONNECT_TIMEOUT_S = 1.0

# Descriptors of sockets at the latest ports that were found here. They keep other processes from finding the same
# ports, until there are so many newer ones that the servers must be up.
_HELD_MAX = 64
_held: deque[int] = deque()


def is_accepting(host: str, port: int, timeout_s: float = CONNECT_TIMEOUT_S) -> bool:
    """Return whether a server accepts connections there; a connection to itself, which can happen, does not count."""
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            return bool(connection.getsockname() != connection.getpeername())
    except OSError:
        return False


def is_free(host: str, port: int) -> bool:
    """Return whether a server could listen there."""
    return _bind_error(host, port) is None


def free_port(host: str, taken: Collection[int] = ()) -> int:
    """Return a port that is free and not already assigned, and that nobody else finds before a server listens there."""
    for port in _RANDOM.sample(FREE_PORT_RANGE, FREE_PORT_ATTEMPTS):
        if port not in taken and _hold(host, port):
            return port
    raise ClusterError(f"No free port was found between {FREE_PORT_RANGE.start} and {FREE_PORT_RANGE.stop}.")


def _hold(host: str, port: int) -> bool:
    """Bind a socket to a port, unless somebody has; a server that asks for address reuse, as all do, can listen there.

    ZooKeeper needs a second or more until it listens, and parallel runs of tests look for ports all the time.
    """
    held = socket.socket()
    try:
        held.bind((host, port))
    except OSError:
        held.close()
        return False
    if sys.platform != "linux":
        # Elsewhere two sockets cannot share an address like that.
        held.close()
        return not is_accepting(host, port)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _held.append(held.detach())
    while len(_held) > _HELD_MAX:
        os.close(_held.popleft())
    return True


def check_ports_are_free(host: str, wanted: Iterable[tuple[int, str, str]]) -> None:
    """Check ports, each with its user and its option; raise an error that names all unavailable ones."""
    problems: list[str] = []
    options: list[str] = []
    for port, user, option in wanted:
        error = _bind_error(host, port)
        if error is None:
            continue
        reason = "is in use" if error == errno.EADDRINUSE else f"cannot be opened ({errno.errorcode.get(error, error)})"
        problems.append(f"Port {port} for {user} {reason}.")
        if option not in options:
            options.append(option)
    if problems:
        raise PortTakenError(
            f"{' '.join(problems)} Stop what uses it, or choose other ports with {' and '.join(options)}; "
            "0 means any free ports. Nothing was started."
        )


def _bind_error(host: str, port: int) -> int | None:
    """Return why the port cannot be used; with address reuse, only a connection reveals a listener."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno
    return errno.EADDRINUSE if is_accepting(host, port) else None
