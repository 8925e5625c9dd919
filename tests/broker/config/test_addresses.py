"""Listeners, addresses and the other structured values are read strictly."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.config.addresses import (
    Address,
    AddressKind,
    CountsKind,
    DirectoriesKind,
    Endpoint,
    EndpointsKind,
    PrincipalsKind,
    ProtocolMapKind,
    SecurityProtocol,
    ZooKeeperAddresses,
    ZooKeeperKind,
)
from ottla.broker.config.kinds import OptionKind


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("PLAINTEXT://:9092", Endpoint("PLAINTEXT", Address("", 9092))),
        ("external://broker-1.example.com:19092", Endpoint("EXTERNAL", Address("broker-1.example.com", 19092))),
        ("SASL_SSL://0.0.0.0:0", Endpoint("SASL_SSL", Address("0.0.0.0", 0))),
        ("PLAINTEXT://[::1]:9092", Endpoint("PLAINTEXT", Address("::1", 9092))),
        ("PLAINTEXT://[2001:DB8:0::1]:65535", Endpoint("PLAINTEXT", Address("2001:db8::1", 65535))),
        ("PLAINTEXT://[fe80::1%eth0]:9092", Endpoint("PLAINTEXT", Address("fe80::1%eth0", 9092))),
    ],
)
def test_an_endpoint_is_read(text: str, endpoint: Endpoint) -> None:
    """The name is put in upper case, and an IPv6 host loses its brackets."""
    assert EndpointsKind().parse(text) == (endpoint,)
    assert Endpoint.parse(str(endpoint)) == endpoint


def test_several_endpoints_stand_between_commas() -> None:
    """Blanks and a comma at the end do not count."""
    assert EndpointsKind().parse(" A://:1 , B://h:2, ") == (
        Endpoint("A", Address("", 1)),
        Endpoint("B", Address("h", 2)),
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "there is no listener"),
        ("localhost:9092", "does not begin with NAME://"),
        ("://localhost:9092", "does not begin with NAME://"),
        ("MY LISTENER://localhost:9092", "does not begin with NAME://"),
        ("A://localhost", "has no port"),
        ("A://localhost:", "is not host:port"),
        ("A://localhost:http", "is not host:port"),
        ("A://localhost:-1", "is not host:port"),
        ("A://localhost:65536", "above 65535"),
        ("A://::1:9092", "IPv6 host in brackets"),
        ("A://[::1:9092", "IPv6 host in brackets"),
        ("A://[localhost]:9092", "localhost"),
        ("A://[]:9092", "empty"),
        ("A://h/path:9092", "is not host:port"),
        ("A://h:1,a://h:2", "same name"),
    ],
)
def test_a_wrong_endpoint_is_refused_with_the_reason(text: str, reason: str) -> None:
    """The reason names the part that is wrong."""
    with pytest.raises(ValueError, match=reason):
        EndpointsKind().parse(text)


def test_a_protocol_map_gives_each_name_a_protocol() -> None:
    """Names and protocols may be in any case."""
    protocols = ProtocolMapKind().parse("internal:plaintext, EXTERNAL:SASL_SSL")

    assert protocols == {"INTERNAL": SecurityProtocol.PLAINTEXT, "EXTERNAL": SecurityProtocol.SASL_SSL}
    assert ProtocolMapKind().format(protocols) == "INTERNAL:PLAINTEXT,EXTERNAL:SASL_SSL"


@pytest.mark.parametrize("text", ["A", "A:TLS", ":SSL", "A:SSL,a:PLAINTEXT", "A B:SSL"])
def test_a_wrong_protocol_map_is_refused(text: str) -> None:
    """A missing part, an unknown protocol or a name twice is a ValueError."""
    with pytest.raises(ValueError, match=r"NAME:PROTOCOL|twice"):
        ProtocolMapKind().parse(text)


def test_security_protocols_know_their_parts() -> None:
    """TLS and SASL are independent of each other."""
    parts = {protocol.name: (protocol.has_tls, protocol.has_sasl) for protocol in SecurityProtocol}

    assert parts == {
        "PLAINTEXT": (False, False),
        "SSL": (True, False),
        "SASL_PLAINTEXT": (False, True),
        "SASL_SSL": (True, True),
    }


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("zk", ZooKeeperAddresses((Address("zk", 2181),), "")),
        ("zk:2181/", ZooKeeperAddresses((Address("zk", 2181),), "")),
        ("a:1,b:2/kafka/one", ZooKeeperAddresses((Address("a", 1), Address("b", 2)), "/kafka/one")),
        ("[::1]/k", ZooKeeperAddresses((Address("::1", 2181),), "/k")),
    ],
)
def test_a_zookeeper_address_has_servers_and_a_chroot(text: str, addresses: ZooKeeperAddresses) -> None:
    """The port is 2181 if none is given, and the root is no chroot."""
    assert ZooKeeperKind().parse(text) == addresses
    assert ZooKeeperKind().parse(str(addresses)) == addresses


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ZooKeeperKind(), ""),
        (ZooKeeperKind(), "/kafka"),
        (ZooKeeperKind(), ":2181"),
        (ZooKeeperKind(), "zk:2181//kafka"),
        (ZooKeeperKind(), "zk:2181/kafka/"),
        (ZooKeeperKind(), "zk:2181/kafka,zk2:2181 /b"),
        (ZooKeeperKind(), "zk:x"),
        (DirectoriesKind(), ""),
        (DirectoriesKind(), " , "),
        (DirectoriesKind(), "/a,/b,/a/"),
        (PrincipalsKind(), "alice"),
        (PrincipalsKind(), "User:"),
        (CountsKind(), "host"),
        (CountsKind(), "host:-1"),
        (CountsKind(), ":5"),
        (AddressKind(), "9644"),
        (AddressKind(), "[::1]"),
    ],
)
def test_a_wrong_structured_value_is_refused(kind: OptionKind[object], text: str) -> None:
    """No other exception than a ValueError comes out."""
    with pytest.raises(ValueError, match=r".+"):
        kind.parse(text)


def test_other_structured_values_are_read() -> None:
    """Directories, principals, counts and an address that may be missing."""
    assert DirectoriesKind().parse("/a, /b/,") == (Path("/a"), Path("/b"))
    assert PrincipalsKind().parse("User:CN=a,O=b;User:c;") == ("User:CN=a,O=b", "User:c")
    assert CountsKind().parse("10.0.0.1:5,::1:7") == {"10.0.0.1": 5, "::1": 7}
    assert AddressKind().parse("") is None
    assert AddressKind().parse("[::1]:9644") == Address("::1", 9644)
