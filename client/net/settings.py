"""Settings that producer, consumer and admin share, and how settings are read from keyword arguments and files.

The fields of a settings class are the list of its options: their names are those of aiokafka and kafka-python, and the
dotted names of Kafka's own configuration are made of them, but for the few in `DOTTED_NAMES`.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Self, get_args

from ottla.client.errors import KafkaConfigurationError
from ottla.client.net.java_options import without_java_options

if TYPE_CHECKING:
    from ssl import SSLContext

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
IsolationLevel = Literal["read_uncommitted", "read_committed"]

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


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """Where the cluster is, who we are, and how patient; times are in milliseconds."""

    bootstrap_servers: str | Sequence[str] = "localhost:9092"
    client_id: str = "ottla"
    request_timeout_ms: int = 30 * SECONDS
    connect_timeout_ms: int = 10 * SECONDS
    # How long a call that retries by itself, such as those of Admin, may take in all.
    default_api_timeout_ms: int = 60 * SECONDS
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1 * SECONDS
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1 * SECONDS
    metadata_max_age_ms: int = 5 * MINUTES
    connections_max_idle_ms: int = 9 * MINUTES
    security_protocol: SecurityProtocol = "PLAINTEXT"
    # Made of the files below when it is not given.
    ssl_context: SSLContext | None = None
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_password: str | None = dataclasses.field(default=None, repr=False)
    ssl_check_hostname: bool = True
    sasl_mechanism: SaslMechanism = "PLAIN"
    sasl_plain_username: str | None = None
    sasl_plain_password: str | None = dataclasses.field(default=None, repr=False)
    # Returns the token for OAUTHBEARER, anew for each connection.
    sasl_oauth_token_provider: Callable[[], Awaitable[str]] | None = None

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
    }

    def __post_init__(self) -> None:
        """Refuse what cannot work, with KafkaConfigurationError."""
        _ = self.addresses
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name.endswith(("_ms", "_bytes")) and (not isinstance(value, int) or value < 0):
                raise KafkaConfigurationError(f"{field.name} must be a whole number from 0, not {value!r}")
        self._check_choice("security_protocol", get_args(SecurityProtocol))
        self._check_choice("sasl_mechanism", get_args(SaslMechanism))
        if self.uses_sasl and self.sasl_mechanism == "OAUTHBEARER":
            if self.sasl_oauth_token_provider is None:
                raise KafkaConfigurationError("OAUTHBEARER needs sasl_oauth_token_provider")
        elif self.uses_sasl and not (self.sasl_plain_username and self.sasl_plain_password):
            raise KafkaConfigurationError(f"{self.sasl_mechanism} needs sasl_plain_username and sasl_plain_password")

    def _check_choice(self, name: str, choices: Sequence[object]) -> None:
        value = getattr(self, name)
        if value not in choices:
            raise KafkaConfigurationError(f"{name} is one of {', '.join(map(str, choices))}, not {value!r}")

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
        """The bootstrap servers; KafkaConfigurationError where they do not make sense."""
        given = self.bootstrap_servers
        servers = given.split(",") if isinstance(given, str) else given
        addresses = [parse_address(server) for server in servers if server.strip()]
        if not addresses:
            raise KafkaConfigurationError("bootstrap_servers names no broker")
        return addresses

    @classmethod
    def from_kwargs(cls, settings: Mapping[str, Any]) -> Self:
        """Take keyword arguments; KafkaConfigurationError for a name that is not an option."""
        names = {field.name for field in dataclasses.fields(cls)}
        for name in settings:
            if name not in names:
                raise _unknown(name, names)
        return cls(**settings)

    @classmethod
    def from_config(cls, config: Mapping[str, Any] | Path | str, **overrides: Any) -> Self:
        """Take dotted names, from a mapping or a .properties file; values may be text."""
        return cls.from_kwargs(cls.kwargs_from_config(config) | overrides)

    @classmethod
    def kwargs_from_config(cls, config: Mapping[str, Any] | Path | str) -> dict[str, Any]:
        """Turn dotted names into keyword arguments, and text into what the option is."""
        if not isinstance(config, Mapping):
            config = read_properties(Path(config))
        fields = {field.name: field for field in dataclasses.fields(cls)}
        kwargs = {}
        for key, value in without_java_options(config).items():
            name = cls.DOTTED_NAMES.get(key, key.replace(".", "_"))
            if name not in fields:
                raise _unknown(key, {known.replace("_", ".") for known in fields} | set(cls.DOTTED_NAMES))
            kwargs[name] = _parsed(key, value, str(fields[name].type)) if isinstance(value, str) else value
        return kwargs


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
        raise KafkaConfigurationError(f"{text!r} is not the address of a broker: write host:port, or [ipv6]:port")
    number = int(port or PORT_DEFAULT)
    if not 0 < number < 1 << 16:
        raise KafkaConfigurationError(f"{text!r}: there is no port {number}")
    return HostPort(host, number)


def read_properties(path: Path) -> dict[str, str]:
    """Read a .properties file; KafkaConfigurationError where there is none, or it does not parse."""
    import javaproperties

    try:
        with path.open("rb") as file:
            return dict(javaproperties.load(file))
    except (OSError, ValueError) as error:
        raise KafkaConfigurationError(f"cannot read {path}: {error}") from error


def _parsed(key: str, text: str, annotation: str) -> object:
    """Read a value by the annotation of its field; text where that is what the field takes."""
    text = text.strip()
    if annotation.startswith("bool"):
        if text.lower() not in _BOOLEANS:
            raise KafkaConfigurationError(f"{key} is true or false, not {text!r}")
        return _BOOLEANS[text.lower()]
    if annotation.startswith("int"):
        try:
            return int(text)
        except ValueError:
            if "|" not in annotation:
                raise KafkaConfigurationError(f"{key} is a whole number, not {text!r}") from None
    return text


def _unknown(name: str, known: set[str]) -> KafkaConfigurationError:
    close = difflib.get_close_matches(name, known, n=1)
    return KafkaConfigurationError(f"there is no option {name}" + (f"; did you mean {close[0]}?" if close else ""))
