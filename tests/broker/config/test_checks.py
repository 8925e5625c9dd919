"""A config with wrong values, or with values that do not fit together, is refused with all reasons at once."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.broker.config import BROKER_OPTIONS, TOPIC_OPTIONS, BrokerConfig, ConfigError, TopicConfig

# Pieces out of which texts come close to being valid.
PIECES = "A B :// : , ; [ ] ::1 %{0} {} / = 0 1 9092 -1 1e5 . PLAINTEXT SSL SASL_SSL PLAIN true"
_texts = st.lists(st.sampled_from(PIECES.split()) | st.text(max_size=3), max_size=6).map("".join)


def problems_of(settings: dict[str, str]) -> list[str]:
    """Give the messages with which a config is refused."""
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.of(settings)
    return [problem.message for problem in caught.value.problems]


def test_a_wrong_value_is_named_with_what_is_allowed_and_its_place() -> None:
    """All wrong values are reported at once, and those of secrets are not shown."""
    assert problems_of({"log.segment.bytes": "13", "compression.type": "zip", "listeners": "A://x"}) == [
        'log.segment.bytes = "13" (given): expected type int, at least 14',
        'compression.type = "zip" (given): expected type string, uncompressed, zstd, lz4, snappy, gzip, producer',
        'listeners = "A://x" (given): expected type string, NAME://host:port, separated by commas; "x" has no port',
    ]
    assert problems_of({"listener.name.plaintext.max.connections": "many"}) == [
        'listener.name.plaintext.max.connections = "many" (given): expected type int, at least 0'
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"replica.fetch.wait.max.ms": "30001", "replica.lag.time.max.ms": "40000"},
            "replica.fetch.wait.max.ms = 30001 (given) must be at most replica.socket.timeout.ms = 30000 (default)",
        ),
        (
            {"replica.lag.time.max.ms": "499"},
            "replica.fetch.wait.max.ms = 500 (default) must be at most replica.lag.time.max.ms = 499 (given)",
        ),
        (
            {"group.max.session.timeout.ms": "1000"},
            "group.min.session.timeout.ms = 6000 (default) must be at most group.max.session.timeout.ms = 1000 (given)",
        ),
        (
            {"queued.max.request.bytes": "1000"},
            "queued.max.request.bytes = 1000 (given) must be at least socket.request.max.bytes = 104857600 (default), "
            "or one request could never be read",
        ),
        (
            {"log.cleaner.threads": "128"},
            "log.cleaner.dedupe.buffer.size = 134217728 (default) must be above 1 MiB for each of "
            "log.cleaner.threads = 128 (given)",
        ),
        (
            {"broker.id": "1001"},
            "broker.id = 1001 (given) must be at most reserved.broker.max.id = 1000 (default), because "
            "broker.id.generation.enable assigns the higher ids",
        ),
        (
            {"broker.id.generation.enable": "false"},
            "broker.id = -1 (default) must be at least 0 with broker.id.generation.enable = false (given)",
        ),
        (
            {"offsets.commit.required.acks": "4"},
            "offsets.commit.required.acks = 4 (given) must be at most offsets.topic.replication.factor = 3 (default)",
        ),
        (
            {"max.connections.per.ip": "0"},
            "max.connections.per.ip = 0 (given) lets nobody connect without max.connections.per.ip.overrides =  "
            "(default)",
        ),
        (
            {"listeners": "PLAINTEXT://0.0.0.0:9092"},
            "clients cannot connect to 0.0.0.0: set advertised.listeners to addresses that they can reach, now "
            "advertised.listeners = PLAINTEXT://0.0.0.0:9092 (given)",
        ),
        (
            {"advertised.listeners": "PLAINTEXT://[::]:9092"},
            "clients cannot connect to ::: set advertised.listeners to addresses that they can reach, now "
            "advertised.listeners = PLAINTEXT://[::]:9092 (given)",
        ),
        (
            {"listeners": "PLAINTEXT://h:1,OTHER://h:2"},
            "listener OTHER has no security protocol in listener.security.protocol.map = PLAINTEXT:PLAINTEXT,SSL:SSL,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL (default)",
        ),
        (
            {"advertised.listeners": "PLAINTEXT://h:1,SSL://h:2"},
            "advertised.listeners = PLAINTEXT://h:1,SSL://h:2 (given) names SSL, which is not among "
            "listeners = PLAINTEXT://:9092 (default)",
        ),
        (
            {
                "listeners": "A://h:1,B://h:1",
                "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
                "inter.broker.listener.name": "A",
            },
            "listeners = A://h:1,B://h:1 (given) uses h:1 twice",
        ),
        (
            {"listeners": "A://h:1", "listener.security.protocol.map": "A:PLAINTEXT"},
            "no listener is named security.inter.broker.protocol = PLAINTEXT (default): set "
            "inter.broker.listener.name to the one for requests between brokers, one of A",
        ),
        (
            {"inter.broker.listener.name": "INTERNAL"},
            "inter.broker.listener.name = INTERNAL (given) is not among the advertised listeners PLAINTEXT",
        ),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "inter.broker.listener.name = PLAINTEXT (given) and security.inter.broker.protocol = PLAINTEXT (given) "
            "cannot both be set: keep the first",
        ),
        (
            {"control.plane.listener.name": "CONTROL"},
            "control.plane.listener.name = CONTROL (given) is not among listeners = PLAINTEXT://:9092 (default)",
        ),
        (
            {"control.plane.listener.name": "PLAINTEXT"},
            "control.plane.listener.name = PLAINTEXT (given) must not be the listener for other requests between "
            "brokers",
        ),
        (
            {"listeners": "PLAINTEXT://h:1,SSL://h:2"},
            "listener SSL has TLS but no key: set ssl.keystore.location or ssl.keystore.key",
        ),
        (
            {"listeners": "PLAINTEXT://h:1,SASL_PLAINTEXT://h:2"},
            "listener SASL_PLAINTEXT has SASL but no mechanism: set sasl.enabled.mechanisms",
        ),
        (
            {
                "listeners": "SASL_PLAINTEXT://h:2",
                "security.inter.broker.protocol": "SASL_PLAINTEXT",
                "sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-256",
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            },
            "listener SASL_PLAINTEXT is for requests between brokers: set sasl.mechanism.inter.broker.protocol to one "
            "of its mechanisms, OAUTHBEARER, SCRAM-SHA-256",
        ),
        (
            {
                "listeners": "SASL_PLAINTEXT://h:2",
                "security.inter.broker.protocol": "SASL_PLAINTEXT",
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
            },
            "listener SASL_PLAINTEXT would accept unencrypted passwords: use SASL_SSL or SCRAM, or set "
            "ottla.sasl.plain.allow.without.tls=true if this is what you want",
        ),
        (
            {"log.cleaner.max.compaction.lag.ms": "5", "log.cleaner.min.compaction.lag.ms": "6"},
            "log.cleaner.min.compaction.lag.ms = 6 (given) must be at most log.cleaner.max.compaction.lag.ms = 5 "
            "(given)",
        ),
        (
            {"socket.connection.setup.timeout.ms": "30001"},
            "socket.connection.setup.timeout.ms = 30001 (given) must be at most "
            "socket.connection.setup.timeout.max.ms = 30000 (default)",
        ),
    ],
)
def test_options_that_do_not_fit_together_are_refused(settings: dict[str, str], message: str) -> None:
    """The message names both options with their values and places."""
    assert problems_of(settings) == [message]


def test_a_check_stays_silent_about_an_option_that_could_not_be_read() -> None:
    """The default in its place would make a misleading second message."""
    assert len(problems_of({"replica.lag.time.max.ms": "x", "replica.fetch.wait.max.ms": "30000"})) == 1
    assert len(problems_of({"listeners": "x", "inter.broker.listener.name": "INTERNAL"})) == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"listeners": "PLAINTEXT://:0", "advertised.listeners": "PLAINTEXT://h:9092"},
        {"listeners": "PLAINTEXT://0.0.0.0:1", "advertised.listeners": "PLAINTEXT://h:9092"},
        {"queued.max.request.bytes": "0"},
        {"broker.id": "5000", "broker.id.generation.enable": "false"},
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"},
        {
            "listeners": "SASL_SSL://h:1",
            "security.inter.broker.protocol": "SASL_SSL",
            "listener.name.sasl_ssl.ssl.keystore.key": "PEM",
            "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        },
    ],
)
def test_unusual_but_right_combinations_are_accepted(settings: dict[str, str]) -> None:
    """The checks refuse nothing that works."""
    assert BrokerConfig.of(settings).warnings == ()


@examples(150)
@given(st.dictionaries(st.sampled_from(list(BROKER_OPTIONS)) | st.text(max_size=10), _texts, max_size=8))
def test_no_broker_settings_cause_another_exception(settings: dict[str, str]) -> None:
    """Whatever the names and values are, there is a config with its listeners, or a ConfigError."""
    with suppress(ConfigError):
        config = BrokerConfig.of(settings)
        assert config.inter_broker_listener in config.public_listeners
        assert len(config.bound_listeners) == len(config.listeners)


@examples(100)
@given(st.dictionaries(st.sampled_from(list(TOPIC_OPTIONS)) | st.text(max_size=10), _texts, max_size=8))
def test_no_topic_settings_cause_another_exception(overrides: dict[str, str]) -> None:
    """Whatever the names and values are, there is a config, or a ConfigError."""
    with suppress(ConfigError):
        TopicConfig.validated(BrokerConfig(), overrides)
