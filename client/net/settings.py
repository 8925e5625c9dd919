"""Settings that producer, consumer and admin share, and how settings are read from keyword arguments and files.

The fields of a settings class are the list of its options, with their defaults and documentation. Their names are those
of aiokafka and kafka-python; the dotted names of Kafka's own configuration are made from them, except for the few in
`DOTTED_NAMES`. Beside each settings class stands a TypedDict with the same names and types, for the signatures of the
clients; a test compares the two.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Self, TypedDict, get_args

from ottla.client.errors import KafkaConfigurationError
from ottla.client.net.java_options import without_java_options

if TYPE_CHECKING:
    from ssl import SSLContext

    from ottla.client.net.client_metrics import StatisticsCallback

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
IsolationLevel = Literal["read_uncommitted", "read_committed"]

# Options by their dotted names, or the .properties file that has them.
Config = Mapping[str, Any] | Path | str

PORT_DEFAULT: Final = 9092
SECONDS: Final = 1000
MINUTES: Final = 60 * SECONDS
KiB: Final = 1024
MiB: Final = 1024 * KiB
_BOOLEANS: Final = {"true": True, "false": False}


class HostPort(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ClientOptions(TypedDict, total=False):
    """The keyword arguments that all clients take: the fields of ClientSettings, for editors and type checkers."""

    bootstrap_servers: str | Sequence[str]
    client_id: str
    request_timeout_ms: int
    connect_timeout_ms: int
    default_api_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    metadata_max_age_ms: int
    connections_max_idle_ms: int
    security_protocol: SecurityProtocol
    ssl_context: SSLContext | None
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_password: str | None
    ssl_check_hostname: bool
    sasl_mechanism: SaslMechanism
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_scram_token_auth: bool
    sasl_oauth_token_provider: Callable[[], Awaitable[str]] | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_client_id: str | None
    sasl_oauthbearer_client_secret: str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_cafile: str | None
    statistics_callback: StatisticsCallback | None
    statistics_interval_ms: int


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """Where the cluster is, who we are, and how patient; times are in milliseconds."""

    bootstrap_servers: str | Sequence[str] = "localhost:9092"
    """Brokers to ask first, as `host:port`: a list, or text with commas. The client learns of the others from them."""
    client_id: str = "ottla"
    """The name under which brokers log this client and apply quotas to it."""
    request_timeout_ms: int = 30 * SECONDS
    """How long to wait for the response to one request."""
    connect_timeout_ms: int = 10 * SECONDS
    """How long connecting may take, with TLS and login."""
    default_api_timeout_ms: int = 60 * SECONDS
    """How long a call that retries by itself may take in all, such as the calls of Admin."""
    retry_backoff_ms: int = 100
    """The pause before the first retry of a request; it doubles with each failure."""
    retry_backoff_max_ms: int = 1 * SECONDS
    """The longest pause between two retries."""
    reconnect_backoff_ms: int = 50
    """The pause before a broker is connected to again; it doubles with each failure."""
    reconnect_backoff_max_ms: int = 1 * SECONDS
    """The longest pause between two attempts to connect to a broker."""
    metadata_max_age_ms: int = 5 * MINUTES
    """Metadata is refreshed at this age, even if nothing shows that it is out of date."""
    connections_max_idle_ms: int = 9 * MINUTES
    """Connections that were not used for this long are closed."""
    security_protocol: SecurityProtocol = "PLAINTEXT"
    """Whether connections use TLS, SASL, or both."""
    ssl_context: SSLContext | None = None
    """The TLS context to use; without one, it is made from the files below."""
    ssl_cafile: str | None = None
    """Certificates to trust, as a PEM file; the default is those of the system."""
    ssl_certfile: str | None = None
    """The client's own certificate, as a PEM file, for brokers that ask for one."""
    ssl_keyfile: str | None = None
    """The private key of the client's certificate, as a PEM file."""
    ssl_password: str | None = dataclasses.field(default=None, repr=False)
    """The password of the private key."""
    ssl_check_hostname: bool = True
    """Whether a broker's certificate must be for the host name that was connected to."""
    sasl_mechanism: SaslMechanism = "PLAIN"
    """How to log in, with a security_protocol that has SASL."""
    sasl_plain_username: str | None = None
    """The user name, for PLAIN and SCRAM."""
    sasl_plain_password: str | None = dataclasses.field(default=None, repr=False)
    """The password, for PLAIN and SCRAM."""
    sasl_scram_token_auth: bool = False
    """Whether user name and password are the id and the HMAC of a delegation token, for SCRAM."""
    sasl_oauth_token_provider: Callable[[], Awaitable[str]] | None = None
    """Returns a token for OAUTHBEARER; called for each new connection."""
    sasl_oauthbearer_token_endpoint_url: str | None = None
    """Where to get tokens for OAUTHBEARER, with the two options below, if there is no provider."""
    sasl_oauthbearer_client_id: str | None = None
    """The name of this client at the token endpoint."""
    sasl_oauthbearer_client_secret: str | None = dataclasses.field(default=None, repr=False)
    """The secret of this client at the token endpoint."""
    sasl_oauthbearer_scope: str | None = None
    """The scope to ask for at the token endpoint."""
    sasl_oauthbearer_cafile: str | None = None
    """Certificates to trust at the token endpoint, as a PEM file; the default is those of the system."""
    statistics_callback: StatisticsCallback | None = None
    """Called with the same as metrics() returns, at intervals, on the client's event loop; may be a coroutine."""
    statistics_interval_ms: int = 1 * MINUTES
    """The time between two calls of statistics_callback."""

    DOTTED_NAMES: ClassVar[Mapping[str, str]] = {
        "socket.connection.setup.timeout.ms": "connect_timeout_ms",
        "ssl.ca.location": "ssl_cafile",
        "ssl.certificate.location": "ssl_certfile",
        "ssl.key.location": "ssl_keyfile",
        "ssl.key.password": "ssl_password",
        "ssl.truststore.location": "ssl_cafile",
        "ssl.keystore.location": "ssl_certfile",
        "sasl.username": "sasl_plain_username",
        "sasl.password": "sasl_plain_password",
        "sasl.mechanisms": "sasl_mechanism",
        "metadata.broker.list": "bootstrap_servers",
        "https.ca.location": "sasl_oauthbearer_cafile",
    }

    def __post_init__(self) -> None:
        """Raise KafkaConfigurationError for values that cannot work."""
        _ = self.addresses
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name.endswith(("_ms", "_bytes")) and (not isinstance(value, int) or value < 0):
                raise KafkaConfigurationError(f"{field.name} must be a whole number of at least 0, not {value!r}")
        if self.statistics_callback is not None and not self.statistics_interval_ms:
            raise KafkaConfigurationError("statistics_callback needs a statistics_interval_ms of at least 1")
        self._check_choice("security_protocol", get_args(SecurityProtocol))
        self._check_choice("sasl_mechanism", get_args(SaslMechanism))
        if self.uses_sasl and self.sasl_mechanism == "OAUTHBEARER":
            if self.sasl_oauth_token_provider is None:
                # The provider keeps its token, so all connections of a client share it.
                object.__setattr__(self, "sasl_oauth_token_provider", self._token_provider())
        elif self.uses_sasl and self.sasl_scram_token_auth and self.sasl_mechanism == "PLAIN":
            raise KafkaConfigurationError("delegation tokens need sasl_mechanism SCRAM-SHA-256 or SCRAM-SHA-512")
        elif self.uses_sasl and not (self.sasl_plain_username and self.sasl_plain_password):
            raise KafkaConfigurationError(f"{self.sasl_mechanism} needs sasl_plain_username and sasl_plain_password")

    def _token_provider(self) -> Callable[[], Awaitable[str]]:
        import asyncio

        from ottla.client.net.security.endpoint import check_url
        from ottla.client.net.security.token_endpoint import ClientCredentials, TokenEndpoint

        url, client_id = self.sasl_oauthbearer_token_endpoint_url, self.sasl_oauthbearer_client_id
        if url is None:
            raise KafkaConfigurationError(
                "OAUTHBEARER needs sasl_oauth_token_provider, or sasl_oauthbearer_token_endpoint_url"
            )
        if client_id is None or self.sasl_oauthbearer_client_secret is None:
            raise KafkaConfigurationError(
                "a token endpoint needs sasl_oauthbearer_client_id and sasl_oauthbearer_client_secret"
            )
        try:
            check_url(url)
        except ValueError as error:
            raise KafkaConfigurationError(f"sasl_oauthbearer_token_endpoint_url: {error}") from error
        endpoint = TokenEndpoint(
            ClientCredentials(
                url,
                client_id,
                self.sasl_oauthbearer_client_secret,
                self.sasl_oauthbearer_scope,
                self.sasl_oauthbearer_cafile,
            )
        )
        return lambda: asyncio.to_thread(endpoint.token)

    def _check_choice(self, name: str, choices: Sequence[object]) -> None:
        value = getattr(self, name)
        if value not in choices:
            raise KafkaConfigurationError(f"{name} must be one of {', '.join(map(str, choices))}, not {value!r}")

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether connections begin with a SASL exchange."""
        return self.security_protocol.startswith("SASL_")

    @property
    def addresses(self) -> list[HostPort]:
        """The bootstrap servers; KafkaConfigurationError if they are not valid."""
        given = self.bootstrap_servers
        servers = given.split(",") if isinstance(given, str) else given
        addresses = [parse_address(server) for server in servers if server.strip()]
        if not addresses:
            raise KafkaConfigurationError("bootstrap_servers names no broker")
        return addresses

    @classmethod
    def from_kwargs(cls, options: Mapping[str, Any]) -> Self:
        """Take keyword arguments; KafkaConfigurationError for a name that is not an option."""
        names = {field.name for field in dataclasses.fields(cls)}
        for name in options:
            if name not in names:
                raise _unknown(name, names)
        return cls(**options)

    @classmethod
    def from_config(cls, config: Config, **overrides: Any) -> Self:
        """Take options with dotted names, from a mapping or a .properties file; values may be text."""
        return cls.from_kwargs(cls.kwargs_from_config(config, overrides))

    @classmethod
    def kwargs_from_config(cls, config: Config, overrides: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Turn dotted names into keyword arguments, and text into typed values; `overrides` are already that."""
        if not isinstance(config, Mapping):
            config = read_properties(Path(config))
        fields = {field.name: field for field in dataclasses.fields(cls)}
        kwargs: dict[str, Any] = {}
        for key, value in without_java_options(config).items():
            name = cls.DOTTED_NAMES.get(key, key.replace(".", "_"))
            if name not in fields:
                raise _unknown(key, {known.replace("_", ".") for known in fields} | set(cls.DOTTED_NAMES))
            kwargs[name] = _parsed(key, value, str(fields[name].type)) if isinstance(value, str) else value
        return {**kwargs, **(overrides or {})}


def parse_address(text: str) -> HostPort:
    """Read `host`, `host:port` or `[ipv6]:port`; a listener's `PROTOCOL://` in front is allowed."""
    rest = text.strip().rpartition("://")[2]
    if rest.startswith("["):
        host, bracket, port = rest[1:].partition("]")
        port = port.removeprefix(":")
        is_address = bool(bracket)
    else:
        host, _, port = rest.partition(":")
        is_address = ":" not in port
    if not host or not is_address or not ((port.isascii() and port.isdigit()) or port == ""):
        raise KafkaConfigurationError(f"{text!r} is not a broker address: write host:port or [ipv6]:port")
    number = int(port or PORT_DEFAULT)
    if not 0 < number < 1 << 16:
        raise KafkaConfigurationError(f"{text!r}: there is no port {number}")
    return HostPort(host, number)


def read_properties(path: Path) -> dict[str, str]:
    """Read a .properties file; KafkaConfigurationError if it is missing or not valid."""
    from ottla.client.net.properties import parse_properties

    try:
        return {key: value for key, value, _ in parse_properties(path.read_bytes())}
    except (OSError, ValueError) as error:
        raise KafkaConfigurationError(f"cannot read {path}: {error}") from error


def _parsed(key: str, text: str, annotation: str) -> object:
    """Convert text to the type in the field's annotation."""
    text = text.strip()
    if annotation.startswith("bool"):
        if text.lower() not in _BOOLEANS:
            raise KafkaConfigurationError(f"{key} must be true or false, not {text!r}")
        return _BOOLEANS[text.lower()]
    if annotation.startswith("int"):
        try:
            return int(text)
        except ValueError:
            if "|" not in annotation:
                raise KafkaConfigurationError(f"{key} must be a whole number, not {text!r}") from None
    return text


def _unknown(name: str, known: set[str]) -> KafkaConfigurationError:
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    return KafkaConfigurationError(f"there is no option {name}" + (f"; did you mean {close[0]}?" if close else ""))
