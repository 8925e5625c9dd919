"""Routes admin requests to brokers, and retries them.

A retriable error of one partition or group does not fail the call. The metadata or the coordinator is looked up again,
and only that part is retried, until `default_api_timeout_ms` is over.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from ottla.client.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    UnknownTopicOrPartitionError,
    error_for,
)
from ottla.client.net.asyncio_connection import Request
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.net.settings import ClientSettings
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition

# What a coordinator is looked up by.
GROUP: Final = 0
TRANSACTIONAL_ID: Final = 1
_KEY_NAMES: Final = {GROUP: "group", TRANSACTIONAL_ID: "transactional id"}
_LOOK_UP_COORDINATOR = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
# The coordinator is the right one, and still ends the transaction before.
_ASK_COORDINATOR_AGAIN = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS})


class HasError(Protocol):
    """A result about one of several things."""

    @property
    def error(self) -> KafkaError | None: ...


ResultT = TypeVar("ResultT", bound=HasError)
T = TypeVar("T")


class AdminRequests:
    """Sends requests to the leaders, coordinators and brokers of a cluster."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self.cluster = ClusterClient(settings)

    async def by_leader(
        self,
        partitions: Collection[TopicPartition],
        ask: Callable[[int, list[TopicPartition]], Awaitable[Mapping[TopicPartition, ResultT]]],
        failed: Callable[[TopicPartition, KafkaError], ResultT],
    ) -> list[ResultT]:
        """Ask each leader about its partitions; return the results in the order of the partitions."""
        results: dict[TopicPartition, ResultT] = {}
        remaining = set(partitions)

        async def attempt() -> None:
            by_node, leaderless = await self._led(remaining)
            for partition, error in leaderless.items():
                results[partition] = failed(partition, error)
            answers = await asyncio.gather(*(self._asked(ask, failed, node, led) for node, led in by_node.items()))
            for answer in answers:
                results.update(answer)
            # Do not wait for a topic that does not exist, although its error is retriable.
            failures = {each: found for each in remaining if (found := results[each].error) is not None}
            again = {each: found for each, found in failures.items() if found.retriable and self._exists(each)}
            remaining.intersection_update(again)
            if again:
                await self.cluster.metadata({each.topic for each in again}, force=True)
                raise next(iter(again.values()))

        try:
            await self.cluster.retrying(attempt)
        except KafkaError as error:
            for partition in remaining:
                results.setdefault(partition, failed(partition, error))
        return [results[partition] for partition in partitions]

    async def at_broker(
        self,
        node_id: int,
        partitions: Collection[TopicPartition],
        ask: Callable[[int, list[TopicPartition]], Awaitable[Mapping[TopicPartition, ResultT]]],
        failed: Callable[[TopicPartition, KafkaError], ResultT],
    ) -> list[ResultT]:
        """Ask one broker about partitions, whoever leads them; what it says of a partition is final."""

        async def retried(node_id: int, asked: list[TopicPartition]) -> Mapping[TopicPartition, ResultT]:
            answer: Mapping[TopicPartition, ResultT] = await self.cluster.retrying(lambda: ask(node_id, asked))
            return answer

        results = await self._asked(retried, failed, node_id, list(partitions))
        return [results[partition] for partition in partitions]

    async def on_coordinator(
        self,
        key: str,
        api: Api,
        message: Request,
        codes: Callable[[Any], Iterable[int]],
        *,
        key_type: int = GROUP,
        version_min: int = 0,
    ) -> tuple[int, Any]:
        """Ask the coordinator of a group or a transactional id; return its node id and its response.

        `codes` gives the error codes of a response that may say that this is not the coordinator.
        """

        async def attempt() -> tuple[int, Any]:
            node_id = await self.cluster.coordinator(key, key_type)
            try:
                response = await self.cluster.send(node_id, api, message, version_min=version_min)
            except (KafkaConnectionError, KafkaTimeoutError):
                self.cluster.forget_coordinator(key, key_type)
                raise
            for code in codes(response):
                if code in _LOOK_UP_COORDINATOR:
                    self.cluster.forget_coordinator(key, key_type)
                if code in _LOOK_UP_COORDINATOR | _ASK_COORDINATOR_AGAIN:
                    raise error_for(code, f"{_KEY_NAMES[key_type]} {key!r}")
            return node_id, response

        answer: tuple[int, Any] = await self.cluster.retrying(attempt)
        return answer

    async def on_all_brokers(
        self, api: Api, message: Request, *, version_min: int = 0, brokers: Collection[int] | None = None
    ) -> dict[int, Any]:
        """Ask every live broker, or these; return their responses by node id."""

        async def attempt() -> dict[int, Any]:
            if brokers is None:
                await self.cluster.metadata((), force=True)
            node_ids = sorted(self.cluster.brokers if brokers is None else brokers)
            answers = await asyncio.gather(
                *(self.cluster.send(node_id, api, message, version_min=version_min) for node_id in node_ids)
            )
            responses = dict(zip(node_ids, answers, strict=True))
            for node_id, response in responses.items():
                code = getattr(response, "error_code", 0)
                if code:
                    raise error_for(code, f"broker {node_id}")
            return responses

        answer: dict[int, Any] = await self.cluster.retrying(attempt)
        return answer

    async def _led(
        self, partitions: set[TopicPartition]
    ) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, KafkaError]]:
        """Return partitions by leader, and why the others have no leader to ask."""
        metadata = await self.cluster.metadata({each.topic for each in partitions})
        by_node: dict[int, list[TopicPartition]] = defaultdict(list)
        leaderless: dict[TopicPartition, KafkaError] = {}
        for each in sorted(partitions):
            topic = metadata.topics.get(each.topic)
            if topic is None or each.partition not in topic.partitions:
                code = ErrorCode.NONE if topic is None else topic.error
                error = error_for(code, str(each)) if code else UnknownTopicOrPartitionError(f"there is no {each}")
                leaderless[each] = error
            elif (leader := topic.partitions[each.partition].leader) is None:
                leaderless[each] = LeaderNotAvailableError(f"{each} has no leader")
            else:
                by_node[leader].append(each)
        return by_node, leaderless

    def _exists(self, partition: TopicPartition) -> bool:
        topic = self.cluster.snapshot.topics.get(partition.topic)
        return (
            topic is not None
            and (partition.partition in topic.partitions or topic.error.refresh_metadata)
            and (topic.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        )

    @staticmethod
    async def _asked(
        ask: Callable[[int, list[TopicPartition]], Awaitable[Mapping[TopicPartition, ResultT]]],
        failed: Callable[[TopicPartition, KafkaError], ResultT],
        node_id: int,
        partitions: list[TopicPartition],
    ) -> Mapping[TopicPartition, ResultT]:
        try:
            answer = await ask(node_id, partitions)
        except KafkaError as error:
            answer = {each: failed(each, error) for each in partitions}
        forgotten = error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {node_id} did not answer for it")
        return {each: answer[each] if each in answer else failed(each, forgotten) for each in partitions}


def only_row(rows: Sequence[T], what: str) -> T:
    """Return the row about the requested thing; raises if the response does not have it."""
    if not rows:
        raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker did not answer for {what}")
    return rows[0]


def error_of(code: int, message: str | None, detail: str) -> KafkaError | None:
    """Return the error of a row, None if there is none; the broker's message is preferred to ours."""
    return error_for(code, (message or detail).rstrip(".")) if code else None


def raised(results: Sequence[ResultT], raise_errors: bool) -> tuple[ResultT, ...]:
    """Return the results; with `raise_errors`, raise the first error among them."""
    if raise_errors:
        for result in results:
            if result.error is not None:
                raise result.error
    return tuple(results)
