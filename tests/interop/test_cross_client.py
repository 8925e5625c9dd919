"""What one client has written reads back the same through every other."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from tests.interop.clients.aio import AioKafka
from tests.interop.clients.all import client_name
from tests.interop.clients.confluent import Confluent
from tests.interop.clients.kcat import Kcat
from tests.interop.clients.record import Client, Sent, plain
from tests.kit.broker_process import BrokerProcess

TIMESTAMP_MS = 1_700_000_000_000
RECORDS = (
    Sent(b"value", b"key", (("first", b"1"), ("second", b"two"))),
    Sent(b"no key", None, (("first", b"1"), ("second", b"two"))),
    Sent(b"no headers", b"key"),
    Sent(None, b"no value"),
    Sent(b"a header twice", b"key", (("again", b"1"), ("again", b"2"))),
    Sent("Grüße, 世界, 🎈".encode(), "ключ".encode(), (("héader", "wört".encode()),)),
)


def test_records_are_the_same_for_every_client(
    writer: Client, reader: Client, broker: BrokerProcess, topic: str
) -> None:
    """Keys, values, headers and timestamps come out as they went in, nulls included."""
    sent = [
        record if isinstance(writer, Kcat) else replace(record, timestamp_ms=TIMESTAMP_MS + index)
        for index, record in enumerate(RECORDS)
    ]
    earliest_ms = time.time_ns() // 1_000_000

    writer.produce(broker.bootstrap, topic, sent)
    received = reader.consume(broker.bootstrap, topic, len(sent))

    latest_ms = time.time_ns() // 1_000_000
    assert [record.offset for record in received] == list(range(len(sent)))
    for wanted, got in zip(sent, received, strict=True):
        assert got.key == wanted.key
        assert got.value == wanted.value
        assert got.headers == wanted.headers
        if wanted.timestamp_ms is None:
            assert earliest_ms <= got.timestamp_ms <= latest_ms
        else:
            assert got.timestamp_ms == wanted.timestamp_ms


@pytest.mark.parametrize("writer", [Confluent(), AioKafka()], ids=client_name)
def test_a_header_may_lack_its_value(writer: Client, reader: Client, broker: BrokerProcess, topic: str) -> None:
    """kafka-python and kcat do not send such headers; all clients can read them."""
    sent = Sent(b"value", b"key", (("null", None), ("empty", b"")), TIMESTAMP_MS)
    writer.produce(broker.bootstrap, topic, [sent])

    assert plain(reader.consume(broker.bootstrap, topic, 1)) == [sent]


def test_a_record_may_lack_key_and_value(reader: Client, broker: BrokerProcess, topic: str) -> None:
    """Only librdkafka sends one; all clients can read it."""
    Confluent().produce(broker.bootstrap, topic, [Sent(None, None)])

    (received,) = reader.consume(broker.bootstrap, topic, 1)

    assert (received.key, received.value, received.headers) == (None, None, ())
