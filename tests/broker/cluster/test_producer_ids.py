"""Producer ids: each once in the whole cluster."""

from __future__ import annotations

import threading

import pytest
from tests.broker.cluster.facade import Facade
from tests.broker.sessions import TIMEOUT_S, Connect

from ottla.broker.cluster.producer_ids import BLOCK_SIZE, ProducerIds, range_start
from ottla.broker.cluster.znodes import PRODUCER_ID_BLOCK
from ottla.protocol.errors import KafkaError

CLUSTER_ID = "lVr1TKTmTBOBm0bSmBzkrw"


def test_blocks_are_written_as_kafka_does(connect: Connect) -> None:
    """Both ends included, as text; the next block begins behind the last."""
    zookeeper = connect()
    Facade(zookeeper)
    start = range_start(CLUSTER_ID)
    ids = ProducerIds(zookeeper, 1, CLUSTER_ID)
    assert [ids.next_id(), ids.next_id()] == [start, start + 1]
    assert zookeeper.read(PRODUCER_ID_BLOCK).data == block(1, start)
    other = ProducerIds(connect(), 2, CLUSTER_ID)
    assert other.next_id() == start + 1000
    assert zookeeper.read(PRODUCER_ID_BLOCK).data == block(2, start + 1000)
    taken = {ids.next_id() for _ in range(BLOCK_SIZE)}
    assert taken == {*range(start + 2, start + 1000), start + 2000, start + 2001}


def block(broker: int, start: int) -> bytes:
    """Return the node of a block."""
    return f'{{"version":1,"broker":{broker},"block_start":"{start}","block_end":"{start + 999}"}}'.encode()


def test_each_cluster_has_ids_of_its_own(connect: Connect) -> None:
    """So a partition that was mirrored does not mistake a producer here for one there."""
    starts = {range_start(f"cluster-{number}") for number in range(100)}
    assert len(starts) == 100
    assert all(2**20 <= start < 10**12 and start % 2**20 == 0 for start in starts)


def test_a_cluster_that_counted_from_0_goes_on_in_its_range(connect: Connect) -> None:
    """One that an earlier version has started, or that has brokers of Kafka."""
    zookeeper = connect()
    Facade(zookeeper)
    zookeeper.write(PRODUCER_ID_BLOCK, block(1, 4000))
    assert ProducerIds(zookeeper, 1, CLUSTER_ID).next_id() == range_start(CLUSTER_ID)


def test_threads_of_two_brokers_never_get_the_same_id(connect: Connect) -> None:
    """Also when they need new blocks at the same time."""
    first = connect()
    Facade(first)
    brokers = [ProducerIds(first, 1, CLUSTER_ID), ProducerIds(connect(), 2, CLUSTER_ID)]
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
