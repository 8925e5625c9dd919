"""What the three APIs about options share: which resources there are, and what every change of one has to pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Protocol, TypeVar

from ottla.broker.cluster.cluster_registry import ALL_BROKERS
from ottla.broker.config import BrokerConfig, ConfigError
from ottla.broker.config.names import broker_option
from ottla.broker.config.rows.broker import BrokerOptions
from ottla.broker.requests.access import CLUSTER, TOPIC, check
from ottla.broker.requests.outcome import DONE, Outcome
from ottla.broker.requests.request import AnyRequest
from ottla.broker.requests.services import AdminServices
from ottla.protocol.errors import ErrorCode, KafkaError


class ConfigResourceType(IntEnum):
    """What has options; loggers and client metrics have none here."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16


class Resource(Protocol):
    """A topic or broker as requests name it."""

    @property
    def resource_type(self) -> int:
        """Its kind, by ConfigResourceType."""
        ...

    @property
    def resource_name(self) -> str:
        """Its name: of a topic, or the id of a broker, or nothing for all brokers."""
        ...


class NamedValue(Protocol):
    """An option as requests name it."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def value(self) -> str | None:
        """What it is to be; None where it is taken back."""
        ...


R = TypeVar("R", bound=Resource)
Change = Callable[[Mapping[str, str]], Mapping[str, str]]

_THREAD_COUNTS = (
    BrokerOptions.num_io_threads,
    BrokerOptions.num_replica_fetchers,
    BrokerOptions.num_recovery_threads_per_data_dir,
    BrokerOptions.background_threads,
    BrokerOptions.log_cleaner_threads,
)


def alter_each(resources: Sequence[R], alter: Callable[[R], None]) -> Iterator[tuple[R, Outcome]]:
    """Alter resources one by one; a resource that is named twice is refused both times."""
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    for resource in resources:
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "a resource can be changed once in a request")
            alter(resource)
        except KafkaError as error:
            yield resource, Outcome.refused(error)
        else:
            yield resource, DONE


def check_access(request: AnyRequest, resource: Resource) -> None:
    """Raise KafkaError unless who asks may: of a topic it is the topic's right, of anything else the cluster's."""
    if resource.resource_type == ConfigResourceType.TOPIC:
        check(request, TOPIC, resource.resource_name)
    else:
        check(request, CLUSTER)


def check_alterable(resource: Resource, changes: Sequence[NamedValue], without_value: Iterable[NamedValue]) -> None:
    """Raise INVALID_REQUEST for a resource without options, and for options named twice, without a value, or secret.

    What is set this way stands in ZooKeeper, where others may read it. Kafka refuses it, too, unless it has a key to
    encrypt it with.
    """
    problem = ""
    if resource.resource_type not in (ConfigResourceType.TOPIC, ConfigResourceType.BROKER):
        problem = f"only topics and brokers have options, not resources of type {resource.resource_type}"
    elif resource.resource_type == ConfigResourceType.TOPIC and not resource.resource_name:
        problem = "there are no options of all topics; set those of the brokers"
    elif twice := sorted(name for name, count in Counter(each.name for each in changes).items() if count > 1):
        problem = f"named twice: {', '.join(twice)}"
    elif nulls := sorted(each.name for each in without_value):
        problem = f"without a value: {', '.join(nulls)}"
    elif resource.resource_type == ConfigResourceType.BROKER and (secrets := sorted(_secrets(changes))):
        problem = f"secrets are set in the broker's own file, not through ZooKeeper: {', '.join(secrets)}"
    if problem:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)


def _secrets(changes: Sequence[NamedValue]) -> Iterator[str]:
    for each in changes:
        option = broker_option(each.name)
        if each.value and option is not None and option.sensitive:
            yield each.name


def current_broker_config(services: AdminServices) -> BrokerConfig:
    """Return this broker's options with what is set in ZooKeeper now, which takes effect in a moment."""
    return services.config().with_dynamic(*services.cluster.dynamic_config())


def check_thread_counts(services: AdminServices, name: str, change: Change) -> None:
    """Raise INVALID_CONFIG if a change would make threads more than double, or less than half, of what they are.

    A slip of the finger would otherwise start thousands, or leave one to do the work of all.
    """
    if name not in (ALL_BROKERS, str(services.cluster.broker_id)):
        return
    per_broker, cluster_wide = services.cluster.dynamic_config()
    try:
        if name == ALL_BROKERS:
            after = services.config().with_dynamic(per_broker, change(cluster_wide))
        else:
            after = services.config().with_dynamic(change(per_broker), cluster_wide)
    except ConfigError:
        # Whoever makes the change says what is wrong with it.
        return
    for option, present, wanted in _counts(services.config(), after):
        if not present // 2 <= wanted <= present * 2:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{option} = {wanted}: must be between half and double of the present {present}",
            )


def _counts(before: BrokerConfig, after: BrokerConfig) -> Iterator[tuple[str, int, int]]:
    for option in _THREAD_COUNTS:
        yield option.name, vars(before)[option.attribute], vars(after)[option.attribute]
    network = BrokerOptions.num_network_threads
    for endpoint in before.listeners:
        listener = endpoint.listener_name
        yield network.name, before.for_listener(listener, network), after.for_listener(listener, network)
