"""What the cluster has agreed on and keeps in ZooKeeper: topics, options, producer ids. Handlers read and change it
here.

Calls block on ZooKeeper, so they belong on worker threads. They raise KafkaError: `translated_errors` turns errors of
ZooKeeper into ones that make a client try again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ottla.broker.cluster import znodes
from ottla.broker.cluster.configs import ConfigChange, ConfigDifference, Configs, changed_config
from ottla.broker.cluster.membership import Membership
from ottla.broker.cluster.metadata import MetadataCache
from ottla.broker.cluster.operations import SessionExpiredError, ZooKeeperError, ZooKeeperUnavailableError
from ottla.broker.cluster.producer_ids import ProducerIds
from ottla.broker.cluster.topics import TopicCreation, Topics, TopicSpec
from ottla.broker.cluster.zookeeper import SessionState, ZooKeeper
from ottla.broker.config import TOPIC_OPTIONS, BrokerConfig, ConfigError, TopicConfig
from ottla.broker.config.names import broker_option, is_known, unknown_broker_option
from ottla.protocol.errors import ErrorCode, KafkaError

# In requests, the name of the options of all brokers.
ALL_BROKERS = ""


class ClusterRegistry:
    """Topics, options and producer ids in ZooKeeper, for handlers."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        membership: Membership,
        metadata: MetadataCache,
        config: Callable[[], BrokerConfig],
        *,
        cluster_id: str,
        is_controller: Callable[[], bool],
    ) -> None:
        """`config` returns the broker's current options."""
        self.id = cluster_id
        self._zookeeper = zookeeper
        self._membership = membership
        self._metadata = metadata
        self._config = config
        self._is_controller = is_controller
        self._topics = Topics(zookeeper, metadata, config)
        self._configs = Configs(zookeeper)
        self._producer_ids = ProducerIds(zookeeper, membership.broker_id, cluster_id)

    # Brokers

    @property
    def broker_id(self) -> int:
        """The id of this broker."""
        return self._membership.broker_id

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration; -1 while it is not a member."""
        return self._membership.broker_epoch

    @property
    def controller_id(self) -> int:
        """The id of the controller; -1 if none is known."""
        return self.broker_id if self._is_controller() else self._metadata.snapshot.controller_id

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller now."""
        return self._is_controller()

    @property
    def is_cut_off(self) -> bool:
        """Whether ZooKeeper cannot be asked now: a call would wait until it is back, or until the session is over."""
        return self._zookeeper.state is not SessionState.CONNECTED

    def report_log_dir_failure(self) -> None:
        """Notify the controller that a log directory failed; it then asks for the lost partitions."""
        content = znodes.LogDirEventNode(broker=self.broker_id).encode()
        with translated_errors():
            self._zookeeper.create_sequential(f"{znodes.LOG_DIR_EVENTS}/{znodes.LOG_DIR_EVENT_PREFIX}", content)

    # Topics

    def create_topic(self, topic: TopicSpec, *, validate_only: bool = False) -> TopicCreation:
        """Create a topic, on any broker. Its leaders come with the controller's next metadata."""
        with translated_errors():
            return self._topics.create(topic, validate_only=validate_only)

    def delete_topic(self, name: str) -> None:
        """Mark a topic for deletion; it is deleted when it has left the metadata."""
        with translated_errors():
            self._topics.delete(name)

    def create_partitions(
        self,
        topic: str,
        count: int,
        assignment: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> Mapping[int, Sequence[int]]:
        """Enlarge a topic to `count` partitions; return the replicas of the new ones."""
        with translated_errors():
            return self._topics.add_partitions(topic, count, assignment, validate_only=validate_only)

    # Options; a change returns what is different then

    def topic_config(self, topic: str) -> TopicConfig:
        """Return the options of a topic; what is set for it is read now."""
        with translated_errors():
            return TopicConfig(self._config(), self._configs.read(znodes.TOPIC_CONFIGS, topic))

    def overrides_of(self, topic: str) -> Mapping[str, str]:
        """Return the overrides of a topic, read now."""
        with translated_errors():
            return self._configs.read(znodes.TOPIC_CONFIGS, topic)

    def dynamic_config(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Return the options set for this broker and those set for all, for `BrokerConfig.with_dynamic`."""
        with translated_errors():
            return self._configs.of_broker(self.broker_id)

    def replace_topic_config(
        self, topic: str, overrides: Mapping[str, str], *, validate_only: bool = False
    ) -> ConfigDifference:
        """Set the options of a topic to exactly these."""
        return self._change_topic(topic, lambda _current: overrides, validate_only)

    def change_topic_config(
        self, topic: str, changes: Iterable[ConfigChange], *, validate_only: bool = False
    ) -> ConfigDifference:
        """Change some options of a topic."""
        steps = tuple(changes)

        def change(current: Mapping[str, str]) -> Mapping[str, str]:
            effective = TopicConfig(self._config(), current)
            return changed_config(current, steps, TOPIC_OPTIONS.get, lambda option: effective.resolve(option).value)

        return self._change_topic(topic, change, validate_only)

    def replace_broker_config(
        self, name: str, overrides: Mapping[str, str], *, validate_only: bool = False
    ) -> ConfigDifference:
        """Set the dynamic options of a broker, by its id as text, or of all brokers to exactly these."""
        return self._change_broker(name, lambda _current: overrides, validate_only)

    def change_broker_config(
        self, name: str, changes: Iterable[ConfigChange], *, validate_only: bool = False
    ) -> ConfigDifference:
        """Change some dynamic options of a broker, by its id as text, or of all brokers."""
        steps = tuple(changes)

        def change(current: Mapping[str, str]) -> Mapping[str, str]:
            return changed_config(current, steps, broker_option, lambda option: self._config().resolve(option).value)

        return self._change_broker(name, change, validate_only)

    # Users, client ids and addresses; names are those in the paths of their nodes

    def entity_config(self, entity_type: str, name: str) -> Mapping[str, str]:
        """Return the options of an entity, read now."""
        with translated_errors():
            return self._configs.read(entity_type, name)

    def entity_names(self, entity_type: str) -> list[str]:
        """Return the entities of a type, whether something is set for them or below them."""
        with translated_errors():
            return self._configs.names(entity_type)

    def entity_configs(self, entity_type: str) -> Mapping[str, Mapping[str, str]]:
        """Return the options of each entity of a type that has some, without unreadable ones."""
        with translated_errors():
            return self._configs.read_all(entity_type, skip_malformed=True)

    def entity_configs_of(self, entity_types: Sequence[str]) -> Mapping[str, Mapping[str, Mapping[str, str]]]:
        """Return the same for many types, by type."""
        with translated_errors():
            return self._configs.read_types(entity_types, skip_malformed=True)

    def change_entity_config(
        self, entity_type: str, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]
    ) -> ConfigDifference:
        """Replace the options of an entity by what `change` returns for them; it raises KafkaError to refuse."""
        return self._change(entity_type, name, change, validate_only=False)

    # Producers

    def next_producer_id(self) -> int:
        """Return a producer id that was never used in this cluster."""
        with translated_errors():
            return self._producer_ids.next_id()

    def take_producer_ids(self, broker: int) -> range:
        """Return a block of producer ids for one broker alone."""
        with translated_errors():
            return self._producer_ids.take_block(broker)

    def _change_topic(
        self, topic: str, change: Callable[[Mapping[str, str]], Mapping[str, str]], validate_only: bool
    ) -> ConfigDifference:
        if self._metadata.snapshot.topic(topic) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic)

        def checked(current: Mapping[str, str]) -> Mapping[str, str]:
            overrides = change(current)
            self._topics.checked_config(overrides)
            return overrides

        return self._change(znodes.TOPIC_CONFIGS, topic, checked, validate_only)

    def _change_broker(
        self, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]], validate_only: bool
    ) -> ConfigDifference:
        if name not in (ALL_BROKERS, str(self.broker_id)):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"this is broker {self.broker_id}; the options of broker {name} are changed there",
            )

        def checked(current: Mapping[str, str]) -> Mapping[str, str]:
            overrides = change(current)
            self._check_broker_overrides(current, overrides, for_all=name == ALL_BROKERS)
            return overrides

        return self._change(znodes.BROKER_CONFIGS, name or znodes.DEFAULT_ENTITY, checked, validate_only)

    def _change(
        self,
        entity_type: str,
        name: str,
        change: Callable[[Mapping[str, str]], Mapping[str, str]],
        validate_only: bool,
    ) -> ConfigDifference:
        """Change the options of an entity; return what is different, which is nothing if they are only validated."""
        with translated_errors():
            if validate_only:
                change(self._configs.read(entity_type, name))
                return {}
            return self._configs.change(entity_type, name, change)

    def _check_broker_overrides(
        self, current: Mapping[str, str], overrides: Mapping[str, str], *, for_all: bool
    ) -> None:
        # Kafka's brokers store options that only their plug-ins know. These stay, and do not block other changes.
        unknown = [name for name, text in overrides.items() if not is_known(name) and current.get(name) != text]
        if unknown:
            raise KafkaError(ErrorCode.INVALID_CONFIG, "; ".join(map(unknown_broker_option, sorted(unknown))))
        per_broker, cluster_wide = self.dynamic_config()
        try:
            if for_all:
                self._config().with_dynamic(per_broker, overrides)
            else:
                self._config().with_dynamic(overrides, cluster_wide)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise KafkaError for errors of ZooKeeper and malformed nodes; REQUEST_TIMED_OUT if ZooKeeper is unreachable."""
    try:
        yield
    except (SessionExpiredError, ZooKeeperUnavailableError) as error:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, str(error)) from error
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    except ZooKeeperError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
