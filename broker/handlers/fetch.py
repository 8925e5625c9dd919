"""Fetch (1), versions 0-17.

Behavior: reads each partition up to its limit and the request's, as file slices that are sent without being copied
here. Fewer than `min_bytes`: the answer waits in purgatory until there are enough, an error appears, or `max_wait_ms`
is over. Consumers see nothing above the high watermark; with read_committed nothing above the last stable offset.
Sessions are in `fetch_sessions.py`.

Version notes: versions below 4 carry older message formats, which we do not write: UNSUPPORTED_VERSION for each
partition. From 3 on the first partition with data gives a whole batch even past the limits. 13 names topics by id.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.handlers.fetch_sessions import CachedPartition, FetchContext
from ottla.broker.handlers.leader_hints import leader_hints
from ottla.broker.handlers.lookup import hosted_partition
from ottla.broker.handlers.request import Delayed, Request
from ottla.broker.purgatory import DelayedOperation
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla.protocol.primitives import UUID_ZERO

_FORMAT_2_VERSION = 4
_TOPIC_IDS_VERSION = 13
_HINTS_VERSION = 16
_READ_COMMITTED = 1
_NO_RECORDS = b""
# No topic's name begins like this: it stands for an id that we do not know.
_UNKNOWN_ID = "\0"

_Answers = list[tuple[CachedPartition, PartitionData]]


class _Waiting(DelayedOperation):
    """A fetch that found too little: waits for bytes, an error, or the end of its time."""

    __slots__ = ("_context", "_request", "_respond")

    def __init__(self, request: Request, context: FetchContext) -> None:
        super().__init__()
        self._request = request
        self._context = context
        self._respond: Callable[[FetchResponse], None] | None = None

    def is_satisfied(self) -> bool:
        """Whether reading again would find enough, or an error."""
        body: FetchRequest = self._request.body
        committed_only = body.isolation_level == _READ_COMMITTED
        partitions = self._request.services.partitions
        is_more = False
        for cached in self._context.partitions:
            partition = partitions.find(cached.key)
            if partition is None or not partition.is_leader:
                return True
            offset = cached.wanted.fetch_offset
            if not partition.log.log_start_offset <= offset <= partition.log.log_end_offset:
                return True
            is_more = is_more or partition.upper_offset(committed_only=committed_only) > offset
        if not is_more or body.min_bytes <= 1:
            return is_more
        return _is_enough(_read_all(self._request, self._context), body.min_bytes)

    def on_complete(self, *, expired: bool) -> None:
        """Read again, and answer with what is there."""
        assert self._respond is not None
        self._respond(_response(self._request, self._context, _read_all(self._request, self._context)))

    def then(self, respond: Callable[[FetchResponse], None]) -> None:
        """Wait in purgatory, and answer from there."""
        self._respond = respond
        keys = [cached.key for cached in self._context.partitions]
        self._request.services.partitions.delayed_fetches.watch(self, keys, self._request.body.max_wait_ms / 1000)


def fetch(request: Request) -> FetchResponse | Delayed:
    """Read what is there, or wait for it."""
    body: FetchRequest = request.body
    try:
        context = request.services.fetch_sessions.context(body, request.version, _listed(request), _forgotten(request))
    except KafkaError as error:
        return FetchResponse(error_code=error.code, responses=[])
    answers = _read_all(request, context)
    if body.max_wait_ms <= 0 or not context.partitions or _is_enough(answers, body.min_bytes):
        return _response(request, context, answers)
    return _Waiting(request, context)


def _is_enough(answers: _Answers, min_bytes: int) -> bool:
    if any(answer.error_code or answer.preferred_read_replica >= 0 for _, answer in answers):
        return True
    return sum(_size(answer) for _, answer in answers) >= min_bytes


def _size(answer: PartitionData) -> int:
    return len(answer.records) if answer.records is not None else 0


def _listed(request: Request) -> list[CachedPartition]:
    listed = []
    for topic in request.body.topics:
        name = _topic_name(request, topic.topic, topic.topic_id)
        for wanted in topic.partitions:
            listed.append(CachedPartition(TopicPartition(name, wanted.partition), topic.topic_id, wanted))
    return listed


def _forgotten(request: Request) -> list[TopicPartition]:
    return [
        TopicPartition(_topic_name(request, topic.topic, topic.topic_id), partition)
        for topic in request.body.forgotten_topics_data
        for partition in topic.partitions
    ]


def _topic_name(request: Request, name: str, topic_id: bytes) -> str:
    """Return the name of a topic; an id that we do not know stands for itself, so that it is answered as such."""
    if request.version < _TOPIC_IDS_VERSION:
        return name
    return request.services.metadata.snapshot.topic_names.get(topic_id) or f"{_UNKNOWN_ID}{topic_id.hex()}"


def _read_all(request: Request, context: FetchContext) -> _Answers:
    """Read the partitions in turn until the request's limit is used up."""
    body: FetchRequest = request.body
    left = min(body.max_bytes, request.services.config.fetch_max_bytes)
    is_first = True
    answers: _Answers = []
    for cached in context.partitions:
        limit = min(cached.wanted.partition_max_bytes, left)
        answer = _read(request, cached, max(limit, 0), at_least_one=is_first)
        left -= _size(answer)
        is_first = is_first and not _size(answer)
        answers.append((cached, answer))
    return answers


def _read(request: Request, cached: CachedPartition, max_bytes: int, *, at_least_one: bool) -> PartitionData:
    wanted: FetchPartition = cached.wanted
    committed_only = request.body.isolation_level == _READ_COMMITTED
    try:
        if request.version < _FORMAT_2_VERSION:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "fetch version 4 or later gives what is stored")
        if cached.key.topic.startswith(_UNKNOWN_ID):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        partition = hosted_partition(request, cached.key)
        if cached.topic_id not in (UUID_ZERO, partition.topic_id):
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{cached.key.topic} has another id")
        read = partition.read(
            wanted.fetch_offset,
            max_bytes,
            wanted.current_leader_epoch,
            committed_only=committed_only,
            at_least_one=at_least_one,
        )
    except KafkaError as error:
        request.services.partitions.failed_reads[cached.key.topic.lstrip(_UNKNOWN_ID)] += 1
        return _refused(request, cached, error)
    return PartitionData(
        partition_index=wanted.partition,
        error_code=0,
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        aborted_transactions=None
        if read.aborted_transactions is None
        else [
            AbortedTransaction(producer_id=producer, first_offset=first)
            for producer, first in read.aborted_transactions
        ],
        records=read.records if read.records is not None else _NO_RECORDS,
    )


def _refused(request: Request, cached: CachedPartition, error: KafkaError) -> PartitionData:
    leader = LeaderIdAndEpoch()
    if request.version >= _HINTS_VERSION and error.code in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
    ):
        known = leader_hints(request, [cached.key]).leaders.get(cached.key)
        if known is not None:
            leader = LeaderIdAndEpoch(leader_id=known[0], leader_epoch=known[1])
    return PartitionData(
        partition_index=cached.wanted.partition,
        error_code=int(error.code),
        high_watermark=-1,
        current_leader=leader,
        aborted_transactions=None,
        records=_NO_RECORDS,
    )


def _response(request: Request, context: FetchContext, answers: _Answers) -> FetchResponse:
    topics: dict[tuple[str, bytes], list[PartitionData]] = {}
    for cached, answer in context.shown(answers):
        topics.setdefault((cached.key.topic, cached.topic_id), []).append(answer)
    hinted = [cached.key for cached, answer in answers if answer.current_leader.leader_id >= 0]
    nodes = leader_hints(request, hinted).nodes if hinted else []
    return FetchResponse(
        error_code=0,
        session_id=context.session_id,
        responses=[
            FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=partitions)
            for (name, topic_id), partitions in topics.items()
        ],
        node_endpoints=[
            NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack) for node in nodes
        ],
    )
