"""Reads the cluster from ZooKeeper into the controller's context."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import structlog
from msgspec.structs import replace

from ottla.broker.cluster import znodes
from ottla.broker.cluster.operations import BadVersionError, Create, NodeExistsError, SetData, ZNode
from ottla.broker.cluster.topics import topic_id_of
from ottla.broker.cluster.zookeeper import Watch, ZooKeeper
from ottla.broker.config import BrokerConfig, TopicConfig
from ottla.broker.controller.context import RegisteredBroker
from ottla.broker.controller.election import Fence
from ottla.protocol.primitives import uuid_to_text

log = structlog.get_logger(__name__)


class ClusterReader:
    """Reads brokers and topics in one term. Malformed nodes are logged and left out."""

    def __init__(self, zookeeper: ZooKeeper, fence: Fence, config: Callable[[], BrokerConfig]) -> None:
        self._zookeeper = zookeeper
        self._fence = fence
        self._config = config

    def brokers(self, watch: Watch) -> dict[int, RegisteredBroker]:
        """Return the live brokers; `watch` is called when one registers or leaves."""
        names = [name for name in self._zookeeper.children(znodes.BROKER_IDS, watch) if name.isdecimal()]
        found = [self._broker(int(name), node) for name, node in self._nodes(znodes.BROKER_IDS, names)]
        return {broker.id: broker for broker in found if broker is not None}

    def broker(self, broker_id: int, watch: Watch) -> RegisteredBroker | None:
        """Return one broker, if it is live; `watch` is called when it changes."""
        path = znodes.broker_path(broker_id)
        if self._zookeeper.exists(path, watch) is None:
            return None
        node = self._zookeeper.read_or_none(path)
        return None if node is None else self._broker(broker_id, node)

    def topics(self, names: Sequence[str], watch: Callable[[str], Watch]) -> dict[str, znodes.TopicNode]:
        """Return topics with their ids, and give ids to those without. `watch` returns the watch for a topic."""
        topics: dict[str, znodes.TopicNode] = {}
        for name, node in self._nodes(znodes.TOPICS, names, watch):
            path = znodes.topic_path(name)
            try:
                content = znodes.TopicNode.decode(node.data, path)
                if topic_id_of(content) is None:
                    content = self._with_id(path, content, node)
            except znodes.MalformedNodeError as error:
                log.error("topic_malformed", topic=name, reason=str(error))
                continue
            if content.partitions:
                topics[name] = content
            else:
                log.error("topic_without_partitions", topic=name)
        return topics

    def unclean_topics(self, names: Collection[str]) -> set[str]:
        """Return those of some topics whose options allow an out-of-sync leader."""
        config = self._config()
        unclean: set[str] = set()
        nodes = dict(self._nodes(f"/config/{znodes.TOPIC_CONFIGS}", sorted(names)))
        for name in names:
            path, data = znodes.config_path(znodes.TOPIC_CONFIGS, name), nodes[name].data if name in nodes else b""
            try:
                overrides = znodes.ConfigNode.decode(data, path).config if data else {}
            except znodes.MalformedNodeError as error:
                log.error("topic_options_malformed", topic=name, reason=str(error))
                continue
            if TopicConfig(config, overrides).unclean_leader_election_enable:
                unclean.add(name)
        return unclean

    def log_dir_failures(self, watch: Watch) -> set[int]:
        """Return the brokers that lost a log directory, and remove their notices."""
        names = self._zookeeper.children(znodes.LOG_DIR_EVENTS, watch)
        brokers: set[int] = set()
        for name, node in self._nodes(znodes.LOG_DIR_EVENTS, names):
            try:
                brokers.add(znodes.LogDirEventNode.decode(node.data, name).broker)
            except znodes.MalformedNodeError as error:
                log.error("log_dir_event_malformed", event=name, reason=str(error))
        self._fence.delete([f"{znodes.LOG_DIR_EVENTS}/{name}" for name in names])
        return brokers

    def prepare(self) -> None:
        """Create the node of the cluster's features if it is missing, and drop notices that loading makes obsolete."""
        if self._zookeeper.exists(znodes.FEATURE) is None:
            try:
                self._fence.write(Create(znodes.FEATURE, znodes.FeatureNode().encode()))
            except NodeExistsError:
                log.debug("feature_node_made_by_another")
        # Every broker is sent all of its partitions now, and answers which of them it has lost.
        children = self._zookeeper.children(znodes.ISR_CHANGES)
        self._fence.delete([f"{znodes.ISR_CHANGES}/{child}" for child in children])

    def _nodes(
        self, parent: str, names: Sequence[str], watch: Callable[[str], Watch] | None = None
    ) -> list[tuple[str, ZNode]]:
        paths = {f"{parent}/{name}": name for name in names}
        by_path = None if watch is None else lambda path: watch(paths[path])
        nodes = self._zookeeper.read_many(list(paths), by_path)
        return [(name, node) for name, node in zip(names, nodes, strict=True) if node is not None]

    def _broker(self, broker_id: int, node: ZNode) -> RegisteredBroker | None:
        try:
            content = znodes.BrokerNode.decode(node.data, znodes.broker_path(broker_id))
            content.parsed_endpoints()
        except znodes.MalformedNodeError as error:
            log.error("broker_malformed", broker=broker_id, reason=str(error))
            return None
        return RegisteredBroker(broker_id, node.stat.czxid, content)

    def _with_id(self, path: str, content: znodes.TopicNode, node: ZNode) -> znodes.TopicNode:
        """Give an id to a topic that was created before topics had ids."""
        with_id = replace(content, version=3, topic_id=uuid_to_text(znodes.new_uuid()))
        try:
            self._fence.write(SetData(path, with_id.encode(), node.stat.version))
        except BadVersionError:
            # Somebody changes the topic; its watch makes us read it again.
            return content
        return with_id
