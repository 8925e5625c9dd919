"""How fast connections may come, by a clock that the test moves and on a real listener."""

from __future__ import annotations

import time
from typing import Any

from tests.broker.network.serving import echo, receive_frame, send_frame, serving
from tests.kit.clock import FakeClock

from ottla.broker.config import BrokerConfig
from ottla.broker.network.connection_rates import ConnectionRates

LISTENERS = {
    "listeners": "INSIDE://:9092,OUTSIDE://:9093",
    "advertised.listeners": "INSIDE://localhost:9092,OUTSIDE://localhost:9093",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
    "zookeeper.connect": "unused:1",
}


class Rates:
    """Rates with a clock."""

    def __init__(self, address_rate: float | None = None, **options: str) -> None:
        config = BrokerConfig.of({**LISTENERS, **{key.replace("_", "."): value for key, value in options.items()}})
        self.clock_ms = FakeClock(0.0)
        self.rates = ConnectionRates(config, lambda _address: address_rate, self.clock_ms)

    def pauses(self, listener: str, count: int) -> list[float]:
        """Take connections at once; return the pauses."""
        return [self.rates.pause_seconds(listener) for _ in range(count)]


def test_without_a_limit_nobody_pauses() -> None:
    """As is the default."""
    assert Rates().pauses("OUTSIDE", 1000) == [0.0] * 1000


def test_a_broker_pauses_when_more_connections_come_than_may() -> None:
    """But never for its own kind."""
    rates = Rates(max_connection_creation_rate="2")

    pauses = rates.pauses("OUTSIDE", 22)

    assert pauses[:20] == [0.0] * 20
    assert [round(pause, 6) for pause in pauses[20:]] == [0.5, 1.0]
    assert rates.pauses("INSIDE", 100) == [0.0] * 100
    rates.clock_ms.now = 60_000
    assert rates.pauses("OUTSIDE", 1) == [0.0]


def test_a_listener_may_have_a_limit_of_its_own() -> None:
    """Also that of the brokers."""
    rates = Rates(None, **{"listener.name.inside.max.connection.creation.rate": "1"})

    assert rates.pauses("INSIDE", 11)[-1] > 0
    assert rates.pauses("OUTSIDE", 100)[-1] == 0


def test_a_pause_is_never_endless() -> None:
    """A flood would otherwise close a listener for minutes."""
    assert Rates(max_connection_creation_rate="1").pauses("OUTSIDE", 10_000)[-1] == 10.0


def test_an_address_that_opens_too_many_is_refused_until_it_has_waited() -> None:
    """Those refused are not counted."""
    rates = Rates(address_rate=1.0)
    taken = [rates.rates.refusal_seconds("10.0.0.1") for _ in range(10)]

    assert taken == [0.0] * 10
    assert [round(rates.rates.refusal_seconds("10.0.0.1"), 6) for _ in range(2)] == [1.0, 1.0]
    assert rates.rates.refusal_seconds("10.0.0.2") == 0.0
    rates.clock_ms.now = 11_000
    assert rates.rates.refusal_seconds("10.0.0.1") == 0.0


def test_addresses_without_end_cost_no_memory_without_end() -> None:
    """The oldest make room."""
    rates = Rates(address_rate=1.0).rates
    for number in range(10_100):
        rates.refusal_seconds(str(number))

    assert len(rates._by_address) == 10_000


def test_a_listener_that_pauses_takes_those_who_wait_afterwards() -> None:
    """They are in the kernel's queue meanwhile."""
    with serving(echo) as served:
        pauses = iter([0.2])
        rates: Any = served.network._rates
        rates.pause_seconds = lambda _listener: next(pauses, 0.0)
        began = time.monotonic()
        with served.connect() as first, served.connect() as second:
            for client in (first, second):
                send_frame(client, b"hello")
                assert receive_frame(client) == b"hello"

    assert time.monotonic() - began >= 0.2


def test_a_connection_that_is_refused_is_closed_after_its_pause() -> None:
    """And others are taken meanwhile."""
    with serving(echo) as served:
        refusals = iter([0.2])
        rates: Any = served.network._rates
        rates.refusal_seconds = lambda _address: next(refusals, 0.0)
        began = time.monotonic()
        with served.connect() as refused, served.connect() as taken:
            send_frame(taken, b"hello")
            assert receive_frame(taken) == b"hello"
            assert refused.recv(1) == b""
            # The loop's clock moves in milliseconds.
            assert time.monotonic() - began >= 0.2 - 0.002
            assert served.network.counts.rejected == 1
