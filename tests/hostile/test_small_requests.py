"""Small requests that ask for much: refused before anything is built for them."""

from __future__ import annotations

import contextlib
import time
from types import SimpleNamespace
from typing import Any

import pytest
from tests.hostile.attacked import AttackedBroker, attacked_broker

from ottla.broker.cluster.topics import Topics, TopicSpec
from ottla.broker.config import BrokerConfig, TopicConfig
from ottla.broker.config.kinds import Double
from ottla.broker.config.layers import ConfigError
from ottla.broker.groups.consumer.topic_pattern import TopicPattern
from ottla.broker.groups.consumer.topic_pattern_parser import PatternError
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest

SECONDS_MAX = 1.0


def topics(**options: str) -> Topics:
    """Topics on one broker, without any in ZooKeeper."""
    config = BrokerConfig.of({name.replace("_", "."): value for name, value in options.items()})
    zookeeper: Any = SimpleNamespace(exists=lambda _path: None, children=lambda _path: [])
    metadata: Any = SimpleNamespace(snapshot=SimpleNamespace(brokers={1: SimpleNamespace(id=1, rack=None)}))
    return Topics(zookeeper, metadata, lambda: config)


@pytest.mark.parametrize("count", [10_001, 200_000])
def test_a_topic_of_too_many_partitions_is_refused_before_they_are_placed(count: int) -> None:
    """Also when it is only validated, and when the client has placed them itself."""
    for wanted in (TopicSpec("t", count, 1), TopicSpec("t", assignment={key: [1] for key in range(count)})):
        begun = time.thread_time()
        with pytest.raises(KafkaError) as refused:
            topics().create(wanted, validate_only=True)
        assert refused.value.code is ErrorCode.INVALID_PARTITIONS
        assert time.thread_time() - begun < SECONDS_MAX / 10
    assert len(topics().create(TopicSpec("t", 10_000, 1), validate_only=True).assignment) == 10_000


def test_a_topic_is_not_enlarged_beyond_the_limit() -> None:
    """The number is the first thing that is looked at; ZooKeeper is not even asked."""
    for given in (None, [[1]] * 11):
        with pytest.raises(KafkaError) as refused:
            topics(ottla_topic_max_partitions="10").add_partitions("t", 11, given)
        assert refused.value.code is ErrorCode.INVALID_PARTITIONS


@pytest.fixture(scope="module")
def open_broker(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A broker on which everybody may do everything."""
    with attacked_broker(tmp_path_factory.mktemp("open"), is_open=True, ottla_topic_max_partitions="10") as broker:
        yield broker


def test_topics_of_one_request_share_the_limit(open_broker: AttackedBroker) -> None:
    """As in KRaft, with POLICY_VIOLATION for all of them; one that is too large by itself harms only itself."""

    def codes(*counts: int) -> list[int]:
        wanted = [
            CreatableTopic(name=f"t{number}", num_partitions=count, replication_factor=1, assignments=[], configs=[])
            for number, count in enumerate(counts)
        ]
        body = CreateTopicsRequest(topics=wanted, timeout_ms=0, validate_only=True)
        return [each.error_code for each in open_broker.broker.ask(Api.CREATE_TOPICS, 7, body).topics]

    assert codes(5, 5) == [0, 0]
    assert codes(5, 6) == [ErrorCode.POLICY_VIOLATION] * 2
    assert codes(5, 11)[0] == 0


def test_enlargements_of_one_request_share_the_limit(open_broker: AttackedBroker) -> None:
    """Only the partitions that are added count."""

    def codes(**counts: int) -> list[int]:
        wanted = [CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in counts.items()]
        body = CreatePartitionsRequest(topics=wanted, timeout_ms=0, validate_only=True)
        return [each.error_code for each in open_broker.broker.ask(Api.CREATE_PARTITIONS, 3, body).results]

    assert codes(t=10) == [0]
    assert codes(t=10, other=2) == [ErrorCode.POLICY_VIOLATION] * 2


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100 + "a" + ")*" * 100,
        "(a|b)*a(a|b){900}",
        "(((a{50}){50}){50})",
        "[a-z]" * 2000,
        "{" * 9999,
        "(a*)*" * 2000,
    ],
    ids=["nested", "states", "powers", "classes", "braces", "empty"],
)
def test_expressions_of_members_take_bounded_time(text: str) -> None:
    """Those of the consumer protocol, over thousands of topics."""
    names = [f"{'ab' * 50}-{number}" for number in range(3000)]
    begun = time.thread_time()
    with contextlib.suppress(PatternError):
        TopicPattern(text).matching(names)
    seconds = time.thread_time() - begun
    assert seconds < 2 * SECONDS_MAX, f"{seconds:.2f} s"


def test_thousands_of_unknown_options_are_refused_at_once() -> None:
    """Only for the first few does the broker look for what was meant."""
    begun = time.thread_time()
    with pytest.raises(ConfigError):
        TopicConfig.validated(BrokerConfig(), {f"retention.mss{number}": "1" for number in range(20_000)})
    assert time.thread_time() - begun < SECONDS_MAX


@pytest.mark.parametrize("text", ["1" * 32_767 + "x", "1" * 16_000 + "." + "1" * 16_000 + "x", "." * 32_767])
def test_a_number_that_is_none_is_refused_at_once(text: str) -> None:
    """The value of an option may be as long as any text."""
    begun = time.thread_time()
    with pytest.raises(ValueError):  # noqa: PT011 - it has no message
        Double().parse(text)
    assert time.thread_time() - begun < SECONDS_MAX / 5
