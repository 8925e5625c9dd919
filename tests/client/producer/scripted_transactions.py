"""A broker that is also the coordinator of transactions and groups, and does as the test says."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.client.producer.scripted_producing import Brokers, producing
from tests.client.scripted_broker import Reply

from ottla.client.producer.producer import Producer
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.protocol.messages.end_txn import EndTxnResponse
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdResponse
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

TRANSACTIONAL_ID = "orders-1"
PRODUCER_ID = 7
_ASIDE = frozenset({Api.METADATA})


class Coordinating(Brokers):
    """Brokers with a coordinator, which does not check what it is asked: the test looks at the requests."""

    def __init__(self) -> None:
        super().__init__()
        # What the next requests of an API get in place of success: an error code, or an answer of its own.
        self.script: dict[Api, deque[int | Reply]] = defaultdict(deque)
        # Codes of single partitions in answers to AddPartitionsToTxn and TxnOffsetCommit.
        self.partition_codes: dict[tuple[str, int], int] = {}
        self.epoch = -1
        # All requests in order, but for metadata.
        self.asked: list[tuple[Api, Any]] = []
        self.versions: dict[Api, int] = {}
        # Cleared, an end of a transaction is not answered.
        self.may_end = asyncio.Event()
        self.may_end.set()

    @property
    def order(self) -> list[Api]:
        """The APIs of the requests, in order."""
        return [api for api, _ in self.asked]

    def requests(self, api: Api) -> list[Any]:
        """The requests of one API, in order."""
        return [request for asked, request in self.asked if asked is api]

    async def answer(self, api: Api, version: int, request: Any) -> Reply:
        """Answer what a transactional producer asks."""
        if api in _ASIDE:
            return await super().answer(api, version, request)
        self.asked.append((api, request))
        self.versions[api] = version
        scripted = self.script[api].popleft() if self.script[api] else 0
        if not isinstance(scripted, int):
            return scripted
        if api is Api.FIND_COORDINATOR:
            return self._found(request, scripted)
        if api is Api.INIT_PRODUCER_ID:
            self.epoch += not scripted
            return InitProducerIdResponse(
                throttle_time_ms=0, error_code=scripted, producer_id=PRODUCER_ID, producer_epoch=self.epoch
            )
        if api is Api.ADD_PARTITIONS_TO_TXN:
            return self._added(request, scripted)
        if api is Api.ADD_OFFSETS_TO_TXN:
            return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=scripted)
        if api is Api.TXN_OFFSET_COMMIT:
            return self._staged(request, scripted)
        if api is Api.END_TXN:
            await self.may_end.wait()
            return EndTxnResponse(throttle_time_ms=0, error_code=scripted)
        return await super().answer(api, version, request)

    def _found(self, request: Any, code: int) -> FindCoordinatorResponse:
        assert self.broker is not None
        host, port = self.broker.address
        rows = [
            Coordinator(key=key, node_id=1, host=host, port=port, error_code=code, error_message=None)
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=rows)

    def _added(self, request: Any, code: int) -> AddPartitionsToTxnResponse:
        return AddPartitionsToTxnResponse(
            throttle_time_ms=0,
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(
                            partition_index=number,
                            partition_error_code=self.partition_codes.get((topic.name, number), code),
                        )
                        for number in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ],
        )

    def _staged(self, request: Any, code: int) -> TxnOffsetCommitResponse:
        return TxnOffsetCommitResponse(
            throttle_time_ms=0,
            topics=[
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponsePartition(
                            partition_index=row.partition_index,
                            error_code=self.partition_codes.get((topic.name, row.partition_index), code),
                        )
                        for row in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )


@asynccontextmanager
async def transacting(brokers: Coordinating, **options: Any) -> AsyncIterator[Producer]:
    """Run a broker and a transactional producer, and forget what it asked to start."""
    async with producing(brokers, **({"transactional_id": TRANSACTIONAL_ID} | options)) as producer:
        brokers.asked.clear()
        yield producer


def error(code: ErrorCode) -> deque[int | Reply]:
    """Return a script with one error."""
    return deque([int(code)])
