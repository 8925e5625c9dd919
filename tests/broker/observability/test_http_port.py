"""The HTTP port before and after its first connection."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest
from tests.kit.hosts import LOOPBACK
from tests.kit.waiting import until

from ottla.broker.config.addresses import Address
from ottla.broker.observability import http_port, http_service
from ottla.broker.observability.http_port import HttpPort


class Service:
    """Notes what is done with it."""

    made: list[Service] = []  # noqa: RUF012 - emptied by each test

    def __init__(self, listening: socket.socket, host: str, observed: object) -> None:
        self.listening = listening
        self.calls = [host]
        self.made.append(self)

    def start(self) -> None:
        self.calls.append("start")

    def close(self) -> None:
        self.calls.append("close")
        self.listening.close()


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Address:
    """Where nobody listens yet."""
    Service.made.clear()
    monkeypatch.setattr(http_service, "HttpService", Service)
    return Address("127.0.0.1", LOOPBACK.free_port())


def port_at(address: Address) -> HttpPort:
    """Return a port that is not open yet."""
    observed: Any = SimpleNamespace(leader_lookups=SimpleNamespace(close=lambda: None))
    return HttpPort(address, observed)


def connect(address: Address) -> None:
    """Open a connection, and leave."""
    socket.create_connection((address.host, address.port), timeout=10).close()


def test_the_first_connection_brings_what_serves_it(address: Address) -> None:
    """It gets the open port, with the connection in it, and gives it back in the end."""
    port = port_at(address)
    port.start()
    assert Service.made == []
    connect(address)
    until(lambda: Service.made and "start" in Service.made[0].calls, "it is served")
    connect(address)
    port.close()

    assert [service.calls for service in Service.made] == [["127.0.0.1", "start", "close"]]
    with pytest.raises(ConnectionRefusedError):
        connect(address)


def test_what_cannot_be_served_now_is_served_later(address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may be out of descriptors or threads for a moment; an open port that never answers helps nobody."""
    monkeypatch.setattr(http_port, "_RETRY_SECONDS", 0.001)
    failures = iter([OSError("too many open files"), RuntimeError("can't start new thread")])

    def made(listening: socket.socket, host: str, observed: object) -> Service:
        for failure in failures:
            raise failure
        return Service(listening, host, observed)

    monkeypatch.setattr(http_service, "HttpService", made)
    port = port_at(address)
    port.start()
    connect(address)
    until(lambda: Service.made and "start" in Service.made[0].calls, "it is served")
    port.close()

    assert [service.calls for service in Service.made] == [["127.0.0.1", "start", "close"]]


def test_a_port_that_nobody_asked_is_given_back(address: Address) -> None:
    """Nothing was made for it."""
    port = port_at(address)
    port.start()
    port.close()

    assert Service.made == []
    with pytest.raises(ConnectionRefusedError):
        connect(address)


def test_a_taken_port_is_an_error_at_the_start(address: Address) -> None:
    """Not at the first connection, which somebody else would get."""
    with socket.create_server((address.host, address.port)):
        port = port_at(address)
        with pytest.raises(OSError, match="in use"):
            port.start()
        port.close()
