"""Settings from keyword arguments, mappings with dotted names, and files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.errors import KafkaConfigurationError
from ottla.client.net.settings import ClientSettings, HostPort, parse_address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("host", ("host", 9092)),
        (" host:1 ", ("host", 1)),
        ("[::1]:9093", ("::1", 9093)),
        ("[::1]", ("::1", 9092)),
        ("PLAINTEXT://host:5", ("host", 5)),
    ],
)
def test_addresses_are_hosts_with_or_without_a_port(text: str, expected: tuple[str, int]) -> None:
    """As text they read back the same."""
    address = parse_address(text)

    assert address == expected
    assert parse_address(str(address)) == address


@given(st.text(max_size=20))
def test_any_other_text_is_a_configuration_error(text: str) -> None:
    """Never another exception."""
    try:
        address = parse_address(text)
    except KafkaConfigurationError:
        return
    assert 0 < address.port < 65536


def test_bootstrap_servers_are_a_text_or_a_list() -> None:
    """Both ways of other clients."""
    expected = [HostPort("a", 1), HostPort("b", 9092)]

    assert ClientSettings(bootstrap_servers="a:1, b").addresses == expected
    assert ClientSettings(bootstrap_servers=["a:1", "b"]).addresses == expected


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"bootstrap_servers": ""}, "names no broker"),
        ({"bootstrap_servers": "host:http"}, "write host:port"),
        ({"bootstrap_servers": "host:0"}, "there is no port 0"),
        ({"request_timeout_ms": -1}, "request_timeout_ms must be"),
        ({"request_timeout_ms": "1"}, "request_timeout_ms must be"),
        ({"security_protocol": "TLS"}, "security_protocol must be one of PLAINTEXT"),
        ({"security_protocol": "SASL_SSL"}, "PLAIN needs sasl_plain_username"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}, "sasl_oauth_token_provider"),
        ({"sasl_mechanism": "GSSAPI"}, "sasl_mechanism must be one of"),
        ({"bootstrap_server": "host"}, "there is no option bootstrap_server; did you mean bootstrap_servers?"),
        ({"colour": "red"}, "there is no option colour"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(options: dict[str, Any], reason: str) -> None:
    """Before anything is connected."""
    with pytest.raises(KafkaConfigurationError, match=re.escape(reason)):
        ClientSettings.from_kwargs(options)


def test_dotted_names_and_texts_make_the_same_settings(tmp_path: Path) -> None:
    """From a mapping or from a file; Kafka's names and librdkafka's."""
    expected = ClientSettings(
        bootstrap_servers="a:1",
        request_timeout_ms=5,
        connect_timeout_ms=6,
        security_protocol="SASL_SSL",
        ssl_cafile="ca.pem",
        ssl_check_hostname=False,
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username="me",
        sasl_plain_password="secret",
    )
    config = {
        "bootstrap.servers": "a:1",
        "request.timeout.ms": "5",
        "socket.connection.setup.timeout.ms": "6",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "ca.pem",
        "ssl.check.hostname": "False",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "me",
        "sasl.password": "secret",
    }
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key} = {value}\n" for key, value in config.items()))

    assert ClientSettings.from_config(config) == expected
    assert ClientSettings.from_config(file) == expected
    assert ClientSettings.from_config(str(file), client_id="x").client_id == "x"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"request.timeout.ms": "soon"}, "request.timeout.ms must be a whole number, not 'soon'"),
        ({"ssl.check.hostname": "yes"}, "ssl.check.hostname must be true or false"),
        ({"request.timeot.ms": "1"}, "did you mean request.timeout.ms?"),
        (Path("missing.properties"), "cannot read missing.properties"),
    ],
)
def test_a_bad_config_names_the_key(config: Any, reason: str) -> None:
    """By the name that it has in the file."""
    with pytest.raises(KafkaConfigurationError, match=re.escape(reason)):
        ClientSettings.from_config(config)


def test_secrets_are_not_shown() -> None:
    """Settings end up in logs."""
    assert "secret" not in repr(ClientSettings(sasl_plain_password="secret", ssl_password="secret"))
