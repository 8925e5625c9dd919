"""The nodes of a cluster in ZooKeeper: their paths, and their contents as typed values.

    /cluster/id                                     ClusterIdNode
    /controller                       (ephemeral)   ControllerNode
    /controller_epoch                               a number as text
    /feature                                        FeatureNode
    /brokers/ids/<id>                 (ephemeral)   BrokerNode; the node's czxid is the broker epoch
    /brokers/seqid                                  no data; its version counts the generated broker ids
    /brokers/topics/<topic>                         TopicNode
    /brokers/topics/<topic>/partitions/<p>/state    PartitionStateNode; the node's version is the partition epoch
    /config/<type>/<name>                           ConfigNode
    /config/changes/config_change_<n>               ConfigChangeNode
    /admin/delete_topics/<topic>                    no data
    /admin/preferred_replica_election               PreferredElectionNode, until it is done
    /admin/reassign_partitions                      ReassignmentNode, while there is something in it
    /latest_producer_id_block                       ProducerIdBlockNode
    /log_dir_event_notification/log_dir_event_<n>   LogDirEventNode
    /ottla/login_secret                             random bytes, for brokers only. Ours, not Kafka's
    /ottla/moves                                    MovesNode, while moves wait for their turn. Ours, not Kafka's
    /ottla/deleted_topics/<topic id>                DeletedTopicNode. Ours, not Kafka's
    /ottla/deleted_topics/<topic id>/<broker>       no data: the broker does not keep its logs of it any more

Apache Kafka's brokers and tools read and write the same nodes, so the keys, their order and the quotes around some of
the numbers are Kafka's. Unknown keys are ignored, by Kafka too, and older versions are read.
"""

from __future__ import annotations

import uuid
from typing import Any, ClassVar, Final, Self

import msgspec
from msgspec import UNSET, UnsetType

from ottla.broker.cluster.operations import ZooKeeperError
from ottla.broker.config import Endpoint
from ottla.protocol.primitives import uuid_to_text

CLUSTER_ID: Final = "/cluster/id"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
FEATURE: Final = "/feature"
BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE_PREFIX: Final = "config_change_"
DELETE_TOPICS: Final = "/admin/delete_topics"
PREFERRED_ELECTION: Final = "/admin/preferred_replica_election"
REASSIGNMENT: Final = "/admin/reassign_partitions"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
ISR_CHANGES: Final = "/isr_change_notification"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX: Final = "log_dir_event_"
OTTLA: Final = "/ottla"
LOGIN_SECRET: Final = "/ottla/login_secret"  # noqa: S105 - a path
MOVES: Final = "/ottla/moves"
DELETED_TOPICS: Final = "/ottla/deleted_topics"

TOPIC_CONFIGS: Final = "topics"
BROKER_CONFIGS: Final = "brokers"
# The name in /config that stands for all entities of a type.
DEFAULT_ENTITY: Final = "<default>"

# Every broker creates these at its start if they are missing.
PERSISTENT_PATHS: Final = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
)


def broker_path(broker_id: int) -> str:
    """Return the path of a broker's registration."""
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    """Return the path of a topic's assignment."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """Return the parent of a topic's partitions."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    """Return the parent of a partition's state."""
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    """Return the path of a partition's leader and ISR."""
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def config_path(entity_type: str, name: str) -> str:
    """Return the path of an entity's options."""
    return f"/config/{entity_type}/{name}"


def delete_topic_path(topic: str) -> str:
    """Return the path that marks a topic for deletion."""
    return f"{DELETE_TOPICS}/{topic}"


def deleted_topic_path(topic_id: bytes) -> str:
    """Return the path of a deleted topic that can be brought back."""
    return f"{DELETED_TOPICS}/{uuid_to_text(topic_id)}"


class MalformedNodeError(ZooKeeperError):
    """A node has content that does not belong there."""


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a node."""

    # Whether errors may quote the content.
    IS_SECRET: ClassVar[bool] = False

    def encode(self) -> bytes:
        """Return the data of a node with this content."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes, path: str) -> Self:
        """Parse the data of the node at `path`."""
        try:
            return msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            found = f"{len(data)} bytes" if cls.IS_SECRET else repr(data[:200])
            raise MalformedNodeError(f"{path} holds {found}, which is not a {cls.__name__}: {error}") from error


class ClusterIdNode(Content, frozen=True, kw_only=True):
    """The id of the cluster, chosen by its first broker."""

    version: str = "1"
    id: str


class ControllerNode(Content, frozen=True, kw_only=True):
    """The broker that is the controller."""

    version: int = 2
    broker_id: int = msgspec.field(name="brokerid")
    timestamp: str
    kraft_controller_epoch: int = msgspec.field(name="kraftControllerEpoch", default=-1)


class FeatureNode(Content, frozen=True, kw_only=True):
    """Finalized features; status 1 is "enabled"."""

    version: int = 2
    status: int = 1
    features: dict[str, Any] = {}


class BrokerNode(Content, frozen=True, kw_only=True):
    """The addresses of a broker. Versions 2, 3, 4 and 5 added endpoints, rack, protocols and features."""

    PLAINTEXT: ClassVar[str] = "PLAINTEXT"

    version: int = 5
    # The first endpoint without TLS and SASL, for readers that know no other.
    host: str | None
    port: int
    endpoints: list[str] = []
    jmx_port: int = -1
    timestamp: str = "-1"
    rack: str | UnsetType | None = UNSET
    listener_security_protocol_map: dict[str, str] = {}
    features: dict[str, Any] = {}

    def parsed_endpoints(self) -> tuple[Endpoint, ...]:
        """Return the endpoints as typed values; version 1 has host and port alone."""
        texts = self.endpoints or [f"{self.PLAINTEXT}://{self.host}:{self.port}"]
        try:
            return tuple(map(Endpoint.parse, texts))
        except ValueError as error:
            raise MalformedNodeError(f"a broker is registered with endpoints {texts}: {error}") from error

    def protocol(self, listener: str) -> str:
        """Return the security protocol of a listener; before version 4, listeners were named by it."""
        return self.listener_security_protocol_map.get(listener, listener)


class TopicNode(Content, frozen=True, kw_only=True):
    """The replicas of a topic's partitions; versions 1 and 2 have no id, version 1 no reassignments."""

    version: int = 3
    topic_id: str | UnsetType = UNSET
    partitions: dict[int, list[int]]
    # Only has partitions that are being reassigned.
    adding_replicas: dict[int, list[int]] = {}
    removing_replicas: dict[int, list[int]] = {}


class PartitionStateNode(Content, frozen=True, kw_only=True):
    """Leader and ISR of a partition; the recovery state is there only after an unclean election.

    The epochs are ours, not Kafka's: for each member of the ISR, the epoch of the registration that was in sync.
    """

    version: int = 1
    leader: int
    leader_epoch: int
    controller_epoch: int
    isr: list[int]
    leader_recovery_state: int | UnsetType = UNSET
    isr_broker_epochs: list[int] | UnsetType = UNSET


class ElectedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition to be led by its preferred replica."""

    topic: str
    partition: int


class PreferredElectionNode(Content, frozen=True, kw_only=True):
    """The elections that old tools ask for; the controller deletes the node when they are done."""

    version: int = 1
    partitions: list[ElectedPartition]


class ReassignedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """The brokers that a partition will move to."""

    topic: str
    partition: int
    replicas: list[int]


class ReassignmentNode(Content, frozen=True, kw_only=True):
    """The moves that old tools ask for; the controller removes finished ones, and the node after the last."""

    version: int = 1
    partitions: list[ReassignedPartition]


class MovesNode(Content, frozen=True, kw_only=True):
    """Moves that the controller starts a few at a time; it deletes the node after the last."""

    version: int = 1
    moves_per_broker: int
    # 0 for no limit.
    bytes_per_second: int
    # Finished ones included.
    partitions: list[ReassignedPartition]
    # Topics and brokers whose throttles are removed at the end.
    throttled_topics: list[str] = []
    throttled_brokers: list[int] = []


class DeletedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition of a deleted topic, as it was when its deletion began."""

    replicas: list[int]
    isr: list[int]
    leader_epoch: int
    # For each member of the ISR, the epoch of the registration that was in sync.
    isr_broker_epochs: list[int]


class DeletedTopicNode(Content, frozen=True, kw_only=True):
    """A deleted topic that can be brought back, once its deletion is complete."""

    version: int = 1
    name: str
    deleted_ms: int
    kept_until_ms: int
    is_complete: bool = False
    partitions: dict[int, DeletedPartition]
    config: dict[str, str] = {}


class ConfigNode(Content, frozen=True, kw_only=True):
    """The options of a topic, broker, client, user or address. They include passwords and credentials."""

    IS_SECRET: ClassVar[bool] = True

    version: int = 1
    config: dict[str, str] = {}


class ConfigChangeNode(Content, frozen=True, kw_only=True):
    """Names the entity whose options changed; version 1 has type and name in separate keys."""

    version: int = 2
    entity_path: str | UnsetType = UNSET
    entity_type: str | UnsetType = UNSET
    entity_name: str | UnsetType = UNSET

    def entity(self) -> tuple[str, str]:
        """Return the type and the name; below a user, the name continues with `/clients/<client>`."""
        if isinstance(self.entity_path, str):
            entity_type, _, name = self.entity_path.partition("/")
        else:
            entity_type, name = str(self.entity_type or ""), str(self.entity_name or "")
        if not entity_type or not name:
            raise MalformedNodeError(f"a config change names no entity: {self}")
        return entity_type, name


class ProducerIdBlockNode(Content, frozen=True, kw_only=True):
    """The last block of producer ids that was handed out, both ends included."""

    version: int = 1
    broker: int
    block_start: str
    block_end: str


class LogDirEventNode(Content, frozen=True, kw_only=True):
    """Says that a broker lost a log directory. This is event 1, the only one."""

    version: int = 1
    broker: int
    event: int = 1


def completed(content: DeletedTopicNode) -> DeletedTopicNode:
    """Return the content of a deleted topic whose deletion is complete."""
    return msgspec.structs.replace(content, is_complete=True)


def new_uuid() -> bytes:
    """Return a new id for a topic or a cluster. An id that starts with `-` would look like a command-line option."""
    while True:
        made = uuid.uuid4().bytes
        # The first six bits are the first character, and `-` is the character 62.
        if made[0] >> 2 != 62:
            return made


def decode_number(data: bytes, path: str) -> int:
    """Parse a node that holds a number as text."""
    try:
        return int(data.decode("ascii"))
    except ValueError as error:
        raise MalformedNodeError(f"{path} holds {data[:200]!r}, which is not a number") from error
