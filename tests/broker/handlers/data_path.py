"""A broker without network and ZooKeeper: real logs, partitions and purgatories, for tests of produce and fetch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.kit.answers import answering
from tests.kit.services import for_handler, offsets_partitions, services_of

from ottla.broker.app.services import Services
from ottla.broker.cluster.controller_gate import ControllerGate
from ottla.broker.cluster.metadata import MetadataCache
from ottla.broker.common.purgatory import Purgatory
from ottla.broker.config import BrokerConfig, TopicConfig
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.handlers.table import HANDLERS
from ottla.broker.replication.leader.fetch_sessions import FetchSessions
from ottla.broker.replication.log_dir_moves import LogDirMoves
from ottla.broker.replication.partition import PartitionContext
from ottla.broker.replication.partitions import Partitions
from ottla.broker.requests.request import Request
from ottla.broker.security.session import Session
from ottla.broker.storage.directory_files import MetaProperties
from ottla.broker.storage.maintenance.group_commit import GroupCommit
from ottla.broker.storage.recovery.startup import close_logs, open_logs
from ottla.protocol.api import Api
from ottla.protocol.codec import decode, encode_parts
from ottla.protocol.message import Message
from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from ottla.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.protocol.record_batch_builder import RecordBatchBuilder

BROKER_ID = 1
NOW_MS = 1_700_000_000_000


def topic_id(topic: str) -> bytes:
    """The id that a topic has in these tests."""
    return topic.encode().ljust(16, b"-")[:16]


class Broker:
    """Handles requests as the dispatcher would, through the codec in both directions."""

    def __init__(self, services: Services) -> None:
        self.services = services
        # What timers of groups go by; moves when a test says so.
        self.now_ms = 0
        # The racks of the live brokers, by id; each has its own host.
        self.racks: dict[int, str | None] = {BROKER_ID: None}

    def ask(self, api: Api, version: int, body: Message, client_id: str = "test") -> Any:
        """Return the response, decoded; `None` where there is none; a list that will have it where it is delayed."""
        sent = b"".join(encode_parts(body, version))
        arrived = decode(api.request, version, sent)
        session = Session("PLAINTEXT", "127.0.0.1")
        request = Request(api, version, arrived, client_id, session, for_handler(self.services, api))
        answer = HANDLERS[api].handle(request)
        if answer is None or isinstance(answer, Message):
            return None if answer is None else received(api, version, answer)
        answers: list[Message] = []
        answer.then(answering(lambda response: answers.append(received(api, version, response))))
        return answers

    def lead(
        self,
        topic: str,
        *,
        epoch: int = 0,
        leader: int = BROKER_ID,
        isr: tuple[int, ...] = (BROKER_ID,),
        replicas: tuple[int, ...] = (1, 2),
        everybody: bool = True,
    ) -> None:
        """Have the controller give partition 0 of a topic to a leader, and tell everybody."""
        partition: dict[str, Any] = {
            "partition_index": 0,
            "controller_epoch": 1,
            "leader": leader,
            "leader_epoch": epoch,
        }
        role = LeaderAndIsrPartitionState(**partition, isr=list(isr), partition_epoch=epoch, replicas=list(replicas))
        told = UpdateMetadataPartitionState(**partition, isr=list(isr), zk_version=epoch, replicas=list(replicas))
        roles = LeaderAndIsrRequest(
            controller_id=1,
            controller_epoch=1,
            topic_states=[LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id(topic), partition_states=[role])],
            live_leaders=[],
        )
        metadata = UpdateMetadataRequest(
            controller_id=1,
            controller_epoch=1,
            topic_states=[
                UpdateMetadataTopicState(topic_name=topic, topic_id=topic_id(topic), partition_states=[told])
            ],
            live_brokers=[_live_broker(broker_id, rack) for broker_id, rack in self.racks.items()],
        )
        assert self.ask(Api.LEADER_AND_ISR, 7, roles).topics[0].partition_errors[0].error_code == 0
        if everybody:
            assert self.ask(Api.UPDATE_METADATA, 8, metadata).error_code == 0


def _live_broker(broker_id: int, rack: str | None) -> UpdateMetadataBroker:
    endpoints = [
        UpdateMetadataEndpoint(port=9092, host=f"host-{broker_id}", listener="PLAINTEXT", security_protocol=0),
        UpdateMetadataEndpoint(port=9093, host=f"inside-{broker_id}", listener="INSIDE", security_protocol=0),
    ]
    return UpdateMetadataBroker(id=broker_id, rack=rack, endpoints=endpoints)


def received(api: Api, version: int, response: Message) -> Any:
    """Send a response through the codec, with the slices in it read as the socket would."""
    parts = encode_parts(response, version)
    return decode(api.response, version, b"".join(part.read() if hasattr(part, "read") else part for part in parts))


@contextmanager
def running_broker(
    directory: Path,
    topics: Mapping[str, Mapping[str, str]],
    options: Mapping[str, str] | None = None,
    **services: Any,
) -> Iterator[Broker]:
    """Run a broker over a directory with some options; `topics` has the options of those that have any.

    `services` take the place of those that the broker would have.
    """
    config = BrokerConfig.of({"log.dirs": str(directory), **(options or {})})
    configs = {topic: TopicConfig(config, options) for topic, options in topics.items()}
    default = TopicConfig(config, {})
    logs = open_logs(
        config, MetaProperties(BROKER_ID, "c" * 22), lambda topic: configs.get(topic, default), lambda: NOW_MS
    )
    metadata = MetadataCache()
    group_commit = GroupCommit(logs.dirs)
    context = PartitionContext(
        BROKER_ID,
        lambda: NOW_MS,
        is_alive=lambda broker: broker in metadata.snapshot.brokers,
        group_commit=group_commit,
    )
    partitions = Partitions(context, logs)

    groups = GroupCoordinator(
        lambda: config,
        partitions,
        partial(offsets_partitions, metadata),
        clock=lambda: NOW_MS + broker.now_ms,
        now_ms=lambda: broker.now_ms,
    )
    partitions.on_role_changed = groups.role_changed
    made: dict[str, Any] = {
        "partitions": partitions,
        "group_commit": group_commit,
        "log_dir_moves": LogDirMoves(partitions, config),
        "metadata": metadata,
        "fetch_sessions": FetchSessions(10),
        "controller_gate": ControllerGate(lambda: 5),
        "delayed_topics": Purgatory("topic"),
        "groups": groups,
        "clock": lambda: NOW_MS + broker.now_ms,
    }
    broker: Broker = Broker(services_of(lambda: config, **made | services))
    group_commit.start()
    try:
        yield broker
    finally:
        group_commit.stop()
        close_logs(logs, 5)


def batch(*values: bytes, key: bytes | None = b"k", **fields: Any) -> bytes:
    """Build a batch of records."""
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(NOW_MS, key, value)
    return bytes(builder.build(**fields))
