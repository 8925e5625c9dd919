"""Producer ids in blocks: a broker takes a thousand at a time and hands them out one by one.

Each cluster has a range of its own, which follows from its id. A mirror copies batches with their producer ids. If
producers here could get the id of a producer there, a partition that was mirrored would take their first batches for
duplicates of those that it has, and acknowledge them without writing them.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final
from zlib import crc32

from ottla.broker.cluster.operations import BadVersionError, ZNode
from ottla.broker.cluster.znodes import PRODUCER_ID_BLOCK, ProducerIdBlockNode
from ottla.broker.cluster.zookeeper import ZooKeeper
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.primitives import INT64_MAX

BLOCK_SIZE: Final = 1000
# A range begins at a multiple of 2**20, and there are half a million of them. A cluster that has used up its own goes
# on in the next one, which is hardly that of a cluster it is mirrored with. All ids have 12 digits at most: tables have
# room for that. Apache Kafka counts from 0.
_RANGE_BITS: Final = 20
_RANGES: Final = (1 << 19) - 1

# Each conflict means that another broker got a block.
_ATTEMPTS_MAX: Final = 100


class ProducerIds:
    """Returns each id only once in the whole cluster, ever. Any thread may ask."""

    def __init__(self, zookeeper: ZooKeeper, broker_id: int, cluster_id: str) -> None:
        self._zookeeper = zookeeper
        self._range_start = range_start(cluster_id)
        self._broker_id = broker_id
        self._lock = threading.Lock()
        # The rest of the blocks taken so far. There is more than one only if several threads found none at once.
        self._left: deque[range] = deque()

    def next_id(self) -> int:
        """Return an id that was never used before."""
        while True:
            with self._lock:
                if self._left:
                    block = self._left.popleft()
                    if len(block) > 1:
                        self._left.appendleft(block[1:])
                    return block[0]
            # Not under the lock: if two threads take a block, the only cost is the numbers of one.
            block = self.take_block(self._broker_id)
            with self._lock:
                self._left.append(block)

    def take_block(self, broker: int) -> range:
        """Return a block for one broker alone, which need not be this one."""
        for _ in range(_ATTEMPTS_MAX):
            node = self._zookeeper.read(PRODUCER_ID_BLOCK)
            block = self._block_after(node)
            content = ProducerIdBlockNode(broker=broker, block_start=str(block.start), block_end=str(block.stop - 1))
            try:
                self._zookeeper.write(PRODUCER_ID_BLOCK, content.encode(), node.stat.version)
                return block
            except BadVersionError:
                continue
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "other brokers take all blocks of producer ids")

    def _block_after(self, node: ZNode) -> range:
        if not node.data:
            return range(self._range_start, self._range_start + BLOCK_SIZE)
        last = ProducerIdBlockNode.decode(node.data, PRODUCER_ID_BLOCK)
        try:
            start = int(last.block_end) + 1
        except ValueError as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{PRODUCER_ID_BLOCK} holds {last}") from error
        if start + BLOCK_SIZE > INT64_MAX:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids are used up")
        # A cluster that has counted from 0 so far goes on in its range.
        start = max(start, self._range_start)
        return range(start, start + BLOCK_SIZE)


def range_start(cluster_id: str) -> int:
    """Return the first producer id of a cluster."""
    return (1 + crc32(cluster_id.encode()) % _RANGES) << _RANGE_BITS
