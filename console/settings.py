"""The settings of the console, and the combinations that would be unsafe."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from ottla.client.errors import KafkaConfigurationError
from ottla.client.net.settings import ClientSettings

# What a stream carries: events of the cluster, or records.
Stream = Literal["sse", "ndjson"]
PORT_DEFAULT: Final = 8080
_LOCALHOST: Final = "localhost"
# Users bring these themselves.
_CREDENTIALS: Final = ("sasl_plain_username", "sasl_plain_password")
# Nobody waits longer for a page.
_PATIENCE: Final = {"default_api_timeout_ms": 10_000, "request_timeout_ms": 8_000, "connect_timeout_ms": 3_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """Where the console listens, for whom, and which cluster it shows."""

    client: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The keyword arguments of a client, without a user."""
    host: str = "127.0.0.1"
    port: int = PORT_DEFAULT
    is_read_only: bool = False
    hides_records: bool = False
    """Whether keys, values and headers of records are never shown."""
    is_open: bool = False
    """Whether everybody who reaches the port may use it, with the rights of an anonymous user."""
    public_url: str | None = None
    """How browsers reach the console, if not under its own address: behind a proxy, or from other machines."""
    certificate: str | None = None
    """PEM files for TLS on the console's own port."""
    key: str | None = None
    schema_registry_url: str | None = None
    sessions_max: int = 64
    event_streams_max: int = 64
    """Every visible tab has one."""
    record_streams_max: int = 16
    """Live tails, reads and exports; each holds records in memory."""
    session_idle_s: float = 30 * 60
    session_age_s: float = 12 * 60 * 60

    def __post_init__(self) -> None:
        """Raise KafkaConfigurationError for settings that would expose the cluster."""
        if self.public_url is not None:
            parts = urlsplit(self.public_url)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
                raise KafkaConfigurationError(f"--public-url takes http(s)://HOST[:PORT][/PATH], not {self.public_url}")
        if (self.certificate is None) != (self.key is None):
            raise KafkaConfigurationError("--certificate and --key go together")
        if is_loopback(self.host):
            return
        if self.public_url is None:
            raise KafkaConfigurationError(
                f"on {self.host} other machines can reach the console: give the address that browsers use with "
                "--public-url"
            )
        if not self.needs_login and not self.is_open:
            raise KafkaConfigurationError(
                f"on {self.host} everybody could change the cluster, because it asks for no password: listen on "
                "127.0.0.1, or allow that with --open"
            )
        if self.needs_login and not self.is_secure and not is_loopback(urlsplit(self.public_url).hostname or ""):
            raise KafkaConfigurationError(
                "passwords would cross the network in the clear: give --certificate and --key, or an https --public-url"
            )

    @property
    def needs_login(self) -> bool:
        """Whether users log in: the cluster asks clients for a user and a password."""
        return str(self.client.get("security_protocol", "")).startswith("SASL_")

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach the console over TLS."""
        return self.certificate is not None or (self.public_url or "").startswith("https:")

    @property
    def base_path(self) -> str:
        """The path below which a proxy serves the console; it ends with a slash."""
        return (urlsplit(self.public_url).path.rstrip("/") if self.public_url else "") + "/"

    @property
    def host_names(self) -> frozenset[str]:
        """The host names that requests may carry."""
        names = {_LOCALHOST, "127.0.0.1", "::1"}
        if self.public_url:
            names.add((urlsplit(self.public_url).hostname or "").lower())
        elif self.host:
            names.add(self.host.lower())
        return frozenset(names)

    @property
    def mechanism(self) -> str:
        """How users log in, unless they choose another mechanism."""
        return str(self.client.get("sasl_mechanism", "PLAIN"))

    def client_for(self, user: str | None, password: str | None, mechanism: str | None = None) -> dict[str, Any]:
        """Return the keyword arguments of a client that acts as a user."""
        names = {each.name for each in dataclasses.fields(ClientSettings)}
        kwargs = {name: value for name, value in self.client.items() if name in names and name not in _CREDENTIALS}
        kwargs |= {name: min(kwargs.get(name, limit), limit) for name, limit in _PATIENCE.items()}
        kwargs["client_id"] = "ottla-console"
        if user is not None:
            kwargs |= {"sasl_plain_username": user, "sasl_plain_password": password}
            kwargs["sasl_mechanism"] = mechanism or self.mechanism
        return kwargs


def is_loopback(host: str) -> bool:
    """Whether an address can be reached only from this machine."""
    if host.lower() == _LOCALHOST:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
