"""Fetch (1), versions 0-17.

Behavior: reads each partition up to its limit and the request's, as file slices that are sent without being copied
here. Fewer than `min_bytes`: the answer waits in purgatory until there are enough, an error appears, or `max_wait_ms`
is over. Consumers see nothing above the high watermark; with read_committed nothing above the last stable offset.
Followers (`replica_id`, from version 15 on `replica_state`) read up to the end of the log, and where they read from
moves the high watermark. How partitions are read is in `fetch_reader.py`, sessions are in `fetch_sessions.py`, reading
from followers is in `replica_selector.py`. A client beyond its quota gets an empty answer: `throttling.py`.

Version notes: versions below 4 carry older message formats, which we do not write: UNSUPPORTED_VERSION for each
partition. From 3 on the first partition with data gives a whole batch even past the limits. From 11 on a follower
serves consumers, up to its own high watermark. 12 tells a follower where its log diverges. 13 names topics by id.
"""

from __future__ import annotations

from collections.abc import Hashable

from ottla.broker.common.purgatory import DelayedOperation, Mark
from ottla.broker.handlers.data.fetch_reader import Answers, FetchReader, size_of
from ottla.broker.replication.leader.fetch_sessions import NO_SESSION, CachedPartition, FetchContext, SessionKey
from ottla.broker.requests.leader_hints import leader_hints
from ottla.broker.requests.request import Delayed, Request, Respond
from ottla.broker.requests.throttling import admits_fetch
from ottla.protocol.errors import KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)

_TOPIC_IDS_VERSION = 13


class _Waiting(DelayedOperation):
    """A fetch that found too little: waits for bytes, an error, or the end of its time.

    It has hundreds of partitions, of which one moves: only those that moved are looked at, and read again in the end.
    """

    __slots__ = (
        "_answers",
        "_available",
        "_context",
        "_moved",
        "_partitions",
        "_reader",
        "_request",
        "_respond",
        "_since",
    )

    def __init__(
        self, request: Request, context: FetchContext, reader: FetchReader, answers: Answers, since: Mark
    ) -> None:
        super().__init__()
        self._request = request
        self._context = context
        self._reader = reader
        # What reading found, after the moment `since`.
        self._answers = answers
        self._since = since
        self._respond: Respond | None = None
        self._partitions: dict[Hashable, CachedPartition] = {cached.key: cached for cached in context.partitions}
        # In the order in which they moved.
        self._moved: dict[Hashable, None] = {}
        # Bytes by partition; where any byte is enough, nobody counts them. It has all its keys from the beginning:
        # several threads change it.
        self._available: dict[Hashable, int] = {}
        if reader.min_bytes > 1:
            self._available = dict.fromkeys(self._partitions, 0)
            self._available.update((cached.key, size_of(answer)) for cached, answer in answers)

    def is_satisfied(self) -> bool:
        """Whether reading again would find enough, or an error."""
        return any(self.is_satisfied_by(key) for key in self._partitions)

    def is_satisfied_by(self, key: Hashable) -> bool:
        """Whether what happened to one partition makes the whole enough."""
        self._moved[key] = None
        available = self._reader.available(self._partitions[key])
        if available is None or not self._available:
            return available != 0
        self._available[key] = available
        return sum(self._available.values()) >= self._reader.min_bytes

    def on_complete(self, *, expired: bool) -> None:
        """Read again, and answer with what is there."""
        assert self._respond is not None
        self._respond(self._read_again)

    def _read_again(self) -> FetchResponse:
        if any(size_of(answer) for _, answer in self._answers):
            # What is found where something moved leaves less room for the rest.
            answers = self._reader.read_again(self._context.partitions)
        else:
            moved = dict(self._moved)
            answers = [answer for answer in self._answers if answer[0].key not in moved]
            answers += self._reader.read_again([self._partitions[key] for key in moved])
        return _sent(self._request, self._context, self._reader, answers)

    def then(self, respond: Respond) -> None:
        """Wait in purgatory, and answer from there."""
        self._respond = respond
        timeout_seconds = self._request.body.max_wait_ms / 1000
        purgatory = self._request.services.partitions.waits.fetches
        purgatory.watch(self, self._partitions, timeout_seconds, self._since)


def fetch(request: Request) -> FetchResponse | Delayed:
    """Read what is there, or wait for it."""
    body: FetchRequest = request.body
    try:
        context = request.services.fetch_sessions.context(body, request.version, _listed(request), _forgotten(request))
    except KafkaError as error:
        return FetchResponse(error_code=error.code, responses=[])
    reader = FetchReader(request)
    began = request.services.partitions.waits.fetches.mark()
    answers = reader.read(context)
    if body.max_wait_ms <= 0 or not context.partitions or _is_enough(answers, reader.min_bytes):
        return _sent(request, context, reader, answers)
    return _Waiting(request, context, reader, answers, began)


def _is_enough(answers: Answers, min_bytes: int) -> bool:
    if any(
        answer.error_code or answer.preferred_read_replica >= 0 or answer.diverging_epoch.epoch >= 0
        for _, answer in answers
    ):
        return True
    return sum(size_of(answer) for _, answer in answers) >= min_bytes


def _listed(request: Request) -> list[CachedPartition]:
    names = request.services.metadata.snapshot.topic_names
    listed = []
    for topic in request.body.topics:
        # An id that we do not know yet has no name; it is answered as such.
        name = topic.topic if request.version < _TOPIC_IDS_VERSION else names.get(topic.topic_id, "")
        for wanted in topic.partitions:
            listed.append(CachedPartition(TopicPartition(name, wanted.partition), topic.topic_id, wanted))
    return listed


def _forgotten(request: Request) -> list[SessionKey]:
    has_ids = request.version >= _TOPIC_IDS_VERSION
    return [
        (topic.topic_id if has_ids else topic.topic, partition)
        for topic in request.body.forgotten_topics_data
        for partition in topic.partitions
    ]


def _sent(request: Request, context: FetchContext, reader: FetchReader, answers: Answers) -> FetchResponse:
    """Make the response; beyond the client's quota it is empty, and the client may ask again when it has waited."""
    if admits_fetch(request, sum(size_of(answer) for _, answer in answers)):
        reader.count_sent(answers)
        return _response(request, context, answers)
    if context.is_incremental:
        return FetchResponse(error_code=0, session_id=context.session_id, responses=[])
    # Clients begin anew after an empty answer to a list of all partitions.
    request.services.fetch_sessions.close(context.session_id)
    return FetchResponse(error_code=0, session_id=NO_SESSION, responses=[])


def _response(request: Request, context: FetchContext, answers: Answers) -> FetchResponse:
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
