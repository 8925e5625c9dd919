"""`TopicConfig` inherits from the broker, and a topic's own settings come first."""

from __future__ import annotations

import pytest

from ottla.broker.config import BrokerConfig, ConfigError, ConfigSource, Synonym, TopicConfig


def test_a_topic_inherits_what_it_does_not_set() -> None:
    """Broker options under other names and in other units are the defaults."""
    broker = BrokerConfig.of({"log.segment.bytes": "1000", "log.roll.hours": "1", "ottla.log.flush.before.ack": "true"})
    config = TopicConfig(broker, {"max.message.bytes": "77"})

    assert config.segment_bytes == 1000
    assert config.segment_ms == 3_600_000
    assert config.ottla_flush_before_ack is True
    assert config.max_message_bytes == 77
    assert config.cleanup_policy == ("delete",)


@pytest.mark.parametrize(
    ("static", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_retention_follows_the_finest_unit_of_the_broker(static: dict[str, str], retention_ms: int) -> None:
    """A topic's own value comes before all of them."""
    broker = BrokerConfig.of(static)

    assert TopicConfig(broker).retention_ms == retention_ms
    assert TopicConfig(broker, {"retention.ms": "0"}).retention_ms == 0


def test_the_source_of_a_value_is_told_with_all_synonyms() -> None:
    """Topic, dynamic broker, dynamic cluster, static and default, in this order."""
    broker = BrokerConfig.of({"log.retention.hours": "1"}).with_dynamic(
        {"log.retention.ms": "20"}, {"log.retention.ms": "30"}
    )
    resolved = TopicConfig(broker, {"retention.ms": "10"}).resolve("retention.ms")

    assert (resolved.value, resolved.source) == ("10", ConfigSource.TOPIC)
    assert resolved.synonyms == (
        Synonym("retention.ms", "10", ConfigSource.TOPIC),
        Synonym("log.retention.ms", "20", ConfigSource.DYNAMIC_BROKER),
        Synonym("log.retention.ms", "30", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        Synonym("log.retention.hours", "1", ConfigSource.STATIC_BROKER),
        Synonym("log.retention.hours", "168", ConfigSource.DEFAULT),
    )
    inherited = TopicConfig(BrokerConfig.of({"log.retention.hours": "1"})).resolve("retention.ms")
    assert (inherited.value, inherited.source) == ("3600000", ConfigSource.STATIC_BROKER)


def test_options_of_the_same_name_for_topic_and_broker_are_not_mixed_up() -> None:
    """`min.insync.replicas` of a broker is the default of the topic's, not its override."""
    resolved = TopicConfig(BrokerConfig.of({"min.insync.replicas": "2"})).resolve("min.insync.replicas")

    assert resolved.synonyms == (
        Synonym("min.insync.replicas", "2", ConfigSource.STATIC_BROKER),
        Synonym("min.insync.replicas", "1", ConfigSource.DEFAULT),
    )


def test_an_option_without_a_broker_option_has_its_own_default() -> None:
    """Throttled replicas are set for topics only."""
    config = TopicConfig(BrokerConfig(), {"leader.replication.throttled.replicas": "0:1,1:2"})

    assert config.leader_replication_throttled_replicas == ("0:1", "1:2")
    assert config.resolve("follower.replication.throttled.replicas").synonyms == (
        Synonym("follower.replication.throttled.replicas", "", ConfigSource.DEFAULT),
    )


def test_the_old_timestamp_limit_stands_in_for_the_new_ones() -> None:
    """Each of before and after counts for itself where it is set."""
    config = TopicConfig(
        BrokerConfig(), {"message.timestamp.difference.max.ms": "5", "message.timestamp.after.max.ms": "7"}
    )

    assert config.timestamp_before_limit_ms == 5
    assert config.timestamp_after_limit_ms == 7


def test_unknown_names_are_harmless_when_read_and_refused_when_set() -> None:
    """A newer broker may have stored them; nobody may set them here."""
    broker = BrokerConfig()

    assert TopicConfig(broker, {"from.the.future": "x"}).segment_bytes == 1024**3
    with pytest.raises(ConfigError) as caught:
        TopicConfig.validated(
            broker, {"x.y": "1", "log.retention.hours": "1", "segment.bytes": "1", "remote.storage.enable": "x"}
        )
    assert [problem.message for problem in caught.value.problems] == [
        "x.y is not a topic option",
        "log.retention.hours is not a topic option; did you mean retention.ms?",
        'segment.bytes = "1" (topic config): expected type int, at least 14',
    ]
    with pytest.raises(ConfigError, match=r"did you mean retention\.bytes"):
        TopicConfig.validated(broker, {"retention.byte": "1"})
    with pytest.raises(ConfigError, match="is not a topic option"):
        TopicConfig(broker).resolve("log.segment.bytes")


def test_valid_overrides_are_accepted() -> None:
    """The result is the config that the topic will have."""
    config = TopicConfig.validated(BrokerConfig(), {"cleanup.policy": "compact,delete"})

    assert config.cleanup_policy == ("compact", "delete")
    assert config.overrides == {"cleanup.policy": "compact,delete"}


def test_compaction_lags_must_fit_together() -> None:
    """The shortest lag cannot exceed the longest, wherever each is set."""
    broker = BrokerConfig.of({"log.cleaner.max.compaction.lag.ms": "5"})

    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms = 6 must be at most max\.compaction\.lag\.ms = 5"):
        TopicConfig(broker, {"min.compaction.lag.ms": "6"})
