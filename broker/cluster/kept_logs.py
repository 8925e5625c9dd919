"""How a broker gives up its logs of a deleted topic, so that the topic cannot come back with them."""

from __future__ import annotations

import structlog

from ottla.broker.cluster import znodes
from ottla.broker.cluster.metadata import MetadataCache
from ottla.broker.cluster.operations import NodeExistsError, NoNodeError, ZooKeeperError
from ottla.broker.cluster.topics import topic_id_of
from ottla.broker.cluster.zookeeper import ZooKeeper
from ottla.protocol.errors import KafkaError

log = structlog.get_logger(__name__)


def give_up_logs(zookeeper: ZooKeeper, metadata: MetadataCache, broker_id: int, topic_id: bytes, name: str) -> bool:
    """Note in ZooKeeper that this broker does not keep its logs of a deleted topic; return whether it may remove them.

    If the topic is not among the deleted ones, it has come back or its time is over. If it came back under another
    name, the metadata knows it.
    """
    try:
        zookeeper.create(f"{znodes.deleted_topic_path(topic_id)}/{broker_id}")
    except NodeExistsError:
        return True
    except NoNodeError:
        return not _is_back(zookeeper, metadata, topic_id, name)
    except (ZooKeeperError, KafkaError) as error:
        log.warning("kept_logs_not_given_up", topic=name, reason=str(error))
        return False
    return True


def _is_back(zookeeper: ZooKeeper, metadata: MetadataCache, topic_id: bytes, name: str) -> bool:
    if metadata.snapshot.topic_by_id(topic_id) is not None:
        return True
    try:
        path = znodes.topic_path(name)
        node = zookeeper.read_or_none(path)
        return node is not None and topic_id_of(znodes.TopicNode.decode(node.data, path)) == topic_id
    except (ZooKeeperError, KafkaError):
        return True
