"""A broker without network and ZooKeeper: real logs, partitions and purgatories, for tests of produce and fetch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from tests.kit.answers import answering
from tests.kit.services import BROKER_EPOCH, CLUSTER_ID, for_handler, services_of

from ottla.broker.common.clocks import Clocks
from ottla.broker.config import BrokerConfig
from ottla.broker.handlers.table import HANDLERS
from ottla.broker.requests.request import Request
from ottla.broker.security.sasl.authentication import Authentication
from ottla.broker.security.session import Session
from ottla.broker.storage.directory_files import MetaProperties
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

    def __init__(self, config: BrokerConfig, topics: Mapping[str, Mapping[str, str]], **services: Any) -> None:
        # What timers of groups go by; moves when a test says so.
        self.now_ms = 0
        clocks = Clocks(lambda: NOW_MS + self.now_ms, lambda: self.now_ms)
        self.services = services_of(config, topics=topics, clocks=clocks, **services)
        # The racks of the live brokers, by id; each has its own host.
        self.racks: dict[int, str | None] = {BROKER_ID: None}
        # Whether clients come through a listener with SASL, as whoever they are.
        self.has_sasl = False

    def ask(self, api: Api, version: int, body: Message, client_id: str = "test") -> Any:
        """Return the response, decoded; `None` where there is none; a list that will have it where it is delayed."""
        sent = b"".join(encode_parts(body, version))
        arrived = decode(api.request, version, sent)
        session = Session("PLAINTEXT", "127.0.0.1")
        if self.has_sasl:
            session.authentication = cast(Authentication, object())
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
    config = BrokerConfig.of({"broker.id": str(BROKER_ID), "log.dirs": str(directory), **(options or {})})
    broker = Broker(config, topics, **services)
    logs, group_commit = broker.services.logs, broker.services.group_commit
    open_logs(logs, MetaProperties(BROKER_ID, CLUSTER_ID))
    group_commit.start()
    try:
        yield broker
    finally:
        group_commit.stop()
        close_logs(logs, BROKER_EPOCH)


def batch(*values: bytes, key: bytes | None = b"k", **fields: Any) -> bytes:
    """Build a batch of records."""
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(NOW_MS, key, value)
    return bytes(builder.build(**fields))
