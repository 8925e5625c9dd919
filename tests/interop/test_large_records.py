"""Records from one byte to ten megabytes, and those that are too large."""

from __future__ import annotations

import pytest
from tests.interop.clients.all import LIBRARIES, client_name
from tests.interop.clients.record import Client, ClientError, Producing, Sent
from tests.interop.conftest import CreateTopic
from tests.interop.raw import RawConnection
from tests.kit.broker_process import BrokerProcess

from ottla.protocol.errors import ErrorCode

TEN_MEGABYTES = 10_000_000
SIZES = (1, 100, 10_000, 999_000, TEN_MEGABYTES)
LIMIT = TEN_MEGABYTES + 100_000
# The largest batch that a broker takes without options: 1 MiB and 12 bytes.
DEFAULT_LIMIT = 1_048_588


def test_records_of_all_sizes_pass(client: Client, broker: BrokerProcess, create_topic: CreateTopic) -> None:
    """From 1 byte to 10 MB, where the topic allows it."""
    topic = create_topic(max_message_bytes=str(LIMIT))
    values = [bytes([ord("a") + index]) * size for index, size in enumerate(SIZES)]
    how = Producing(request_bytes_max=LIMIT)
    client.produce(broker.bootstrap, topic, [Sent(value) for value in values], how)

    received = client.consume(broker.bootstrap, topic, len(values))

    assert [len(record.value or b"") for record in received] == list(SIZES)
    assert all(record.value == value for record, value in zip(received, values, strict=True))


def test_a_record_beyond_the_default_limit_is_refused(client: Client, broker: BrokerProcess, topic: str) -> None:
    """The user of every client is told MESSAGE_TOO_LARGE, and nothing is stored."""
    with pytest.raises(ClientError) as refusal:
        client.produce(broker.bootstrap, topic, [Sent(b"x" * DEFAULT_LIMIT)], Producing(request_bytes_max=LIMIT))

    assert refusal.value.code is ErrorCode.MESSAGE_TOO_LARGE
    with RawConnection(broker.bootstrap) as connection:
        assert connection.end_offset(topic) == 0


@pytest.mark.parametrize("client", LIBRARIES, ids=client_name)
def test_a_record_just_within_the_default_limit_passes(client: Client, broker: BrokerProcess, topic: str) -> None:
    """The limit is for the whole batch: 61 bytes of header, and about a dozen for the record."""
    value = b"x" * (DEFAULT_LIMIT - 61 - 14)
    client.produce(broker.bootstrap, topic, [Sent(value)], Producing(request_bytes_max=LIMIT))

    (received,) = client.consume(broker.bootstrap, topic, 1)
    assert received.value == value
