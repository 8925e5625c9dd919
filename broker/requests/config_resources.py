"""What the three APIs about configs share: the kinds of resources, and the checks that every change has to pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from ottla.broker.cluster.cluster_registry import ALL_BROKERS
from ottla.broker.cluster.configs import ConfigDifference
from ottla.broker.config import BrokerConfig, ConfigError
from ottla.broker.config.names import broker_option
from ottla.broker.config.rows.broker import BrokerOptions
from ottla.broker.requests.access import CLUSTER, TOPIC, check
from ottla.broker.requests.audited import note_change
from ottla.broker.requests.outcome import DONE, Outcome
from ottla.broker.requests.request import AnyRequest
from ottla.broker.requests.services import AdminServices
from ottla.protocol.config_resources import ConfigResourceType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.alter_configs import AlterConfigsResourceResponse


class Resource(Protocol):
    """A topic or broker as a request names it."""

    @property
    def resource_type(self) -> int:
        """Its kind, by ConfigResourceType."""
        ...

    @property
    def resource_name(self) -> str:
        """The name of a topic or the id of a broker; empty for all brokers."""
        ...


class NamedValue(Protocol):
    """An option as a request names it."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def value(self) -> str | None:
        """The new value; None removes the option."""
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


def alter_each(resources: Sequence[R], alter: Callable[[R], None]) -> list[AlterConfigsResourceResponse]:
    """Alter resources one by one; return the result of each. A resource that is named twice is refused both times."""
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    results = []
    for resource in resources:
        outcome = DONE
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "a request may change each resource only once")
            alter(resource)
        except KafkaError as error:
            outcome = Outcome.refused(error)
        results.append(
            AlterConfigsResourceResponse(
                error_code=outcome.code,
                error_message=outcome.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return results


def note_options(request: AnyRequest, resource: Resource, difference: ConfigDifference) -> None:
    """Note which options were changed, if any were."""
    if difference:
        kind = ConfigResourceType(resource.resource_type).name.capitalize()
        note_change(request, "options_altered", f"{kind}:{resource.resource_name or 'all'}", difference)


def check_access(request: AnyRequest, resource: Resource) -> None:
    """Raise KafkaError unless the client has the right on the topic, or on the cluster for any other resource."""
    if resource.resource_type == ConfigResourceType.TOPIC:
        check(request, TOPIC, resource.resource_name)
    else:
        check(request, CLUSTER)


def check_alterable(resource: Resource, changes: Sequence[NamedValue], without_value: Iterable[NamedValue]) -> None:
    """Raise INVALID_REQUEST for a resource without options, or for options named twice, without a value, or secret.

    Secrets are refused because the options are stored in ZooKeeper, where others may read them. Kafka refuses them too,
    unless it has a key to encrypt them.
    """
    problem = ""
    if resource.resource_type not in (ConfigResourceType.TOPIC, ConfigResourceType.BROKER):
        problem = f"only topics and brokers have options, not resources of type {resource.resource_type}"
    elif resource.resource_type == ConfigResourceType.TOPIC and not resource.resource_name:
        problem = "options cannot be set for all topics at once; set the defaults of the brokers instead"
    elif twice := sorted(name for name, count in Counter(each.name for each in changes).items() if count > 1):
        problem = f"options named twice: {', '.join(twice)}"
    elif nulls := sorted(each.name for each in without_value):
        problem = f"options without a value: {', '.join(nulls)}"
    elif resource.resource_type == ConfigResourceType.BROKER and (secrets := sorted(_secrets(changes))):
        problem = f"set secrets in the broker's properties file, not through ZooKeeper: {', '.join(secrets)}"
    if problem:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)


def _secrets(changes: Sequence[NamedValue]) -> Iterator[str]:
    for each in changes:
        option = broker_option(each.name)
        if each.value and option is not None and option.sensitive:
            yield each.name


def current_broker_config(services: AdminServices) -> BrokerConfig:
    """Return this broker's options with the values that ZooKeeper has now, which take effect in a moment.

    If ZooKeeper cannot be asked, return those in effect: whoever looks for the fault needs `zookeeper.connect` then.
    """
    if services.cluster.is_cut_off:
        return services.config()
    return services.config().with_dynamic(*services.cluster.dynamic_config())


def check_thread_counts(services: AdminServices, name: str, change: Change) -> None:
    """Raise INVALID_CONFIG if a change would more than double a number of threads, or less than halve it.

    Otherwise a typo could start thousands of threads, or leave one thread to do all the work.
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
        # The function that makes the change reports the error.
        return
    for option, present, wanted in _counts(services.config(), after):
        if not present // 2 <= wanted <= present * 2:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{option} = {wanted}: must be between half and double the current value, {present}",
            )


def _counts(before: BrokerConfig, after: BrokerConfig) -> Iterator[tuple[str, int, int]]:
    for option in _THREAD_COUNTS:
        yield option.name, vars(before)[option.attribute], vars(after)[option.attribute]
    network = BrokerOptions.num_network_threads
    for endpoint in before.listeners:
        listener = endpoint.listener_name
        yield network.name, before.for_listener(listener, network), after.for_listener(listener, network)
