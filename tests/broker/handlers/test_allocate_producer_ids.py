"""AllocateProducerIds, with a real controller over a real ZooKeeper."""

from __future__ import annotations

from typing import Any

from tests.broker.controller.brokers import Broker, brokers
from tests.kit.zookeeper import ZooKeeper

from ottla.broker.cluster import znodes
from ottla.broker.cluster.producer_ids import BLOCK_SIZE, range_start
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest


def allocate(controller: Broker, broker_id: int, broker_epoch: int) -> Any:
    """Ask for a block in the name of a broker."""
    body = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch)
    return controller.ask(Api.ALLOCATE_PRODUCER_IDS, 0, body)


def test_each_block_is_given_once(zookeeper: ZooKeeper) -> None:
    """Nobody else gets these ids, and ZooKeeper says whose they are."""
    with brokers(zookeeper, 1, 2) as (first, second):
        epoch = second.membership.broker_epoch
        blocks = [allocate(first, 2, epoch) for _ in range(2)]

        assert [block.error_code for block in blocks] == [ErrorCode.NONE] * 2
        start = range_start(first.cluster.id)
        assert [block.producer_id_start for block in blocks] == [start, start + BLOCK_SIZE]
        assert [block.producer_id_len for block in blocks] == [BLOCK_SIZE] * 2
        assert first.cluster.next_producer_id() == start + 2 * BLOCK_SIZE
        assert allocate(first, 2, epoch).producer_id_start == start + 3 * BLOCK_SIZE
        data = first.zookeeper.read(znodes.PRODUCER_ID_BLOCK).data
        assert znodes.ProducerIdBlockNode.decode(data, znodes.PRODUCER_ID_BLOCK).broker == 2


def test_only_live_brokers_get_a_block_and_only_from_the_controller(zookeeper: ZooKeeper) -> None:
    """An earlier life, a broker that is not there, a controller that is none."""
    with brokers(zookeeper, 1, 2) as (first, second):
        epoch = second.membership.broker_epoch
        assert allocate(first, 2, epoch - 1).error_code == ErrorCode.STALE_BROKER_EPOCH
        assert allocate(first, 3, epoch).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
        refused = allocate(second, 2, epoch)
        assert (refused.error_code, refused.producer_id_len) == (ErrorCode.NOT_CONTROLLER, 0)
        assert first.cluster.next_producer_id() == range_start(first.cluster.id)
