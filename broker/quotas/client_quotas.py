"""How much of the broker each user, client id and address may use.

    producer_byte_rate          users, client ids    bytes of Produce requests a second
    consumer_byte_rate          users, client ids    bytes of records a second in responses to Fetch
    request_percentage          users, client ids    time of the broker's threads, in hundredths of one thread
    controller_mutation_rate    users, client ids    partitions created and deleted a second
    connection_creation_rate    addresses            new connections a second

They are set in ZooKeeper, beside credentials and topics' options, and each broker applies them by itself. Requests
between brokers do not count. A client beyond a quota is answered at once, and the response says how long to wait. Its
connection is not read for that long, whether the client waits or not.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import structlog

from ottla.broker.cluster.znodes import DEFAULT_ENTITY, MalformedNodeError
from ottla.broker.common.clocks import monotonic_ms
from ottla.broker.quotas.limits import Entity, QuotaLimits
from ottla.broker.quotas.usage import MutationQuota, RateQuota, Windows
from ottla.protocol.entity_names import sanitized

if TYPE_CHECKING:
    from ottla.broker.cluster.configs import Configs
    from ottla.broker.config import BrokerConfig

log = structlog.get_logger(__name__)

PRODUCE: Final = "producer_byte_rate"
FETCH: Final = "consumer_byte_rate"
REQUEST: Final = "request_percentage"
MUTATION: Final = "controller_mutation_rate"
CONNECTION: Final = "connection_creation_rate"

USERS, CLIENTS, IPS = "users", "clients", "ips"

# The options of each entity, by type and name as in its path.
_Path = tuple[str, str]


class ClientQuotas:
    """The quotas that are set, and what was used of them. Any thread may ask."""

    def __init__(
        self,
        configs: Configs,
        config: Callable[[], BrokerConfig],
        clock_ms: Callable[[], float] = monotonic_ms,
    ) -> None:
        self._configs = configs
        options = config()
        windows = Windows(options.quota_window_num, options.quota_window_size_seconds * 1000.0)
        # Read for each request: whether any quota is set, apart from those of connections.
        self.is_set = False
        self.produce = RateQuota(windows, clock_ms)
        self.fetch = RateQuota(windows, clock_ms)
        self.request = RateQuota(windows, clock_ms, throttle_ms_max=windows.sample_ms)
        self.mutation = MutationQuota(
            Windows(options.controller_quota_window_num, options.controller_quota_window_size_seconds * 1000.0),
            clock_ms,
        )
        # Connections a second by address as in paths; replaced as a whole.
        self._address_rates: Mapping[str, float] = {}
        # Held while reading from ZooKeeper, so that an older reading does not replace a newer one.
        self._reading = threading.Lock()
        self._set: dict[_Path, Mapping[str, str]] = {}

    def connection_rate(self, address: str) -> float | None:
        """Return how many connections an address may open a second; None if there is no limit."""
        rates = self._address_rates
        if not rates:
            return None
        return rates.get(sanitized(address), rates.get(DEFAULT_ENTITY))

    # Reading the quotas

    def start(self) -> None:
        """Read the quotas, before any request is handled."""
        with self._reading:
            self._set = dict(self._read_all())
            self._apply()

    def entity_changed(self, entity_type: str, name: str) -> None:
        """Read the quotas of a user, a client id or an address again."""
        if entity_type not in (USERS, CLIENTS, IPS):
            return
        with self._reading:
            try:
                self._set[entity_type, name] = self._configs.read(entity_type, name)
            except MalformedNodeError as error:
                log.error("config_unreadable", reason=str(error))
                return
            if not self._set[entity_type, name]:
                del self._set[entity_type, name]
            self._apply()

    def session_expired(self) -> None:
        """Do nothing: what was read last stays in force."""

    def session_renewed(self) -> None:
        """Read everything, because notes of changes may have come and gone meanwhile."""
        self.start()

    def _read_all(self) -> Iterator[tuple[_Path, Mapping[str, str]]]:
        types = [USERS, CLIENTS, IPS]
        types += [f"{USERS}/{user}/{CLIENTS}" for user in self._configs.names(USERS)]
        for entity_type, configs in self._configs.read_types(types, skip_malformed=True).items():
            top, _, below = entity_type.partition("/")
            prefix = f"{below}/" if below else ""
            for name, config in configs.items():
                yield (top, prefix + name), config

    def _apply(self) -> None:
        """Apply the quotas from now on."""
        for key, quota in (
            (PRODUCE, self.produce),
            (FETCH, self.fetch),
            (REQUEST, self.request),
            (MUTATION, self.mutation),
        ):
            quota.set_limits(
                QuotaLimits(
                    {
                        _entity(*path): value
                        for path, config in self._set.items()
                        if path[0] != IPS and (value := _value(path, config, key)) is not None
                    }
                )
            )
        self.is_set = any(quota.is_set for quota in (self.produce, self.fetch, self.request, self.mutation))
        self._address_rates = {
            path[1]: value
            for path, config in self._set.items()
            if path[0] == IPS and (value := _value(path, config, CONNECTION)) is not None
        }


def _entity(entity_type: str, name: str) -> Entity:
    if entity_type == CLIENTS:
        return Entity(client_id=name)
    user, _, client_id = name.partition(f"/{CLIENTS}/")
    return Entity(user, client_id or None)


def _value(path: _Path, config: Mapping[str, str], key: str) -> float | None:
    text = config.get(key)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        log.error("quota_unreadable", entity="/".join(path), quota=key, value=text[:100])
        return None
    return max(value, 0.0)
