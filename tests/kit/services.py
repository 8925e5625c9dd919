"""The one builder of a broker's `Services`: the rooms that a test has, and for the others what says that they are not.

services = services_of(config, metadata=MetadataCache(), cluster=FakeCluster())
services.partitions.find(partition)       AssertionError: this test has no partitions, …
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, NoReturn

from ottla.broker.app.services import Services
from ottla.broker.cluster.metadata import MetadataCache
from ottla.broker.config import BrokerConfig
from ottla.broker.groups.consumer.groups import ConsumerGroups
from ottla.broker.groups.offsets.group_offsets import GroupOffsets
from ottla.broker.groups.placement import CONSUMER_OFFSETS
from ottla.broker.handlers.table import HANDLERS
from ottla.broker.quotas.client_quotas import ClientQuotas
from ottla.broker.requests.services import RequestServices
from ottla.broker.security.security import Security
from ottla.protocol.api import Api


class Missing:
    """Stands for what a test does not have: whatever is asked of it is an AssertionError."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> NoReturn:
        raise AssertionError(f"this test has no {self._name}, but somebody asks it for {attribute!r}")

    def __call__(self, *_: object, **__: object) -> NoReturn:
        raise AssertionError(f"this test has no {self._name}, but somebody calls it")


# For what would ask ZooKeeper once it is started.
NO_ZOOKEEPER: Any = Missing("ZooKeeper")


def services_of(config: Callable[[], BrokerConfig], **rooms: Any) -> Services:
    """Make the services of a broker; `config` returns its options.

    Security and quotas are those of a broker that does not ask ZooKeeper, unless they are given. With `groups` and
    `metadata` there is also what handlers reach groups through.
    """
    made: dict[str, Any] = {field.name: Missing(field.name) for field in fields(Services)}
    made |= {"security": Security(NO_ZOOKEEPER, config), "quotas": ClientQuotas(NO_ZOOKEEPER, config)}
    if "groups" in rooms:
        made["group_offsets"] = GroupOffsets(rooms["groups"])
        made["consumer_groups"] = ConsumerGroups(rooms["groups"], rooms["metadata"])
    return Services(**{**made, "config": config, **rooms})


def for_handler(services: Services, api: Api) -> RequestServices:
    """Return what dispatch gives to the handler of an API."""
    return services.for_handlers()[HANDLERS[api].services]


def offsets_partitions(metadata: MetadataCache) -> int | None:
    """Count the partitions that groups are kept in, as a coordinator asks for it."""
    topic = metadata.snapshot.topic(CONSUMER_OFFSETS)
    return None if topic is None else len(topic.partitions)
