"""Every codec: stored as it was sent, readable for whoever knows it."""

from __future__ import annotations

import pytest
from tests.interop.clients.all import CLIENTS, available
from tests.interop.clients.confluent import Confluent
from tests.interop.clients.record import CODECS, Client, Producing, Sent
from tests.interop.conftest import CreateTopic
from tests.interop.raw import stored_batches
from tests.kit.broker_process import BrokerProcess

from ottla.protocol.compression import Codec

# Enough that compression pays: clients send what it does not make smaller as it is.
VALUES = [b"the same again and again, number %d" % (number % 7) for number in range(200)]
PARTNER = Confluent.name
READERS = {codec: [client for client in CLIENTS if codec in client.codecs] for codec in CODECS}
READ = [
    pytest.param(codec, reader, id=f"{codec}-to-{reader.name}")
    for codec, readers in READERS.items()
    for reader in readers
]
# Each writer and each reader with every codec, with librdkafka at the other end; `make test-all` has all pairs.
WRITTEN_AND_READ = [
    pytest.param(
        codec,
        writer,
        reader,
        id=f"{codec}-{writer.name}-to-{reader.name}",
        marks=[] if PARTNER in (writer.name, reader.name) else pytest.mark.long,
    )
    for codec, clients in READERS.items()
    for writer in clients
    for reader in clients
]


@pytest.mark.parametrize(("codec", "writer", "reader"), WRITTEN_AND_READ)
def test_a_codec_is_stored_as_sent_and_read_by_all(
    codec: str, writer: Client, reader: Client, broker: BrokerProcess, topic: str
) -> None:
    """The broker keeps the producer's compression, and consumers open it."""
    how = Producing(codec=codec, linger_ms=50)
    available(writer).produce(broker.bootstrap, topic, [Sent(value) for value in VALUES], how)

    received = available(reader).consume(broker.bootstrap, topic, len(VALUES))

    assert [record.value for record in received] == VALUES
    batches = [batch for batch in stored_batches(broker.bootstrap, topic) if batch.record_count > 1]
    assert {batch.codec for batch in batches} == {Codec.from_config_name(codec)}


@pytest.mark.parametrize(("codec", "reader"), READ)
def test_a_topic_may_have_a_codec_of_its_own(
    codec: str, reader: Client, broker: BrokerProcess, create_topic: CreateTopic
) -> None:
    """The broker then compresses what comes in otherwise."""
    topic = create_topic(compression_type="uncompressed" if codec == "none" else codec)
    how = Producing(codec="gzip" if codec == "none" else "none", linger_ms=50)
    Confluent().produce(broker.bootstrap, topic, [Sent(value) for value in VALUES], how)

    received = available(reader).consume(broker.bootstrap, topic, len(VALUES))

    assert [record.value for record in received] == VALUES
    assert {batch.codec for batch in stored_batches(broker.bootstrap, topic)} == {Codec.from_config_name(codec)}


def test_all_codecs_are_covered() -> None:
    """At least one client speaks each codec that Kafka has."""
    assert {Codec.from_config_name(codec) for codec, readers in READERS.items() if readers} == set(Codec)
