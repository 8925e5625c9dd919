"""Ports of the loopback interface: which are free, and a clear word about those that are not."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Collection, Iterable

from ottla.client.local_cluster.errors import ClusterError, PortTakenError

# Below the ports of outgoing connections on Linux and macOS: none of them takes the port before its process does.
FREE_PORT_RANGE = range(20_000, 32_000)
FREE_PORT_ATTEMPTS = 1000
# Not the generator that programs seed: two processes with one seed would choose the same ports at the same time.
_RANDOM = random.SystemRandom()
CONNECT_TIMEOUT_S = 1.0


def is_accepting(host: str, port: int, timeout_s: float = CONNECT_TIMEOUT_S) -> bool:
    """Say whether somebody accepts connections there; a connection may by chance meet itself, which is nobody."""
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            return bool(connection.getsockname() != connection.getpeername())
    except OSError:
        return False


def free_port(host: str, taken: Collection[int] = ()) -> int:
    """Return a port that nobody listens on and that is not among those already given away."""
    for port in _RANDOM.sample(FREE_PORT_RANGE, FREE_PORT_ATTEMPTS):
        if port not in taken and _bind_error(host, port) is None:
            return port
    raise ClusterError(f"No free port was found between {FREE_PORT_RANGE.start} and {FREE_PORT_RANGE.stop}.")


def check_ports_are_free(host: str, wanted: Iterable[tuple[int, str, str]]) -> None:
    """Check ports, each with its user and the option that moves it, and name all that are not to be had."""
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
            "0 takes ports that are free. Nothing was started."
        )


def _bind_error(host: str, port: int) -> int | None:
    """Return why the port cannot be listened on; where addresses may be reused, a listener still answers."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno
    return errno.EADDRINUSE if is_accepting(host, port) else None
