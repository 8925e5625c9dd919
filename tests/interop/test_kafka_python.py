"""What kafka-python needs from us to be used in tests."""

from __future__ import annotations

import gc
import socket
import sys
from typing import Any

import pytest
from tests.interop.clients.python import KafkaNetSocket, NetworkSelector


def test_a_connection_that_is_given_up_leaves_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is closed while it connects to one of its brokers would leave one for the collector to find."""
    found: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: found.append(str(unraisable.exc_value)))
    made: list[socket.socket] = []

    class Connecting(KafkaNetSocket):  # type: ignore[misc]
        SCHEMES = ()

        def connect_ex(self, sock: socket.socket, address: Any) -> int:
            made.append(sock)
            code: int = super().connect_ex(sock, address)
            return code

    with socket.create_server(("127.0.0.1", 0)) as listener:
        selector = NetworkSelector()
        host, port = listener.getsockname()
        (address,) = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        selector.call_soon(lambda: Connecting().connect(selector, address))
        selector.drain()
        assert made.pop().getpeername() == listener.getsockname()
        selector.close()
    gc.collect()

    assert found == []
