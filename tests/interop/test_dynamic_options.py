"""Options that are changed while the broker runs, and what that changes at once."""

from __future__ import annotations

from tests.interop.raw import RawConnection, one_record, retrying
from tests.kit.broker_process import BrokerProcess, MakeBroker, topic_name
from tests.kit.waiting import until

from ottla.broker.cluster.configs import ConfigOperation
from ottla.protocol.api import Api
from ottla.protocol.config_resources import ConfigResourceType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

ALTER_VERSION = 1


def alter(connection: RawConnection, kind: ConfigResourceType, name: str, option: str, value: str | None) -> None:
    """Set an option, or delete it where the value is None."""
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    config = AlterableConfig(name=option, config_operation=operation, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    body = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    (result,) = connection.request(Api.INCREMENTAL_ALTER_CONFIGS, ALTER_VERSION, body).responses
    assert result.error_code == 0, result.error_message


def outcome(connection: RawConnection, topic: str, size: int) -> ErrorCode:
    """Return how producing a record of this size, without a key, ends."""
    try:
        connection.produce(topic, one_record(b"x" * size))
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def wait_for(wanted: ErrorCode, connection: RawConnection, topic: str, size: int) -> None:
    """Produce until it ends like this: brokers take a change in a moment after it is stored."""
    until(lambda: outcome(connection, topic, size) is wanted, wanted.name)


def test_the_limit_of_a_topic_follows_its_option(broker: BrokerProcess, topic: str) -> None:
    """Lowered, raised above the broker's own, and back to the default; without a restart."""
    with RawConnection(broker.bootstrap) as connection:
        assert outcome(connection, topic, 10_000) is ErrorCode.NONE
        alter(connection, ConfigResourceType.TOPIC, topic, "max.message.bytes", "5000")
        wait_for(ErrorCode.MESSAGE_TOO_LARGE, connection, topic, 10_000)
        assert outcome(connection, topic, 4_000) is ErrorCode.NONE
        alter(connection, ConfigResourceType.TOPIC, topic, "max.message.bytes", "2000000")
        wait_for(ErrorCode.NONE, connection, topic, 1_500_000)
        alter(connection, ConfigResourceType.TOPIC, topic, "max.message.bytes", None)
        wait_for(ErrorCode.MESSAGE_TOO_LARGE, connection, topic, 1_500_000)


def test_options_of_brokers_hold_for_topics_without_their_own(make_broker: MakeBroker) -> None:
    """An option of all brokers, one of this broker above it, and that one deleted again."""
    broker = make_broker()
    topic, other = topic_name(), topic_name()
    with RawConnection(broker.bootstrap) as connection:
        retrying(lambda: connection.create_topic(topic))
        connection.create_topic(other, configs={"max.message.bytes": "2000000"})

        alter(connection, ConfigResourceType.BROKER, "", "message.max.bytes", "5000")
        wait_for(ErrorCode.MESSAGE_TOO_LARGE, connection, topic, 10_000)
        alter(connection, ConfigResourceType.BROKER, "1", "message.max.bytes", "20000")
        wait_for(ErrorCode.NONE, connection, topic, 10_000)
        assert outcome(connection, other, 100_000) is ErrorCode.NONE
        alter(connection, ConfigResourceType.BROKER, "1", "message.max.bytes", None)
        wait_for(ErrorCode.MESSAGE_TOO_LARGE, connection, topic, 10_000)

    broker.restart()
    with RawConnection(broker.bootstrap) as connection:
        wait_for(ErrorCode.NONE, connection, topic, 1_000)
        assert outcome(connection, topic, 10_000) is ErrorCode.MESSAGE_TOO_LARGE


def test_a_cleanup_policy_takes_effect_at_once(broker: BrokerProcess, topic: str) -> None:
    """A topic that becomes compacted takes no more records without keys."""
    with RawConnection(broker.bootstrap) as connection:
        assert outcome(connection, topic, 10) is ErrorCode.NONE
        alter(connection, ConfigResourceType.TOPIC, topic, "cleanup.policy", "compact")
        wait_for(ErrorCode.INVALID_RECORD, connection, topic, 10)
        alter(connection, ConfigResourceType.TOPIC, topic, "cleanup.policy", "delete")
        wait_for(ErrorCode.NONE, connection, topic, 10)
