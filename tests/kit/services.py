"""The one builder of a broker's `Services` for tests: wired as in a real broker, over a ZooKeeper that stands still.

    services = services_of(config, cluster=FakeCluster())
    services.zookeeper.create(path)       AssertionError: this test has no ZooKeeper, …

Nothing is started, and the logs are not opened; a test does what it needs of that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from msgspec.structs import replace

from ottla.broker.app.services import Services
from ottla.broker.app.wiring import wire
from ottla.broker.cluster import znodes
from ottla.broker.cluster.operations import NodeStat, ZNode
from ottla.broker.common.clocks import Clocks
from ottla.broker.config import BrokerConfig
from ottla.broker.handlers.table import HANDLERS
from ottla.broker.requests.services import RequestServices
from ottla.protocol.api import Api

CLUSTER_ID: Final = "c" * 22
# Of the registration that brokers of these tests have.
BROKER_EPOCH: Final = 5


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


class StillZooKeeper(Missing):
    """Has the nodes that a test gives it, by path, and lets nobody write or watch."""

    is_session_sure = True

    def __init__(self, nodes: Mapping[str, bytes]) -> None:
        super().__init__("ZooKeeper")
        self.nodes = {znodes.CLUSTER_ID: znodes.ClusterIdNode(id=CLUSTER_ID).encode(), **nodes}

    def was_heard_within(self, _seconds: float) -> bool:
        """Hear everybody all the time."""
        return True

    def ensure_paths(self, paths: Sequence[str]) -> None:
        """Have every path."""

    def read_or_none(self, path: str) -> ZNode | None:
        """Read a node."""
        data = self.nodes.get(path)
        return None if data is None else ZNode(data, NodeStat(czxid=1, version=0, created_ms=0, ephemeral_owner=0))

    def read_many(self, paths: Sequence[str]) -> list[ZNode | None]:
        """Read many nodes."""
        return [self.read_or_none(path) for path in paths]

    def children_many(self, paths: Sequence[str]) -> list[list[str]]:
        """Return the names below many nodes."""
        return [
            sorted(each.removeprefix(f"{path}/") for each in self.nodes if each.startswith(f"{path}/"))
            for path in paths
        ]


def services_of(
    config: BrokerConfig,
    *,
    topics: Mapping[str, Mapping[str, str]] | None = None,
    clocks: Clocks | None = None,
    zookeeper: Any = None,
    **services: Any,
) -> Services:
    """Make the services of a broker that is registered.

    `topics` has the options of those that have any. `services` take the place of others for handlers.
    """
    if zookeeper is None:
        overrides = (topics or {}).items()
        paths = {znodes.config_path(znodes.TOPIC_CONFIGS, topic): options for topic, options in overrides}
        zookeeper = StillZooKeeper(
            {path: znodes.ConfigNode(config=dict(options)).encode() for path, options in paths.items()}
        )
    wired = wire(config, zookeeper, clocks or Clocks())
    wired.membership.broker_epoch = BROKER_EPOCH
    return replace(wired, **services)


def for_handler(services: Services, api: Api) -> RequestServices:
    """Return what dispatch gives to the handler of an API."""
    return services.for_handlers()[HANDLERS[api].services]
