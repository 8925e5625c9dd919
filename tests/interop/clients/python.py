"""kafka-python."""

from __future__ import annotations

import socket
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.interop.clients.record import DEADLINE_S, SAFELY, ClientError, Producing, Received, Sent
from tests.kit.waiting import until

with warnings.catch_warnings():
    # kafka-python reads its resources in a way that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, errors
    from kafka.admin import AlterConfigOp, ConfigResource, MemberToRemove, OffsetSpec
    from kafka.errors import KafkaError
    from kafka.net.inet import KafkaNetSocket
    from kafka.net.selector import NetworkSelector
    from kafka.structs import OffsetAndMetadata

__all__ = [
    "AlterConfigOp",
    "ConfigResource",
    "KafkaConsumer",
    "KafkaNetSocket",
    "KafkaProducer",
    "KafkaPython",
    "MemberToRemove",
    "NetworkSelector",
    "OffsetAndMetadata",
    "OffsetSpec",
    "TopicPartition",
    "admin",
    "as_received",
    "consumer",
    "errors",
    "receive",
]

FETCH_BYTES_MAX = 20_000_000
_sock_connect = KafkaNetSocket.sock_connect


async def _connect_or_close(self: KafkaNetSocket, net: Any, sock: socket.socket, *how: Any, **named: Any) -> Any:
    """Connect a socket; close it if that fails, times out, or is given up. kafka-python 3.0 leaves it open."""
    try:
        return await _sock_connect(self, net, sock, *how, **named)
    except BaseException:
        sock.close()
        raise


KafkaNetSocket.sock_connect = _connect_or_close


class KafkaPython:
    """The producer and consumer of kafka-python; codecs beyond gzip need packages that we do without."""

    name = "kafka-python"
    codecs: tuple[str, ...] = ("none", "gzip")

    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Sent], how: Producing = SAFELY, *, partition: int = 0
    ) -> list[int]:
        """Produce with `send`, then wait for the futures."""
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            acks=how.acks,
            compression_type=None if how.codec == "none" else how.codec,
            enable_idempotence=how.idempotent,
            linger_ms=how.linger_ms,
            max_request_size=how.request_bytes_max,
            batch_size=how.request_bytes_max if how.linger_ms else 16_384,
            **dict(how.options),
        )
        try:
            futures = [
                producer.send(
                    topic,
                    record.value,
                    record.key,
                    list(record.headers),
                    partition,
                    record.timestamp_ms,
                )
                for record in records
            ]
            metadata = [future.get(timeout=DEADLINE_S) for future in futures]
        except KafkaError as error:
            raise client_error(error) from error
        finally:
            producer.close(timeout=DEADLINE_S)
        return [-1 if how.acks == 0 else each.offset for each in metadata]

    def consume(self, bootstrap: str, topic: str, count: int, *, start: int = 0, partition: int = 0) -> list[Received]:
        """Consume with `assign`, `seek` and `poll`."""
        with consumer(bootstrap) as client:
            assigned = TopicPartition(topic, partition)
            client.assign([assigned])
            client.seek(assigned, start)
            return receive(client, count)


@contextmanager
def consumer(bootstrap: str, **options: Any) -> Iterator[KafkaConsumer]:
    """Give a consumer that has no group."""
    client = KafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="none",
        fetch_max_bytes=FETCH_BYTES_MAX,
        max_partition_fetch_bytes=FETCH_BYTES_MAX,
        **options,
    )
    try:
        yield client
    finally:
        client.close()


@contextmanager
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    """Give an admin client."""
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        yield client
    finally:
        client.close()


def receive(client: KafkaConsumer, count: int) -> list[Received]:
    """Return the next records; ClientError where the consumer reports an error."""
    received: list[Received] = []

    def poll() -> None:
        try:
            found = client.poll(timeout_ms=1000, max_records=count - len(received))
        except KafkaError as error:
            raise client_error(error) from error
        received.extend(as_received(record) for records in found.values() for record in records)

    until(lambda: len(received) >= count, lambda: f"{count} records, but {len(received)}", meanwhile=poll)
    return received


def as_received(record: Any) -> Received:
    """Return kafka-python's ConsumerRecord in our form."""
    return Received(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))


def client_error(error: KafkaError) -> ClientError:
    """Return the error in our form; one that the client made up itself passes for UNKNOWN_SERVER_ERROR."""
    return ClientError(getattr(error, "errno", -1), repr(error))
