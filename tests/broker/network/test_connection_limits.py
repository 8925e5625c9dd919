"""Limits of connections, of the broker and of each listener (KIP-402)."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
import structlog
from tests.broker.network.serving import Served, echo, receive_frame, send_frame, serving_securely
from tests.kit.waiting import until

from ottla.broker.config import BrokerConfig

TWO_LISTENERS = {
    "listeners": "PUBLIC://127.0.0.1:1,INTERNAL://127.0.0.1:2",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,PUBLIC:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
}


class Guests:
    """A network with a listener for clients and one for brokers, and clients that stay connected."""

    def __init__(self, served: Served, stack: ExitStack) -> None:
        self.served = served
        self._stack = stack

    def knock(self, listener: str) -> socket.socket:
        """Connect, and ask for something."""
        client = self._stack.enter_context(self.served.connect(listener))
        send_frame(client, b"hello")
        return client

    def enter(self, listener: str) -> socket.socket:
        """Connect, and be answered."""
        client = self.knock(listener)
        assert is_served(client)
        return client

    def counted(self) -> dict[str, int]:
        """Return how many connections each listener has."""
        return dict(self.served.on_loop(lambda: self.served.network.counts.by_listener))

    def reconfigure(self, options: dict[str, str]) -> None:
        """Change options while the network runs."""
        config = BrokerConfig.of({**TWO_LISTENERS, **options})
        self.served.on_loop(lambda: self.served.network.reconfigure(config))


@contextmanager
def guests(options: dict[str, str]) -> Iterator[Guests]:
    """Serve both listeners until the block ends."""
    config = BrokerConfig.of({**TWO_LISTENERS, **options})
    with serving_securely(echo, config, {}) as served, ExitStack() as stack:
        yield Guests(served, stack)


def is_served(client: socket.socket) -> bool:
    """Whether a client that asked is answered; it is not if its connection is closed."""
    return receive_frame(client) == b"hello"


def is_waiting(client: socket.socket) -> bool:
    """Whether a client has neither an answer nor a closed connection."""
    client.settimeout(0)
    try:
        client.recv(1)
    except BlockingIOError:
        return True
    finally:
        client.settimeout(60)
    return False


def test_a_full_listener_accepts_nobody_until_somebody_leaves() -> None:
    """As in Kafka, the next one waits in the kernel's queue; the other listener is not affected."""
    with (
        structlog.testing.capture_logs() as logs,
        guests({"listener.name.public.max.connections": "2"}) as met,
    ):
        first, _ = met.enter("PUBLIC"), met.enter("PUBLIC")
        third = met.knock("PUBLIC")
        for _ in range(5):
            met.enter("INTERNAL")
        assert is_waiting(third)
        assert met.counted() == {"PUBLIC": 2, "INTERNAL": 5}

        first.close()

        assert is_served(third)
        said = [entry for entry in logs if entry["event"] == "listener_full"]
    assert [(entry["listener"], entry["reason"]) for entry in said] == [
        ("PUBLIC", "listener.name.public.max.connections = 2 are open")
    ]


def test_brokers_get_in_when_clients_have_used_up_the_connections() -> None:
    """The connection of the client that has been silent for the longest time makes room."""
    with guests({"max.connections": "3"}) as met:
        first, second, third = (met.enter("PUBLIC") for _ in range(3))
        send_frame(first, b"hello")
        assert is_served(first)

        met.enter("INTERNAL")

        assert second.recv(1) == b"", "it was silent for longer than the first one"
        assert is_waiting(first)
        assert is_waiting(third)
        assert met.counted() == {"PUBLIC": 2, "INTERNAL": 1}
        assert is_waiting(met.knock("PUBLIC"))


def test_brokers_beyond_the_limit_are_accepted_and_no_client_is() -> None:
    """The limit of the broker does not count for them, and a limit of their own listener does."""
    limits = {"max.connections": "2", "listener.name.internal.max.connections": "4"}
    with guests(limits) as met:
        client = met.enter("PUBLIC")
        for _ in range(4):
            met.enter("INTERNAL")
        assert client.recv(1) == b""
        fifth, late = met.knock("INTERNAL"), met.knock("PUBLIC")
        until(lambda: met.counted() == {"PUBLIC": 0, "INTERNAL": 4}, "only brokers are connected")
        assert is_waiting(fifth)
        assert is_waiting(late)


def test_a_limit_of_the_brokers_listener_counts_even_if_it_is_that_of_the_broker() -> None:
    """A limit that was set for a listener is not taken for the general one."""
    with guests({"max.connections": "2", "listener.name.internal.max.connections": "2"}) as met:
        met.enter("INTERNAL"), met.enter("INTERNAL")
        assert is_waiting(met.knock("INTERNAL"))


def test_the_only_listener_is_limited_like_any_other() -> None:
    """Nothing tells brokers from clients there."""
    config = BrokerConfig.of({"listeners": "PLAINTEXT://127.0.0.1:1", "max.connections": "1"})
    with serving_securely(echo, config, {}) as served, ExitStack() as stack:
        met = Guests(served, stack)
        first = met.enter("PLAINTEXT")
        second = met.knock("PLAINTEXT")
        until(lambda: met.counted() == {"PLAINTEXT": 1}, "one is connected")
        assert is_waiting(second)
        first.close()
        assert is_served(second)


@pytest.mark.parametrize("name", ["max.connections", "listener.name.public.max.connections"])
def test_a_higher_limit_lets_in_those_who_wait(name: str) -> None:
    """The change takes effect at once, without a connection that closes."""
    with guests({name: "1"}) as met:
        met.enter("PUBLIC")
        second = met.knock("PUBLIC")
        until(lambda: met.counted()["PUBLIC"] == 1, "one is connected")
        met.reconfigure({name: "2"})
        assert is_served(second)


def test_brokers_get_in_when_clients_have_used_up_the_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of those that are kept for logs are for them."""
    with guests({}) as met:
        met.enter("PUBLIC")
        next_descriptor = os.dup(0)
        os.close(next_descriptor)
        # Clients may not use the last 1,100; brokers may use half of them.
        limit = next_descriptor + 1000
        monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
        monkeypatch.setattr("ottla.broker.network.acceptor._RESERVED_MIN", 1100)
        late = met.knock("PUBLIC")
        met.enter("INTERNAL")
        assert is_waiting(late)


def test_a_lower_limit_closes_the_connections_that_are_silent_for_the_longest_time() -> None:
    """Those of brokers stay."""
    with guests({}) as met:
        broker = met.enter("INTERNAL")
        first, second, third = (met.enter("PUBLIC") for _ in range(3))
        met.reconfigure({"max.connections": "2"})
        assert (first.recv(1), second.recv(1)) == (b"", b"")
        assert is_waiting(third)
        assert is_waiting(broker)
