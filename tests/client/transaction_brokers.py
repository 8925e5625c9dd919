"""Two scripted brokers for tests of what the client asks about transactions.

Broker 1 leads partition 0 of topic "t" and coordinates all transactional ids; broker 2 leads partition 1.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from tests.client.scripted_broker import Reply, ScriptedBroker, metadata_response, scripted_broker

from ottla.client.admin.admin import Admin
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.message import Versions
from ottla.protocol.messages import describe_transactions as described
from ottla.protocol.messages import list_transactions as listed
from ottla.protocol.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
LONG_AGO_MS = 1_000
# Gets the broker that is asked, how often this API was asked for, and the request.
Script = Callable[[int, int, Any], Reply]


class Duo:
    """Two brokers; `scripts` answer by API, and `asked` has who was asked what."""

    def __init__(self, scripts: Mapping[Api, Script]) -> None:
        self.brokers: list[ScriptedBroker] = []
        self.asked: list[tuple[int, Api, Any]] = []
        self._scripts = scripts

    def times(self, api: Api) -> int:
        """Return how often an API was asked for."""
        return sum(asked is api for _, asked, _ in self.asked)

    def nodes(self, api: Api) -> list[int]:
        """Return which brokers were asked, in order."""
        return [node for node, asked, _ in self.asked if asked is api]

    def request(self, api: Api) -> Any:
        """Return the last request of an API."""
        return next(request for _, asked, request in reversed(self.asked) if asked is api)

    async def answer(self, node: int, api: Api, version: int, request: Any) -> Reply:
        """Answer a request to one of them."""
        self.asked.append((node, api, request))
        if api in self._scripts:
            return self._scripts[api](node, self.times(api), request)
        addresses = {number: broker.address for number, broker in enumerate(self.brokers, 1)}
        if api is Api.FIND_COORDINATOR:
            assert request.key_type == 1
            (key,) = request.coordinator_keys
            host, port = addresses[1]
            found = Coordinator(key=key, node_id=1, host=host, port=port, error_code=0, error_message=None)
            return FindCoordinatorResponse(coordinators=[found])
        assert api is Api.METADATA
        names = ["t"] if request.topics is None else [row.name for row in request.topics]
        errors = {name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for name in names if name != "t"}
        return metadata_response(addresses, {"t": [1, 2]} if "t" in names else {}, errors=errors)


@asynccontextmanager
async def administrating(duo: Duo, versions: Mapping[Api, Versions] | None = None) -> AsyncIterator[Admin]:
    """Run the brokers and an admin client of them."""
    offered = {api: api.versions for api in Api} | dict(versions or {})
    async with (
        scripted_broker(partial(duo.answer, 1), offered) as first,
        scripted_broker(partial(duo.answer, 2), offered) as second,
    ):
        duo.brokers = [first, second]
        async with Admin(
            bootstrap_servers=str(first.address),
            default_api_timeout_ms=30_000,
            retry_backoff_ms=1,
            retry_backoff_max_ms=5,
        ) as admin:
            yield admin


def listing(*rows: tuple[str, int, str], code: int = 0, unknown: Sequence[str] = ()) -> Reply:
    """Answer ListTransactions."""
    states = [
        listed.TransactionState(transactional_id=name, producer_id=producer_id, transaction_state=state)
        for name, producer_id, state in rows
    ]
    return listed.ListTransactionsResponse(
        throttle_time_ms=0, error_code=code, unknown_state_filters=list(unknown), transaction_states=states
    )


def describing(
    name: str, *, code: int = 0, state: str = "Ongoing", start_ms: int = 5, partitions: Sequence[int] = (0, 1)
) -> Reply:
    """Answer DescribeTransactions for one id."""
    row = described.TransactionState(
        error_code=code,
        transactional_id=name,
        transaction_state=state,
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=start_ms,
        producer_id=7,
        producer_epoch=3,
        topics=[described.TopicData(topic="t", partitions=list(partitions))] if partitions else [],
    )
    return described.DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=[row])


def producing(producer_id: int, start_offset: int = -1, timestamp: int = LONG_AGO_MS) -> ProducerState:
    """Make the entry of a producer."""
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=3,
        last_sequence=9,
        last_timestamp=timestamp,
        coordinator_epoch=-1,
        current_txn_start_offset=start_offset,
    )


def producers(request: Any, *states: ProducerState, code: int = 0) -> Reply:
    """Answer DescribeProducers: all partitions that were asked for have the same producers, or the same error."""
    topics = [
        TopicResponse(
            name=topic.name,
            partitions=[
                PartitionResponse(partition_index=index, error_code=code, active_producers=list(states))
                for index in topic.partition_indexes
            ],
        )
        for topic in request.topics
    ]
    return DescribeProducersResponse(throttle_time_ms=0, topics=topics)


class Cluster(Duo):
    """Producer 7 belongs to the id "a", whose transaction has partition 0 alone; producer 8 to no id at all."""

    def __init__(self, *states: ProducerState, **scripts: Script) -> None:
        super().__init__(
            {
                Api.DESCRIBE_PRODUCERS: lambda node, number, request: producers(request, *states),
                Api.LIST_TRANSACTIONS: lambda node, number, request: listing(
                    *([("a", 7, "Ongoing")] if node == 1 else [])
                ),
                Api.DESCRIBE_TRANSACTIONS: lambda *_: describing("a", partitions=[0]),
                **{Api[name]: script for name, script in scripts.items()},
            }
        )
