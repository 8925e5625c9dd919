"""Our client among the others, on our broker and on Kafka's: what one writes the others read, in groups, too."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.client.consumer.consuming import create_topic
from tests.interop.clients.all import LIBRARIES, client_name
from tests.interop.clients.own import Own
from tests.interop.clients.record import CODECS, Client, Producing, Sent, plain
from tests.interop.members.aio import AioMember
from tests.interop.members.member import Joining, Member, share, watch_until
from tests.interop.members.own import OwnMember
from tests.interop.raw import stored_batches
from tests.kit.broker_process import BrokerProcess, topic_name
from tests.kit.kafka_process import VERSIONS, new_kafka
from tests.kit.zookeeper import ZooKeeperServer

from ottla.protocol.compression import Codec
from ottla.protocol.identifiers import TopicPartition

TIMESTAMP_MS = 1_700_000_000_000
PARTITIONS = 6
# kafka-python does not send records without key and value, nor headers without value; it reads both.
FOR_ALL = (
    Sent(b"value", b"key", (("first", b"1"), ("second", b"two")), TIMESTAMP_MS),
    Sent(b"no key", None, (("empty", b""),), TIMESTAMP_MS + 1),
    Sent(None, b"no value", (), TIMESTAMP_MS + 2),
    Sent(b"", b"", (("again", b"1"), ("again", b"2")), TIMESTAMP_MS - 100_000),
    Sent("Grüße, 世界, 🎈".encode(), "ключ".encode(), (("héader", "wört".encode()),), TIMESTAMP_MS + 3),
    # Enough that compression pays: clients send what it does not make smaller as it is.
    *(Sent(b"the same again and again, %d" % (number % 7), b"key", (), TIMESTAMP_MS + number) for number in range(200)),
)
OURS = (*FOR_ALL, Sent(None, None, (("null", None),), TIMESTAMP_MS))
SPOKEN = [
    pytest.param(codec, client, id=f"{codec}-{client.name}")
    for codec in CODECS
    for client in LIBRARIES
    if codec in client.codecs
]


@pytest.fixture(scope="module", params=["ottla", *VERSIONS])
def bootstrap(
    request: pytest.FixtureRequest, zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of our broker, then of Kafka's."""
    if request.param == "ottla":
        broker: BrokerProcess = request.getfixturevalue("broker")
        yield broker.bootstrap
        return
    with new_kafka(request.param, tmp_path_factory.mktemp("kafka"), zookeeper_server) as process:
        yield process.bootstrap


@pytest.fixture
async def topic(bootstrap: str) -> str:
    """A topic with all partitions led."""
    name = topic_name()
    await create_topic(bootstrap, name, PARTITIONS)
    return name


@pytest.mark.parametrize(("codec", "reader"), SPOKEN)
def test_what_we_write_the_others_read(codec: str, reader: Client, bootstrap: str, topic: str) -> None:
    """Keys, values, headers and timestamps come out as they went in, nulls included, with every codec."""
    how = Producing(codec=codec, linger_ms=50, idempotent=True)

    offsets = Own().produce(bootstrap, topic, OURS, how)

    received = reader.consume(bootstrap, topic, len(OURS))
    assert offsets == [record.offset for record in received] == list(range(len(OURS)))
    assert plain(received) == list(OURS)
    assert {batch.codec for batch in stored_batches(bootstrap, topic)} == {Codec.from_config_name(codec)}


@pytest.mark.parametrize(("codec", "writer"), SPOKEN)
def test_what_the_others_write_we_read(codec: str, writer: Client, bootstrap: str, topic: str) -> None:
    """As records and as columns, with every codec that they have."""
    offsets = writer.produce(bootstrap, topic, FOR_ALL, Producing(codec=codec, linger_ms=50, idempotent=True))

    received = Own().consume(bootstrap, topic, len(FOR_ALL))
    assert offsets == [record.offset for record in received]
    assert plain(received) == list(FOR_ALL)
    assert Own().columns(bootstrap, topic, len(FOR_ALL)) == received


@pytest.mark.parametrize("codec", CODECS)
def test_what_we_write_we_read(codec: str, bootstrap: str, topic: str) -> None:
    """From any offset on, also one amid a batch."""
    Own().produce(bootstrap, topic, OURS, Producing(codec=codec, linger_ms=50, idempotent=True), partition=1)

    received = Own().consume(bootstrap, topic, len(OURS) - 7, start=7, partition=1)

    assert plain(received) == list(OURS[7:])


@pytest.mark.parametrize("writer", LIBRARIES, ids=client_name)
def test_we_may_write_behind_another(writer: Client, bootstrap: str, topic: str) -> None:
    """Offsets go on, and a reader that starts amid one batch reads into the next, whoever wrote it."""
    # Kafka's broker may refuse the first batch of a new topic, and others would overtake it then.
    first = writer.produce(bootstrap, topic, FOR_ALL[:10], Producing(idempotent=True), partition=2)
    second = Own().produce(bootstrap, topic, FOR_ALL[10:20], partition=2)

    assert first + second == list(range(20))
    assert plain(Own().consume(bootstrap, topic, 15, start=5, partition=2)) == list(FOR_ALL[5:20])


@pytest.mark.parametrize("kinds", [(OwnMember, AioMember), (AioMember, OwnMember)], ids=["ours-first", "theirs-first"])
def test_a_group_may_be_mixed(kinds: tuple[type[Member], ...], bootstrap: str, topic: str) -> None:
    """Each record comes to one member, once; when one leaves, the other goes on where it was."""
    everything = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    how = Joining(f"mixed-{uuid.uuid4().hex}", (topic,), auto_commit_interval_ms=200)
    with kinds[0](bootstrap, how) as stays:
        watch_until(lambda: stays.assignment == frozenset(everything), stays)
        with kinds[1](bootstrap, how) as leaves:
            watch_until(lambda: share([stays, leaves], everything), stays, leaves)
            values = _spread(bootstrap, topic, b"shared")
            watch_until(lambda: len(stays.got) + len(leaves.got) >= len(values), stays, leaves)
            assert {len(member.partitions) for member in (stays, leaves)} == {PARTITIONS // 2}
        watch_until(lambda: stays.assignment == frozenset(everything), stays)
        values += _spread(bootstrap, topic, b"alone")
        watch_until(lambda: len(stays.got) + len(leaves.got) >= len(values), stays)

    assert Counter(got.value for got in stays.got + leaves.got) == Counter(values)


def _spread(bootstrap: str, topic: str, name: bytes) -> list[bytes]:
    """Write the same number of records to all partitions; return their values."""
    values = []
    for partition in range(PARTITIONS):
        some = [b"%b %d %d" % (name, partition, number) for number in range(20)]
        Own().produce(bootstrap, topic, [Sent(value) for value in some], partition=partition)
        values += some
    return values
