"""Option values with a structure: listeners, addresses, directories, principals.

In the table they are strings, as in Kafka. In Python they are typed values. A mistake in one is reported with its key
and place, like any other wrong value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from ipaddress import IPv6Address
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

from ottla.broker.config.kinds import ConfigType, OptionKind

ZOOKEEPER_PORT = 2181

_ADDRESS = re.compile(r"(?:\[(?P<ipv6>[A-Za-z0-9:.%_-]*)\]|(?P<host>[A-Za-z0-9._-]{0,253}))(?::(?P<port>[0-9]{1,5}))?")
_LISTENER_NAME = re.compile(r"[A-Za-z0-9_-]+")
_CHROOT = re.compile(r"(/[^/\s]+)+")


class SecurityProtocol(Enum):
    """How a listener protects its connections."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """Whether clients authenticate with SASL."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class Address(Struct, frozen=True):
    """A host and a port. The text has an IPv6 host in brackets, `host` has none; an empty host is every interface."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str, default_port: int | None = None) -> Address:
        """Read `host:port`, or `host` alone if there is a default port."""
        match = _ADDRESS.fullmatch(text)
        if match is None:
            raise ValueError(f'"{text}" is not host:port with an IPv6 host in brackets')
        if match["port"] is None and default_port is None:
            raise ValueError(f'"{text}" has no port')
        port = default_port if match["port"] is None else int(match["port"])
        if port is None or port > 65535:
            raise ValueError(f"port {port} is above 65535")
        if match["ipv6"] is None:
            return cls(match["host"], port)
        return cls(str(IPv6Address(match["ipv6"])), port)


class Endpoint(Struct, frozen=True):
    """An entry of `listeners` or `advertised.listeners`. The listener's name is in upper case."""

    listener_name: str
    address: Address

    def __str__(self) -> str:
        return f"{self.listener_name}://{self.address}"

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """Read `NAME://host:port`."""
        name, separator, address = text.partition("://")
        if not separator or not _LISTENER_NAME.fullmatch(name):
            raise ValueError(f'"{text}" does not begin with NAME://')
        return cls(name.upper(), Address.parse(address))


class Listener(Struct, frozen=True):
    """An endpoint with its security protocol from `listener.security.protocol.map`."""

    name: str
    security_protocol: SecurityProtocol
    host: str
    port: int


class ZooKeeperAddresses(Struct, frozen=True):
    """The servers of an ensemble, and the chroot of the cluster; empty for the root."""

    servers: tuple[Address, ...]
    chroot: str

    def __str__(self) -> str:
        return ",".join(map(str, self.servers)) + self.chroot


class EndpointsKind(OptionKind[tuple[Endpoint, ...]]):
    """Endpoints separated by commas: at least one, and no listener twice."""

    type = ConfigType.STRING

    @property
    def valid(self) -> str:
        return "NAME://host:port, separated by commas"

    def parse(self, text: str) -> tuple[Endpoint, ...]:
        endpoints = tuple(map(Endpoint.parse, _items(text)))
        names = {endpoint.listener_name for endpoint in endpoints}
        if not endpoints:
            raise ValueError("there is no listener")
        if len(names) < len(endpoints):
            raise ValueError("two listeners have the same name")
        return endpoints

    def format(self, value: tuple[Endpoint, ...]) -> str:
        return ",".join(map(str, value))


class ProtocolMapKind(OptionKind[Mapping[str, SecurityProtocol]]):
    """The security protocol of each listener name."""

    type = ConfigType.STRING

    @property
    def valid(self) -> str:
        return f"NAME:PROTOCOL, separated by commas, with {', '.join(SecurityProtocol.__members__)}"

    def parse(self, text: str) -> Mapping[str, SecurityProtocol]:
        protocols: dict[str, SecurityProtocol] = {}
        for item in _items(text):
            name, _, protocol = (part.strip() for part in item.partition(":"))
            if not _LISTENER_NAME.fullmatch(name) or protocol.upper() not in SecurityProtocol.__members__:
                raise ValueError(f'"{item}" is not NAME:PROTOCOL')
            if name.upper() in protocols:
                raise ValueError(f"{name.upper()} is mapped twice")
            protocols[name.upper()] = SecurityProtocol[protocol.upper()]
        return MappingProxyType(protocols)

    def format(self, value: Mapping[str, SecurityProtocol]) -> str:
        return ",".join(f"{name}:{protocol.value}" for name, protocol in value.items())


class AddressKind(OptionKind[Address | None]):
    """One address, or nothing."""

    type = ConfigType.STRING

    @property
    def valid(self) -> str:
        return "host:port, or empty for none"

    def parse(self, text: str) -> Address | None:
        return Address.parse(text) if text else None

    def format(self, value: Address | None) -> str:
        return "" if value is None else str(value)


class ZooKeeperKind(OptionKind[ZooKeeperAddresses]):
    """The connect string of a ZooKeeper ensemble."""

    type = ConfigType.STRING

    @property
    def valid(self) -> str:
        return "host:port, separated by commas, then an optional /chroot"

    def parse(self, text: str) -> ZooKeeperAddresses:
        hosts, slash, path = text.partition("/")
        chroot = slash + path if path else ""
        servers = tuple(Address.parse(item, ZOOKEEPER_PORT) for item in _items(hosts))
        if not servers or not all(server.host for server in servers):
            raise ValueError("a server has no host")
        if chroot and not _CHROOT.fullmatch(chroot):
            raise ValueError(f'"{chroot}" is not a path')
        return ZooKeeperAddresses(servers, chroot)

    def format(self, value: ZooKeeperAddresses) -> str:
        return str(value)


class DirectoriesKind(OptionKind[tuple[Path, ...]]):
    """Directories separated by commas: at least one, and none twice."""

    type = ConfigType.STRING

    @property
    def valid(self) -> str:
        return "directories, separated by commas"

    def parse(self, text: str) -> tuple[Path, ...]:
        directories = tuple(map(Path, _items(text)))
        if not directories:
            raise ValueError("there is no directory")
        if len(set(directories)) < len(directories):
            raise ValueError("a directory is named twice")
        return directories

    def format(self, value: tuple[Path, ...]) -> str:
        return ",".join(map(str, value))


class PrincipalsKind(OptionKind[tuple[str, ...]]):
    """Principals separated by semicolons, because distinguished names contain commas."""

    type = ConfigType.STRING

    @property
    def valid(self) -> str:
        return "Type:name, separated by semicolons"

    def parse(self, text: str) -> tuple[str, ...]:
        principals = _items(text, ";")
        for principal in principals:
            if not re.fullmatch(r"[^:]+:.+", principal):
                raise ValueError(f'"{principal}" is not Type:name')
        return principals

    def format(self, value: tuple[str, ...]) -> str:
        return ";".join(value)


class CountsKind(OptionKind[Mapping[str, int]]):
    """A number for each host."""

    type = ConfigType.STRING

    @property
    def valid(self) -> str:
        return "host:count, separated by commas"

    def parse(self, text: str) -> Mapping[str, int]:
        counts: dict[str, int] = {}
        for item in _items(text):
            host, _, count = item.rpartition(":")
            if not host or not re.fullmatch(r"[0-9]{1,9}", count):
                raise ValueError(f'"{item}" is not host:count')
            counts[host] = int(count)
        return MappingProxyType(counts)

    def format(self, value: Mapping[str, int]) -> str:
        return ",".join(f"{host}:{count}" for host, count in value.items())


def _items(text: str, separator: str = ",") -> tuple[str, ...]:
    """Split as Kafka does here: blanks around items and empty items are ignored."""
    return tuple(item.strip() for item in text.split(separator) if item.strip())
