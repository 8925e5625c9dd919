"""Options of Java's clients in terms of ours."""

from __future__ import annotations

import pytest

from ottla.client.errors import KafkaConfigurationError
from ottla.client.net.settings import ClientSettings

LOGIN = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="its \\"secret\\"";'


def test_a_file_of_a_java_client_works_here() -> None:
    """Login, kinds of stores and the check of host names are taken as Java writes them."""
    settings = ClientSettings.from_config(
        {
            "bootstrap.servers": "broker:9093",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": LOGIN,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/ca.pem",
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert (settings.sasl_plain_username, settings.sasl_plain_password) == ("alice", 'its "secret"')
    assert settings.ssl_cafile == "/ca.pem"
    assert not settings.ssl_check_hostname


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("ssl.truststore.type", "JKS", "openssl pkcs12"),
        ("ssl.keystore.type", "PKCS12", "openssl pkcs12"),
        ("ssl.endpoint.identification.algorithm", "ldap", "https"),
        ("sasl.jaas.config", 'PlainLoginModule required username="a";', "password"),
        ("sasl.jaas.config", "secret words", "a login is"),
    ],
)
def test_what_has_no_counterpart_is_refused_in_plain_words(key: str, value: str, said: str) -> None:
    """The text says what to do, and repeats nothing of a login."""
    with pytest.raises(KafkaConfigurationError, match=said) as caught:
        ClientSettings.from_config({"bootstrap.servers": "broker", key: value})
    assert "secret" not in str(caught.value)
