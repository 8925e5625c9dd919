"""The process that runs Kafka's command-line tools tells a success from a failure, and survives both."""

from __future__ import annotations

import pytest
from tests.kit import java_tools
from tests.kit.broker_process import BrokerProcess
from tests.kit.java_tools import KafkaTools, kafka_tools

__all__ = ["kafka_tools"]

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def test_a_tool_that_fails_shows_its_status_and_its_errors(kafka_tools: KafkaTools) -> None:
    """What a tool wrote to standard error is kept apart."""
    result = kafka_tools.run(TOPICS, [])

    assert result.status == 1
    assert "--bootstrap-server" in result.errors
    assert result.output == ""


def test_a_class_that_does_not_exist_is_a_failure(kafka_tools: KafkaTools) -> None:
    """The process itself goes on."""
    result = kafka_tools.run("org.example.Nothing", [])

    assert (result.status, "ClassNotFoundException" in result.errors) == (1, True)


def test_a_tool_that_never_ends_is_ended_and_the_next_one_runs(
    kafka_tools: KafkaTools, broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit ends the process; a new one is started."""
    at = ["--bootstrap-server", broker.bootstrap]
    with monkeypatch.context() as short:
        short.setattr(java_tools, "TOOL_SECONDS_MAX", 0.5)
        with pytest.raises(TimeoutError, match="ConsoleConsumer"):
            kafka_tools.run(CONSUMER, [*at, "--topic", topic])

    assert kafka_tools.run(TOPICS, [*at, "--list"]).status == 0
