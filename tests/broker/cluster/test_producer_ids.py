"""Producer ids: each once in the whole cluster."""

from __future__ import annotations

import threading

import pytest
from tests.broker.cluster.facade import Facade
from tests.broker.sessions import TIMEOUT_S, Connect

from ottla.broker.cluster.producer_ids import BLOCK_SIZE, ProducerIds
from ottla.broker.cluster.znodes import PRODUCER_ID_BLOCK
from ottla.protocol.errors import KafkaError


def test_blocks_are_written_as_kafka_does(connect: Connect) -> None:
    """Both ends included, as text; the next block begins behind the last."""
    zookeeper = connect()
    Facade(zookeeper)
    ids = ProducerIds(zookeeper, 1)
    assert [ids.next_id(), ids.next_id()] == [0, 1]
    assert zookeeper.read(PRODUCER_ID_BLOCK).data == b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}'
    other = ProducerIds(connect(), 2)
    assert other.next_id() == 1000
    assert zookeeper.read(PRODUCER_ID_BLOCK).data == b'{"version":1,"broker":2,"block_start":"1000","block_end":"1999"}'
    taken = {ids.next_id() for _ in range(BLOCK_SIZE)}
    assert taken == {*range(2, 1000), 2000, 2001}


def test_threads_of_two_brokers_never_get_the_same_id(connect: Connect) -> None:
    """Also when they need new blocks at the same time."""
    first = connect()
    Facade(first)
    brokers = [ProducerIds(first, 1), ProducerIds(connect(), 2)]
    taken: list[int] = []

    def take(ids: ProducerIds) -> None:
        taken.extend([ids.next_id() for _ in range(1500)])

    threads = [threading.Thread(target=take, args=(ids,)) for ids in brokers for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert len(taken) == len(set(taken)) == 6000


@pytest.mark.parametrize(
    "data",
    [
        b'{"version":1,"broker":1,"block_start":"0","block_end":"many"}',
        b'{"version":1,"broker":1,"block_start":"0","block_end":"9223372036854775800"}',
        b"garbage",
    ],
)
def test_a_block_that_makes_no_sense_is_refused(connect: Connect, data: bytes) -> None:
    """Rather than an id be given twice."""
    facade = Facade(connect())
    facade.zookeeper.write(PRODUCER_ID_BLOCK, data)
    with pytest.raises(KafkaError):
        facade.cluster.next_producer_id()
