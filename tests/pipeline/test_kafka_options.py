"""Options that begin with `kafka.`: those of Java's clients, put into ours."""

from __future__ import annotations

import pytest

from ottla.pipeline.sources.errors import SourceOptionError
from ottla.pipeline.sources.kafka_options import kafka_config, reader_settings, writer_settings

SERVERS = {"kafka.bootstrap.servers": "one:9092,two:9092"}


def test_options_lose_their_prefix() -> None:
    """Others are not the client's."""
    config = kafka_config({**SERVERS, "Kafka.client.id": "me", "subscribe": "orders"})

    assert config == {"bootstrap.servers": "one:9092,two:9092", "client.id": "me"}
    assert reader_settings(config).client_id == "me"


def test_options_of_the_other_client_are_passed_over() -> None:
    """One set of options may serve a source and a sink."""
    config = kafka_config({**SERVERS, "kafka.compression.type": "lz4", "kafka.fetch.min.bytes": "7"})

    assert reader_settings(config).fetch_min_bytes == 7
    assert writer_settings(config).compression_type == "lz4"


def test_options_without_effect_here_are_passed_over() -> None:
    """A job that was tuned for Java's consumer still runs."""
    settings = reader_settings(kafka_config({**SERVERS, "kafka.receive.buffer.bytes": "65536"}))

    assert settings.bootstrap_servers == SERVERS["kafka.bootstrap.servers"]


def test_the_login_of_java_becomes_ours() -> None:
    """User and password come out of the JAAS line."""
    login = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="a \\"b\\";";'
    config = kafka_config(
        {
            **SERVERS,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": login,
        }
    )
    settings = reader_settings(config)

    assert (settings.sasl_mechanism, settings.sasl_plain_username) == ("SCRAM-SHA-512", "ann")
    assert settings.sasl_plain_password == 'a "b";'


def test_an_empty_identification_algorithm_skips_the_check_of_the_hostname() -> None:
    """As in Java's clients."""
    config = kafka_config(
        {**SERVERS, "kafka.security.protocol": "SSL", "kafka.ssl.endpoint.identification.algorithm": ""}
    )

    assert not reader_settings(config).ssl_check_hostname


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({}, "kafka.bootstrap.servers is missing"),
        ({**SERVERS, "kafka.auto.offset.reset": "latest"}, "startingOffsets"),
        ({**SERVERS, "kafka.enable.auto.commit": "true"}, "checkpoint"),
        ({**SERVERS, "kafka.value.deserializer": "x"}, "functions of Spark"),
        ({**SERVERS, "kafka.transactional.id": "x"}, "exactlyOnce"),
        ({**SERVERS, "kafka.fetch.min.byte": "1"}, "did you mean kafka.fetch.min.bytes?"),
        ({**SERVERS, "kafka.fetch.min.bytes": "one"}, "whole number"),
        ({**SERVERS, "kafka.bootstrap.servers": "one:nine"}, "not a broker address"),
    ],
)
def test_wrong_options_say_what_to_change(options: dict[str, str], advice: str) -> None:
    """Each message names the option and what to do."""
    with pytest.raises(SourceOptionError) as refused:
        reader_settings(kafka_config(options))

    assert advice in str(refused.value)
