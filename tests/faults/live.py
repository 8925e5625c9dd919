"""A live broker seen from outside: what its process holds, what it says, and the plainest client there is."""

from __future__ import annotations

import os
import resource
import socket
import time
from contextlib import closing
from pathlib import Path

import pytest
from tests.kit.broker_process import BrokerProcess
from tests.kit.waiting import until

from ottla.client.net.blocking_connection import BlockingConnection
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.record_batch_builder import RecordBatchBuilder

# Far more than anything here takes; a test that needs it has failed.
PATIENCE_SECONDS = 60.0
FETCH_VERSION = 12
PRODUCE_VERSION = 9
MIB = 1024 * 1024

_TICKS = os.sysconf("SC_CLK_TCK")


class Process:
    """What the system knows about a broker's process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._folder = Path(f"/proc/{pid}")
        if not self._folder.exists():
            pytest.skip("this system has no /proc, which tells what a process holds")

    @property
    def resident_bytes(self) -> int:
        """Memory of its own: pages of mapped log files are the system's cache, and not counted."""
        for line in (self._folder / "status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no RssAnon")

    @property
    def descriptors(self) -> int:
        """How many files and sockets are open."""
        return len(os.listdir(self._folder / "fd"))

    @property
    def cpu_seconds(self) -> float:
        """Time on a processor so far."""
        fields = (self._folder / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def limit_descriptors(self, count: int) -> None:
        """Set how many files and sockets may be open."""
        resource.prlimit(
            self.pid, resource.RLIMIT_NOFILE, (count, resource.prlimit(self.pid, resource.RLIMIT_NOFILE)[1])
        )


class Said:
    """What a broker writes to its log from now on."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._start = len(broker.output())

    @property
    def text(self) -> str:
        """All of it."""
        return self._broker.output()[self._start :]

    def lines(self, event: str) -> list[str]:
        """The lines of one event."""
        return [line for line in self.text.splitlines() if event in line]

    def check_no_failure(self) -> None:
        """Fail if something went wrong that nobody had foreseen."""
        for word in ("Traceback", "] request_failed", "Exception in callback"):
            at = self.text.find(word)
            assert at < 0, self.text[max(0, at - 500) : at + 3000]


def connect(broker: BrokerProcess) -> socket.socket:
    """Open a bare connection."""
    opened = socket.create_connection((broker.host, broker.port), timeout=PATIENCE_SECONDS)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


def is_closed_by_broker(client: socket.socket) -> bool:
    """Wait for what the broker does with a connection: False when it sends something instead of closing."""
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


class Client(BlockingConnection):
    """A connection with the few requests that these tests need."""

    def __init__(self, broker: BrokerProcess, timeout_seconds: float = PATIENCE_SECONDS) -> None:
        timeout_ms = int(timeout_seconds * 1000)
        super().__init__(
            broker.host,
            broker.port,
            client_id="faults",
            connect_timeout_ms=timeout_ms,
            request_timeout_ms=timeout_ms,
        )

    def api_versions(self) -> ApiVersionsResponse:
        """Ask what the broker serves."""
        response: ApiVersionsResponse = self.request(
            Api.API_VERSIONS, 3, ApiVersionsRequest(client_software_name="faults", client_software_version="1")
        )
        return response

    def create_topic(self, topic: str, **configs: str) -> None:
        """Create a topic with one partition, and wait until it takes records."""
        wanted = creatable_topic(topic, **configs)
        until(lambda: bool(self.request(Api.METADATA, 9, MetadataRequest(topics=[])).brokers), "a broker is known")
        created = self.request(Api.CREATE_TOPICS, 5, CreateTopicsRequest(topics=[wanted], timeout_ms=30_000))
        assert created.topics[0].error_code == 0, created

        def has_leader() -> bool:
            known = self.request(Api.METADATA, 9, MetadataRequest(topics=[MetadataRequestTopic(name=topic)])).topics[0]
            return bool(known.partitions) and known.partitions[0].leader_id >= 0

        until(has_leader, f"{topic} has a leader")

    def produce(self, topic: str, batch: bytes) -> ErrorCode:
        """Append a batch; return how that went."""
        response = self.request(Api.PRODUCE, PRODUCE_VERSION, produce_request(topic, batch))
        return ErrorCode.of(response.responses[0].partition_responses[0].error_code)

    def fetch(self, topic: str, offset: int) -> PartitionData:
        """Read what is there, without waiting."""
        answer: PartitionData = (
            self.request(Api.FETCH, FETCH_VERSION, fetch_request(topic, offset)).responses[0].partitions[0]
        )
        return answer

    def round_trip(self, topic: str) -> None:
        """Append a record, and read up to it."""
        assert self.produce(topic, batch_of(b"round trip")) is ErrorCode.NONE
        end = self.fetch(topic, 0).high_watermark
        read = self.fetch(topic, end - 1)
        assert read.error_code == 0
        assert read.high_watermark == end
        assert read.records is not None
        assert b"round trip" in bytes(read.records)


def creatable_topic(name: str, **configs: str) -> CreatableTopic:
    """A topic with one partition; options are written with underscores."""
    return CreatableTopic(
        name=name,
        num_partitions=1,
        replication_factor=1,
        assignments=[],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def produce_request(topic: str, batch: bytes) -> ProduceRequest:
    """A request to append a batch to one partition."""
    partition = PartitionProduceData(index=0, records=memoryview(batch))
    return ProduceRequest(
        acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[partition])]
    )


def fetch_request(topic: str, offset: int, *, max_bytes: int = MIB) -> FetchRequest:
    """A request for what one partition has from an offset on."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=max_bytes, topics=[FetchTopic(topic=topic, partitions=[partition])]
    )


def batch_of(*values: bytes, key: bytes | None = b"key") -> bytes:
    """A batch of records."""
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(timestamp=time.time_ns() // 1_000_000, key=key, value=value)
    return bytes(builder.build())


def check_serves(broker: BrokerProcess, topic: str) -> None:
    """Fail unless a client that comes now is served."""
    with closing(Client(broker)) as client:
        client.create_topic(topic)
        client.round_trip(topic)
