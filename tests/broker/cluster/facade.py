"""A `ClusterRegistry` on a real ZooKeeper, with metadata that the test makes up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.broker.sessions import clock

from ottla.broker.cluster.cluster_registry import ClusterRegistry
from ottla.broker.cluster.membership import Membership
from ottla.broker.cluster.metadata import MetadataCache
from ottla.broker.cluster.zookeeper import ZooKeeper
from ottla.broker.config import BrokerConfig
from ottla.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)


class Facade:
    """Broker 1 of a cluster without a controller."""

    def __init__(
        self, zookeeper: ZooKeeper, options: Mapping[str, str] | None = None, *, brokers: Sequence[int] = (1,)
    ) -> None:
        self.zookeeper = zookeeper
        self.config = BrokerConfig.of({"zookeeper.connect": "unused:1", "broker.id": "1", **(options or {})})
        self.metadata = MetadataCache()
        self._brokers = brokers
        self.is_controller = False
        membership = Membership(zookeeper, self.config, clock=clock)
        membership.prepare()
        membership.choose_broker_id(None)
        self.cluster = ClusterRegistry(
            zookeeper,
            membership,
            self.metadata,
            lambda: self.config,
            cluster_id=membership.cluster_id(),
            is_controller=lambda: self.is_controller,
        )
        self.tell()

    def tell(self, *topics: str) -> None:
        """Let the metadata have topics of one partition."""
        self.metadata.update(
            UpdateMetadataRequest(
                controller_id=2,
                controller_epoch=1,
                topic_states=[
                    UpdateMetadataTopicState(
                        topic_name=topic,
                        topic_id=topic.encode().ljust(16),
                        partition_states=[
                            UpdateMetadataPartitionState(
                                partition_index=0,
                                controller_epoch=1,
                                leader=1,
                                leader_epoch=0,
                                isr=[1],
                                zk_version=0,
                                replicas=[1],
                            )
                        ],
                    )
                    for topic in topics
                ],
                live_brokers=[UpdateMetadataBroker(id=broker, rack=None) for broker in self._brokers],
            )
        )
