"""How fast connections may be opened: to a listener, to the broker, and from one address (KIP-612).

    max.connection.creation.rate                        to the broker, except for the listener of the brokers themselves
    listener.name.<name>.max.connection.creation.rate   to a listener
    connection_creation_rate of an address              from that address

A listener beyond its rate accepts no connection for a while; new ones wait in the kernel's queue. An address beyond its
rate is refused, after a pause: clients that are refused at once reconnect at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from ottla.broker.common.clocks import monotonic_ms
from ottla.broker.common.rate import Rate
from ottla.broker.config import BrokerConfig
from ottla.broker.config.option import INT_MAX
from ottla.broker.config.rows.broker import BrokerOptions

# Returns how many connections an address may open a second; None if there is no limit.
AddressRate = Callable[[str], float | None]

_ADDRESSES_MAX: Final = 10_000
_PAUSE_SECONDS_MAX: Final = 10.0


class ConnectionRates:
    """New connections in the last seconds. Belongs to the loop's thread."""

    def __init__(
        self, config: BrokerConfig, address_rate: AddressRate, clock_ms: Callable[[], float] = monotonic_ms
    ) -> None:
        self.config = config
        self._address_rate = address_rate
        self._clock_ms = clock_ms
        self._broker = self._rate()
        self._by_listener: dict[str, Rate] = {}
        # Only of addresses with a limit, the least recent first.
        self._by_address: OrderedDict[str, Rate] = OrderedDict()

    def pause_seconds(self, listener: str) -> float:
        """Count an accepted connection; return for how long the listener must accept no other."""
        now_ms = self._clock_ms()
        config = self.config
        pause_ms = 0.0
        everywhere = config.max_connection_creation_rate
        limit = config.set_for_listener(listener, BrokerOptions.max_connection_creation_rate)
        if limit is not None and limit < INT_MAX:
            rate = self._by_listener.setdefault(listener, self._rate())
            rate.record(1, now_ms)
            pause_ms = rate.excess_ms(limit, now_ms)
        if everywhere < INT_MAX and not config.is_for_brokers_only(listener):
            self._broker.record(1, now_ms)
            pause_ms = max(pause_ms, self._broker.excess_ms(everywhere, now_ms))
        return min(pause_ms / 1000, _PAUSE_SECONDS_MAX)

    def refusal_seconds(self, address: str) -> float:
        """Count a connection from an address and return 0, or return the pause after which to refuse it."""
        limit = self._address_rate(address)
        if limit is None:
            return 0.0
        now_ms = self._clock_ms()
        rate = self._by_address.pop(address, None) or self._rate()
        self._by_address[address] = rate
        if len(self._by_address) > _ADDRESSES_MAX:
            self._by_address.popitem(last=False)
        excess_ms = rate.excess_ms(limit, now_ms, more=1)
        if excess_ms == 0:
            rate.record(1, now_ms)
        return min(excess_ms / 1000, _PAUSE_SECONDS_MAX)

    def _rate(self) -> Rate:
        return Rate(self.config.quota_window_num, self.config.quota_window_size_seconds * 1000.0)
