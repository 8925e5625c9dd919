"""A cluster for tests of handlers: real metadata, config and purgatory, and in place of ZooKeeper some dictionaries.

Requests and responses pass through the codec in the version asked for, so a field that a version cannot carry fails
the test that sends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from msgspec.structs import replace
from tests.kit.answers import answering
from tests.kit.services import for_handler, services_of

from ottla.broker.cluster.cluster_registry import ALL_BROKERS, ClusterRegistry
from ottla.broker.cluster.configs import ConfigChange, ConfigDifference, changed_config, config_difference
from ottla.broker.cluster.topics import DEFAULT_COUNT, TopicCreation, TopicSpec
from ottla.broker.common.clocks import Clocks
from ottla.broker.config import TOPIC_OPTIONS, BrokerConfig, ConfigError, TopicConfig
from ottla.broker.config.names import broker_option
from ottla.broker.handlers.table import HANDLERS
from ottla.broker.requests.request import Request
from ottla.broker.security.session import Session
from ottla.protocol.api import Api
from ottla.protocol.codec import decode, encode
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Message
from ottla.protocol.messages.update_metadata import (
    LEADER_DURING_DELETE,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

LISTENER = "PLAINTEXT"
BROKER_ID = 1


def every_version(api: Api) -> range:
    """All versions of an API that are served."""
    versions = HANDLERS[api].versions
    return range(versions.first, versions.last + 1)


def topic_id(name: str) -> bytes:
    """The id that a topic has in these tests."""
    return name.encode().ljust(16, b"\xff")[:16]


class FakeCluster:
    """What `Cluster` offers to handlers, without ZooKeeper. `refusals` has the errors to raise, by topic."""

    id = "a-cluster-id"
    broker_id = BROKER_ID
    controller_id = BROKER_ID
    is_controller = True
    is_cut_off = False

    def __init__(self, config: Callable[[], BrokerConfig]) -> None:
        self._config = config
        self.refusals: dict[str, KafkaError] = {}
        self.created: dict[str, TopicSpec] = {}
        self.deleted: list[str] = []
        self.partition_counts: dict[str, int] = {}
        self.assignments: dict[str, Sequence[Sequence[int]] | None] = {}
        self.overrides: dict[str, Mapping[str, str]] = {}
        self.brokers: dict[str, Mapping[str, str]] = {str(BROKER_ID): {}, ALL_BROKERS: {}}
        # By type and name as in their paths.
        self.entities: dict[str, dict[str, Mapping[str, str]]] = {}
        self.next_id = 1000

    def create_topic(self, topic: TopicSpec, *, validate_only: bool = False) -> TopicCreation:
        """Take note of a topic."""
        self._refuse(topic.name)
        try:
            config = TopicConfig.validated(self._config(), topic.configs)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        if not validate_only:
            self.created[topic.name] = topic
        count = 1 if topic.partition_count == DEFAULT_COUNT else topic.partition_count
        assignment = topic.assignment or {index: [BROKER_ID] for index in range(count)}
        return TopicCreation(topic.name, bytes(16) if validate_only else topic_id(topic.name), assignment, config)

    def delete_topic(self, name: str) -> None:
        """Take note of a deletion."""
        self._refuse(name)
        self.deleted.append(name)

    def create_partitions(
        self, topic: str, count: int, assignment: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> Mapping[int, Sequence[int]]:
        """Take note of an enlargement from one partition."""
        self._refuse(topic)
        if not validate_only:
            self.partition_counts[topic] = count
            self.assignments[topic] = assignment
        return {index: [BROKER_ID] for index in range(1, count)}

    def topic_config(self, topic: str) -> TopicConfig:
        """The options of a topic."""
        return TopicConfig(self._config(), self.overrides.get(topic, {}))

    def dynamic_config(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """What is set for this broker, and for all."""
        return self.brokers[str(BROKER_ID)], self.brokers[ALL_BROKERS]

    def replace_topic_config(
        self, topic: str, overrides: Mapping[str, str], *, validate_only: bool = False
    ) -> ConfigDifference:
        """Set the options of a topic."""
        self._refuse(topic)
        if validate_only:
            return {}
        before, self.overrides[topic] = self.overrides.get(topic, {}), overrides
        return config_difference(before, overrides)

    def change_topic_config(
        self, topic: str, changes: Iterable[ConfigChange], *, validate_only: bool = False
    ) -> ConfigDifference:
        """Change the options of a topic."""
        current = self.topic_config(topic)
        changed = changed_config(
            current.overrides, changes, TOPIC_OPTIONS.get, lambda name: current.resolve(name).value
        )
        return self.replace_topic_config(topic, changed, validate_only=validate_only)

    def replace_broker_config(
        self, name: str, overrides: Mapping[str, str], *, validate_only: bool = False
    ) -> ConfigDifference:
        """Set the options of brokers."""
        if name not in self.brokers:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"not broker {name}")
        try:
            levels = (overrides, {}) if name else ({}, overrides)
            self._config().with_dynamic(*levels)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        if validate_only:
            return {}
        before, self.brokers[name] = self.brokers[name], overrides
        return config_difference(before, overrides)

    def change_broker_config(
        self, name: str, changes: Iterable[ConfigChange], *, validate_only: bool = False
    ) -> ConfigDifference:
        """Change the options of brokers."""
        current = self.brokers.get(name, {})
        changed = changed_config(current, changes, broker_option, lambda option: self._config().resolve(option).value)
        return self.replace_broker_config(name, changed, validate_only=validate_only)

    def entity_config(self, entity_type: str, name: str) -> Mapping[str, str]:
        """What is set for a user, a client id or an address."""
        above, _, last = f"{entity_type}/{name}".rpartition("/")
        return self.entity_configs(above).get(last, {})

    def entity_configs(self, entity_type: str) -> Mapping[str, Mapping[str, str]]:
        """What is set for all of a type."""
        self._refuse(entity_type)
        return self.entities.get(entity_type, {})

    def entity_configs_of(self, entity_types: Sequence[str]) -> Mapping[str, Mapping[str, Mapping[str, str]]]:
        """What is set for all of many types."""
        return {entity_type: self.entity_configs(entity_type) for entity_type in entity_types}

    def entity_names(self, entity_type: str) -> list[str]:
        """Those of a type for which, or below which, something is set."""
        below = (path.split("/") for path in self.entities if path.startswith(f"{entity_type}/"))
        return sorted({*self.entities.get(entity_type, {}), *(parts[1] for parts in below)})

    def change_entity_config(
        self, entity_type: str, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]
    ) -> ConfigDifference:
        """Change what is set."""
        before = self.entity_config(entity_type, name)
        changed = change(before)
        above, _, last = f"{entity_type}/{name}".rpartition("/")
        self.entities.setdefault(above, {})[last] = changed
        return config_difference(before, changed)

    def next_producer_id(self) -> int:
        """Count producers."""
        self._refuse("producer")
        self.next_id += 1
        return self.next_id

    def _refuse(self, name: str) -> None:
        if name in self.refusals:
            raise self.refusals[name]


class Pending:
    """A response that is to come; `answers` has it then."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    @property
    def answer(self) -> Any:
        """The one answer."""
        (answer,) = self.answers
        return answer


class SmallCluster:
    """A broker's services, and ways to ask its handlers and to tell it what a controller would."""

    def __init__(self, **settings: str) -> None:
        """Take options by their names with underscores."""
        options = {name.replace("_", "."): value for name, value in settings.items()}
        config = BrokerConfig.of(
            {"zookeeper.connect": "nowhere:2181", "broker.id": str(BROKER_ID), "log.dirs": "/nowhere", **options}
        )
        self.now = 0.0
        wired = services_of(config, clocks=Clocks(lambda: 0, lambda: int(self.now * 1000)))
        self.zookeeper = FakeCluster(wired.configs.broker)
        self.services = replace(wired, cluster=cast(ClusterRegistry, self.zookeeper))
        self.delayed_topics = self.services.delayed_topics
        self.brokers = [live_broker(BROKER_ID)]

    def ask(self, api: Api, version: int, body: Message, *, listener: str = LISTENER) -> Any:
        """Ask a handler; return its response as a client decodes it, or what will have it."""
        sent = decode(api.request, version, encode(body, version))
        request = Request(api, version, sent, "client", Session(listener, "127.0.0.1"), for_handler(self.services, api))
        answer = HANDLERS[api].handle(request)
        assert answer is not None
        if isinstance(answer, Message):
            return decode(api.response, version, encode(answer, version))
        pending = Pending()

        def take(response: Message) -> None:
            pending.answers.append(decode(api.response, version, encode(response, version)))

        answer.then(answering(take))
        return pending

    def tell(self, *topics: UpdateMetadataTopicState, version: int = 8) -> None:
        """Have the controller tell of live brokers and topics."""
        flat = [
            UpdateMetadataPartitionState(topic_name=topic.topic_name, **_fields(state))
            for topic in topics
            for state in topic.partition_states
        ]
        grouped = version >= 5
        body = UpdateMetadataRequest(
            controller_id=BROKER_ID,
            controller_epoch=1,
            topic_states=list(topics) if grouped else [],
            ungrouped_partition_states=[] if grouped else flat,
            live_brokers=self.brokers,
        )
        assert self.ask(Api.UPDATE_METADATA, version, body).error_code == 0


def live_broker(broker_id: int, *listeners: str, rack: str | None = None) -> UpdateMetadataBroker:
    """A broker that is reached on these listeners."""
    endpoints = [
        UpdateMetadataEndpoint(port=9092, host=f"broker-{broker_id}", listener=listener, security_protocol=0)
        for listener in listeners or (LISTENER,)
    ]
    return UpdateMetadataBroker(id=broker_id, endpoints=endpoints, rack=rack)


def topic(
    name: str,
    leaders: Sequence[int] = (BROKER_ID,),
    *,
    replicas: Sequence[int] = (BROKER_ID,),
    isr: Sequence[int] | None = None,
    offline: Sequence[int] = (),
) -> UpdateMetadataTopicState:
    """A topic with the leader of each of its partitions."""
    return UpdateMetadataTopicState(
        topic_name=name,
        topic_id=topic_id(name),
        partition_states=[
            UpdateMetadataPartitionState(
                partition_index=index,
                controller_epoch=1,
                leader=leader,
                leader_epoch=7,
                isr=list(replicas if isr is None else isr),
                zk_version=3,
                replicas=list(replicas),
                offline_replicas=list(offline),
            )
            for index, leader in enumerate(leaders)
        ],
    )


def deleted(name: str, partitions: int = 1) -> UpdateMetadataTopicState:
    """A topic that is going."""
    return topic(name, [LEADER_DURING_DELETE] * partitions)


def _fields(state: UpdateMetadataPartitionState) -> dict[str, Any]:
    return {field.name: getattr(state, field.name) for field in state.wire_fields if field.name != "topic_name"}
