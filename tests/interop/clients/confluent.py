"""confluent-kafka: librdkafka from Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from tests.interop.clients.record import CODECS, DEADLINE_S, SAFELY, ClientError, Producing, Received, Sent
from tests.kit.waiting import until

from ottla.protocol.errors import ErrorCode

FETCH_BYTES_MAX = 20_000_000


class Confluent:
    """The Producer and Consumer of confluent-kafka."""

    name = "confluent-kafka"
    codecs: tuple[str, ...] = CODECS

    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Sent], how: Producing = SAFELY, *, partition: int = 0
    ) -> list[int]:
        """Produce with `produce` and `flush`."""
        options = {
            "bootstrap.servers": bootstrap,
            "acks": how.acks,
            "compression.type": how.codec,
            "enable.idempotence": how.idempotent,
            "linger.ms": how.linger_ms,
            "message.max.bytes": how.request_bytes_max,
            **dict(how.options),
        }
        delivered: list[tuple[KafkaError | None, Any]] = []
        with producer(options) as client:
            for record in records:
                timestamp: dict[str, Any] = {} if record.timestamp_ms is None else {"timestamp": record.timestamp_ms}
                client.produce(
                    topic,
                    record.value,
                    record.key,
                    partition,
                    headers=list(record.headers),
                    on_delivery=lambda error, message: delivered.append((error, message)),
                    **timestamp,
                )
            assert client.flush(DEADLINE_S) == 0
        for error, _ in delivered:
            if error is not None:
                raise client_error(error)
        return [-1 if how.acks == 0 else message.offset() for _, message in delivered]

    def consume(self, bootstrap: str, topic: str, count: int, *, start: int = 0, partition: int = 0) -> list[Received]:
        """Consume with `assign` and `consume`."""
        with consumer(bootstrap) as client:
            client.assign([TopicPartition(topic, partition, start)])
            return receive(client, count)


@contextmanager
def producer(options: dict[str, Any]) -> Iterator[Producer]:
    """Give a producer that is closed in the end, also if an error keeps the frame that has it; then without waiting."""
    client = Producer(options)
    try:
        yield client
    finally:
        client.purge()
        client.close()


@contextmanager
def consumer(bootstrap: str, **options: Any) -> Iterator[Any]:
    """Give a consumer that commits nothing; `Any`, since every answer of it may be None for its stubs."""
    client = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "not-used",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.max.bytes": FETCH_BYTES_MAX,
            "receive.message.max.bytes": FETCH_BYTES_MAX + 1_000_000,
            "topic.metadata.refresh.interval.ms": 60_000,
            **{name.replace("_", "."): value for name, value in options.items()},
        }
    )
    try:
        yield client
    finally:
        client.close()


def receive(client: Any, count: int) -> list[Received]:
    """Return the next records; ClientError where the consumer reports an error."""
    received: list[Received] = []

    def poll() -> None:
        try:
            messages = client.consume(count - len(received), 1.0)
        except KafkaException as error:
            raise client_error(error.args[0]) from error
        for message in messages:
            if (problem := message.error()) is not None:
                raise client_error(problem)
            received.append(_received(message))

    until(lambda: len(received) >= count, lambda: f"{count} records, but {len(received)}", meanwhile=poll)
    return received


def _received(message: Any) -> Received:
    headers = tuple((name, value) for name, value in message.headers() or ())
    return Received(message.offset(), message.timestamp()[1], message.key(), message.value(), headers)


def client_error(error: KafkaError) -> ClientError:
    """Return the error in our form; librdkafka's own have negative codes, and may tell the broker's in their words."""
    words = error.str()
    if error.code() == KafkaError._AUTO_OFFSET_RESET and "Offset out of range" in words:
        return ClientError(ErrorCode.OFFSET_OUT_OF_RANGE, words)
    return ClientError(max(error.code(), -1), words)
