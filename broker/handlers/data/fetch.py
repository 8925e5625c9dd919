"""Fetch (1), versions 0-17.

Behavior: reads each partition up to its limit and the request's limit, as file slices that are sent without a copy. If
there are fewer than `min_bytes`, the response waits in purgatory until there are enough, an error occurs, or
`max_wait_ms` is over. Consumers see nothing above the high watermark, and with read_committed nothing above the last
stable offset. Followers (`replica_id`, from version 15 on `replica_state`) read up to the end of the log; their fetch
offsets move the high watermark. A consumer in another rack may be sent to a follower there, and gets no records here.
A client above its quota gets an empty response.

In an incremental session most partitions have nothing new most of the time. These are recognized first, with as little
work as possible. Nothing is built for them, and the response leaves them out. A follower's idle partitions are not
looked at again until they change (replication/leader/fetch_sessions.py).

Version notes: versions below 4 carry older message formats, which we do not write: UNSUPPORTED_VERSION for each
partition. From version 3 on, the first partition with data returns a whole batch even if it exceeds the limits. From 11
on, followers serve consumers, up to their own high watermark. 12 tells a follower where its log diverges. 13 names
topics by id.
"""

from __future__ import annotations

from collections.abc import Hashable

from ottla.broker.common.purgatory import DelayedOperation, Mark
from ottla.broker.replication.leader.fetch_sessions import CachedPartition, FetchContext, SessionKey, replica_of
from ottla.broker.replication.partition import FollowerFetch, Partition, Read
from ottla.broker.requests.access import CLUSTER, TOPIC, allows, check, denied, is_open
from ottla.broker.requests.leader_hints import leader_hints
from ottla.broker.requests.replica_selector import NO_REPLICA, is_rack_aware, preferred_replica
from ottla.broker.requests.request import DataRequest, Delayed, Respond
from ottla.broker.requests.throttling import admits_fetch, fetch_bytes_max
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import NO_LEADER, TopicPartition
from ottla.protocol.messages.fetch import (
    NO_SESSION,
    READ_COMMITTED,
    TOPIC_IDS_VERSION,
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla.protocol.primitives import UUID_ZERO

_FORMAT_2_VERSION = 4
_STORAGE_ERROR_VERSION = 6
_READ_FOLLOWER_VERSION = 11
_HINTS_VERSION = 16
_HINTED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_NO_RECORDS = b""
_NO_EPOCH = EpochEndOffset()
_NO_LEADER_HINT = LeaderIdAndEpoch()
_DENIED = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

_Answers = list[tuple[CachedPartition, PartitionData]]


def fetch(request: DataRequest) -> FetchResponse | Delayed:
    """Read the records that are there, or wait for them."""
    body: FetchRequest = request.body
    if replica_of(body)[0] >= 0 and not is_open(request) and not allows(request, CLUSTER):
        # No session either: those of followers take the place of others.
        context = FetchContext(_listed(request), None, is_incremental=False)
        reader = _Reader(request)
        return _sent(request, context, reader, reader.read(context))
    try:
        context = request.services.fetch_sessions.context(body, request.version, _listed(request), _forgotten(request))
    except KafkaError as error:
        return FetchResponse(error_code=error.code, responses=[])
    reader = _Reader(request)
    began = None if context.watch is not None else request.services.partitions.waits.fetches.mark()
    answers = reader.read(context)
    if body.max_wait_ms <= 0 or context.is_empty or _is_enough(answers, reader.min_bytes):
        return _sent(request, context, reader, answers)
    return _Waiting(request, context, reader, answers, began)


def _is_enough(answers: _Answers, min_bytes: int) -> bool:
    if any(
        answer.error_code or answer.preferred_read_replica >= 0 or answer.diverging_epoch.epoch >= 0
        for _, answer in answers
    ):
        return True
    return sum(_size_of(answer) for _, answer in answers) >= min_bytes


def _listed(request: DataRequest) -> list[CachedPartition]:
    names = request.services.metadata.snapshot.topic_names
    listed = []
    for topic in request.body.topics:
        # A topic id that we do not know yet has no name, and gets an error.
        name = topic.topic if request.version < TOPIC_IDS_VERSION else names.get(topic.topic_id, "")
        for wanted in topic.partitions:
            listed.append(CachedPartition(TopicPartition(name, wanted.partition), topic.topic_id, wanted))
    return listed


def _forgotten(request: DataRequest) -> list[SessionKey]:
    has_ids = request.version >= TOPIC_IDS_VERSION
    return [
        (topic.topic_id if has_ids else topic.topic, partition)
        for topic in request.body.forgotten_topics_data
        for partition in topic.partitions
    ]


def _sent(request: DataRequest, context: FetchContext, reader: _Reader, answers: _Answers) -> FetchResponse:
    """Return the response. Above the client's quota it is empty, and the client retries after its throttle time."""
    if admits_fetch(request, sum(_size_of(answer) for _, answer in answers)):
        reader.count_sent(answers)
        return _response(request, context, answers)
    if context.is_incremental:
        return FetchResponse(error_code=0, session_id=context.session_id, responses=[])
    # A client starts over after an empty response to a full list of partitions.
    request.services.fetch_sessions.close(context.session_id)
    return FetchResponse(error_code=0, session_id=NO_SESSION, responses=[])


def _response(request: DataRequest, context: FetchContext, answers: _Answers) -> FetchResponse:
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


def _size_of(answer: PartitionData) -> int:
    """Return the bytes of records in an answer."""
    return len(answer.records) if answer.records is not None else 0


class _Reader:
    """Reads the partitions of one request."""

    __slots__ = (
        "_broker_epoch",
        "_committed_only",
        "_denied",
        "_is_follower",
        "_is_rack_aware",
        "_max_bytes",
        "_may_read_follower",
        "_now_ms",
        "_partitions",
        "_replica_id",
        "_request",
        "_throttle",
        "min_bytes",
    )

    def __init__(self, request: DataRequest) -> None:
        body: FetchRequest = request.body
        self._request = request
        self._partitions = request.services.partitions
        self._now_ms = request.services.clock()
        self._replica_id, self._broker_epoch = replica_of(body)
        self._is_follower = self._replica_id >= 0
        self._committed_only = body.isolation_level == READ_COMMITTED
        self._max_bytes = body.max_bytes
        if not self._is_follower:
            self._max_bytes = min(body.max_bytes, fetch_bytes_max(request))
        self.min_bytes = min(body.min_bytes, self._max_bytes)
        throttles = self._partitions.throttles
        self._throttle = throttles.leader if throttles is not None and self._is_follower else None
        self._may_read_follower = request.version >= _READ_FOLLOWER_VERSION and not self._is_follower
        self._is_rack_aware = not self._is_follower and is_rack_aware(request)
        # Topics that the client may not read.
        self._denied: frozenset[str] = frozenset()

    def read(self, context: FetchContext) -> _Answers:
        """Read the partitions one after another until the request's limit is used up."""
        if not is_open(self._request):
            self._denied = self._denied_topics(context)
        # One with nothing to send is not idle if it still waits for something: to join the ISR, or for the throttle.
        idle: list[CachedPartition] = []
        answers = self._read_in_turn(context.partitions, idle if context.is_incremental else None)
        context.found_idle(idle)
        return answers

    def _denied_topics(self, context: FetchContext) -> frozenset[str]:
        topics = {cached.key.topic for cached in context.partitions}
        if self._is_follower:
            return frozenset() if allows(self._request, CLUSTER) else frozenset(topics)
        # A topic without a name is checked when the name is known.
        return denied(self._request, TOPIC, topics - {""})

    def read_again(self, partitions: list[CachedPartition]) -> _Answers:
        """Read for a request that has waited. The follower's position is not noted again: it may be outdated."""
        return self._read_in_turn(partitions, None, is_again=True)

    def available(self, cached: CachedPartition) -> int | None:
        """Return how many bytes a waiting request would find now; None if it must not wait any longer.

        It must not wait if it would find (a) an error, or another role of this broker, or (b) data in a closed segment:
        more data would come from another segment, and so only with the next fetch. If `min_bytes` is at most 1, any
        data counts as one byte.
        """
        wanted = cached.wanted
        offset, epoch = wanted.fetch_offset, wanted.current_leader_epoch
        try:
            partition = self._partitions.get(cached.key)
        except KafkaError:
            return None  # (a)
        role, log = partition.role, partition.log
        if not partition.is_leader and (role.leader_id == NO_LEADER or not self._may_read_follower):
            return None  # (a)
        if self._is_follower:
            upper = log.log_end_offset
            if role.leader_epoch != cached.checked_epoch or self._replica_id not in role.replicas:
                return None  # (a)
        else:
            upper = partition.upper_offset(committed_only=self._committed_only)
            if epoch >= 0 and epoch != role.leader_epoch:
                return None  # (a)
        if not log.log_start_offset <= offset <= log.log_end_offset:
            return None  # (a)
        if upper <= offset or self._is_held(cached):
            return 0
        if self.min_bytes <= 1:
            return 1
        if log.active.base_offset > offset:
            return None  # (b)
        try:
            found = log.read(offset, wanted.partition_max_bytes, upper)
        except KafkaError:
            return None  # (a)
        return len(found) if found is not None else 0

    def _read_in_turn(
        self, partitions: list[CachedPartition], idle: list[CachedPartition] | None, *, is_again: bool = False
    ) -> _Answers:
        """Read partitions; without answers for those that have nothing new if there is a list for idle ones."""
        left = self._max_bytes
        is_first = True
        answers: _Answers = []
        is_idle = self._is_idle_for_follower if self._is_follower else self._is_idle_for_consumer
        denied_topics = self._denied
        for cached in partitions:
            if denied_topics and cached.key.topic in denied_topics:
                answers.append((cached, self._refused(cached, _DENIED)))
                continue
            if idle is not None and is_idle(cached):
                idle.append(cached)
                continue
            is_held = self._is_held(cached)
            limit = 0 if is_held else max(min(cached.wanted.partition_max_bytes, left), 0)
            answer = self._read_one(cached, limit, is_first and not is_held, idle is not None, is_again)
            if answer is None:
                continue
            size = _size_of(answer)
            left -= size
            is_first = is_first and not size
            answers.append((cached, answer))
        return answers

    def _read_one(
        self,
        cached: CachedPartition,
        max_bytes: int,
        at_least_one: bool,
        may_skip: bool,
        is_again: bool,
    ) -> PartitionData | None:
        """Read one partition; return None if it has nothing new and may be left out."""
        try:
            partition = self._hosted(cached)
            if not self._is_follower:
                return self._read_for_consumer(cached, partition, max_bytes, at_least_one)
            if is_again:
                read = partition.read_again_for_follower(
                    cached.wanted.fetch_offset, cached.checked_epoch, max_bytes, at_least_one=at_least_one
                )
            else:
                fetch = cached.follower_fetch or self._follower_fetch(cached)
                epoch = partition.role.leader_epoch
                read = partition.read_for_follower(fetch, max_bytes, at_least_one=at_least_one)
                if read.diverging is None:
                    # The epoch in which the records were read: the role may have changed just before.
                    cached.checked_epoch = epoch if fetch.current_leader_epoch < 0 else fetch.current_leader_epoch
        except KafkaError as error:
            if self._request.services.metadata.snapshot.topic(cached.key.topic) is not None:
                self._partitions.failed_reads[cached.key.topic] += 1
            return self._refused(cached, error)
        if (
            may_skip
            and read.records is None
            and read.high_watermark == cached.high_watermark
            and read.log_start_offset == cached.log_start_offset
            and read.diverging is None
        ):
            return None
        return _answer(cached, read)

    def _hosted(self, cached: CachedPartition) -> Partition:
        """Return the partition; raise KafkaError if this broker has none that fits the request."""
        request = self._request
        if request.version < _FORMAT_2_VERSION:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the stored format needs Fetch version 4 or later")
        if request.version >= TOPIC_IDS_VERSION and not cached.key.topic:
            names = request.services.metadata.snapshot.topic_names
            # A follower may ask before the metadata has the topic.
            name = names.get(cached.topic_id) or self._partitions.topic_name(cached.topic_id)
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
            if not self._is_follower:
                check(request, TOPIC, name)
            cached.key = TopicPartition(name, cached.wanted.partition)
        partition = self._partitions.get(cached.key)
        if cached.topic_id not in (UUID_ZERO, partition.topic_id):
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{cached.key.topic} has another id")
        # A table lookup with the same object as the table's key is much faster than with an equal one.
        cached.key = partition.partition
        return partition

    # Idle partitions

    def _is_idle_for_consumer(self, cached: CachedPartition) -> bool:
        """Whether a consumer in a session has read everything, and its last response is still up to date."""
        partition = self._partitions.find(cached.key)
        if partition is None:
            return False
        wanted, role, log = cached.wanted, partition.role, partition.log
        return (
            log.high_watermark == cached.high_watermark
            and log.log_start_offset == cached.log_start_offset
            and log.high_watermark <= wanted.fetch_offset <= log.log_end_offset
            and role.leader_id == partition.node_id
            and wanted.current_leader_epoch in (-1, role.leader_epoch)
            and cached.topic_id in (UUID_ZERO, partition.topic_id)
            and not self._is_rack_aware
            and _is_usable(partition)
        )

    def _is_idle_for_follower(self, cached: CachedPartition) -> bool:
        """Whether a follower in a session has everything and knows so. Notes that it still fetches."""
        partition = self._partitions.find(cached.key)
        fetch = cached.follower_fetch
        return (
            partition is not None
            and fetch is not None
            and cached.high_watermark == fetch.offset
            and cached.log_start_offset == partition.log.log_start_offset
            and cached.checked_epoch == fetch.current_leader_epoch
            and cached.topic_id in (UUID_ZERO, partition.topic_id)
            and _is_usable(partition)
            and partition.note_idle_follower(fetch, self._now_ms)
        )

    # Consumers

    def _read_for_consumer(
        self, cached: CachedPartition, partition: Partition, max_bytes: int, at_least_one: bool
    ) -> PartitionData:
        wanted = cached.wanted
        if self._is_rack_aware and partition.is_leader:
            partition.check_leader(wanted.current_leader_epoch)
            preferred = preferred_replica(self._request, partition, wanted.fetch_offset)
            if preferred != NO_REPLICA:
                log = partition.log
                found = Read(None, log.high_watermark, log.last_stable_offset, log.log_start_offset, None)
                return _answer(cached, found, preferred)
        return _answer(
            cached,
            partition.read(
                wanted.fetch_offset,
                max_bytes,
                wanted.current_leader_epoch,
                committed_only=self._committed_only,
                at_least_one=at_least_one,
                client_may_read_follower=self._may_read_follower,
            ),
        )

    # Followers

    def _follower_fetch(self, cached: CachedPartition) -> FollowerFetch:
        wanted = cached.wanted
        cached.follower_fetch = FollowerFetch(
            self._replica_id,
            self._broker_epoch,
            wanted.fetch_offset,
            wanted.last_fetched_epoch,
            wanted.current_leader_epoch,
            wanted.log_start_offset,
        )
        return cached.follower_fetch

    def _is_held(self, cached: CachedPartition) -> bool:
        """Whether a follower outside the ISR gets no records for now, because of the replication throttle."""
        throttle = self._throttle
        if throttle is None or not throttle.is_throttled(cached.key):
            return False
        partition = self._partitions.find(cached.key)
        return partition is not None and self._replica_id not in partition.isr and throttle.is_exceeded()

    def count_sent(self, answers: _Answers) -> None:
        """Count the bytes sent of throttled partitions. What was read before the request waited is not counted."""
        throttle = self._throttle
        if throttle is not None:
            throttle.record(sum(_size_of(answer) for cached, answer in answers if throttle.is_throttled(cached.key)))

    def _refused(self, cached: CachedPartition, error: KafkaError) -> PartitionData:
        code, version = error.code, self._request.version
        if code is ErrorCode.KAFKA_STORAGE_ERROR and version < _STORAGE_ERROR_VERSION:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        leader = _NO_LEADER_HINT
        if version >= _HINTS_VERSION and code in _HINTED:
            known = leader_hints(self._request, [cached.key]).leaders.get(cached.key)
            if known is not None:
                leader = LeaderIdAndEpoch(leader_id=known[0], leader_epoch=known[1])
        return PartitionData(
            partition_index=cached.wanted.partition,
            error_code=int(code),
            high_watermark=-1,
            current_leader=leader,
            aborted_transactions=None,
            records=_NO_RECORDS,
        )


def _is_usable(partition: Partition) -> bool:
    """Whether the disk works and is not nearly full; otherwise the partition takes the full check."""
    guard = partition.log.guard
    return guard is None or guard.refusal is None


def _answer(cached: CachedPartition, read: Read, preferred_read_replica: int = NO_REPLICA) -> PartitionData:
    diverging, aborted = read.diverging, read.aborted_transactions
    return PartitionData(
        partition_index=cached.wanted.partition,
        error_code=0,
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        diverging_epoch=_NO_EPOCH
        if diverging is None
        else EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.end_offset),
        aborted_transactions=None
        if aborted is None
        else [AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in aborted],
        preferred_read_replica=preferred_read_replica,
        records=read.records if read.records is not None else _NO_RECORDS,
    )


class _Waiting(DelayedOperation):
    """A fetch that found too little. It waits for bytes, an error, or the end of its time.

    Of hundreds of partitions, usually one changes. Only those that changed are checked, and read again at the end.
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
        self, request: DataRequest, context: FetchContext, reader: _Reader, answers: _Answers, since: Mark | None
    ) -> None:
        super().__init__()
        self._request = request
        self._context = context
        self._reader = reader
        # The answers of the first read, which began after the mark `since`, or after the changes were taken.
        self._answers = answers
        self._since = since
        self._respond: Respond | None = None
        self._partitions: dict[Hashable, CachedPartition] = {cached.key: cached for cached in context.partitions}
        # The changed partitions, in the order of their changes.
        self._moved: dict[Hashable, None] = {}
        # Available bytes by partition, if their number matters; several threads change it.
        self._available: dict[Hashable, int] = {}
        if reader.min_bytes > 1:
            self._available = {cached.key: _size_of(answer) for cached, answer in answers}

    def is_satisfied(self) -> bool:
        """Whether reading again would find enough, or an error."""
        return any(self.is_satisfied_by(key) for key in self._partitions)

    def is_satisfied_by(self, key: Hashable) -> bool:
        """Whether the change of one partition makes the whole request complete."""
        cached = self._find(key)
        if cached is None:
            return False
        self._moved[key] = None
        available, min_bytes = self._reader.available(cached), self._reader.min_bytes
        if available is None or min_bytes <= 1:
            return available != 0
        self._available[key] = available
        return sum(tuple(self._available.values())) >= min_bytes

    def _find(self, key: Hashable) -> CachedPartition | None:
        return self._partitions.get(key) or self._context.find(key)

    def on_complete(self, *, expired: bool) -> None:
        """Read again, and answer with the result."""
        assert self._respond is not None
        self._respond(self._read_again)

    def _read_again(self) -> FetchResponse:
        moved = {key: cached for key in tuple(self._moved) if (cached := self._find(key)) is not None}
        if any(_size_of(answer) for _, answer in self._answers):
            # Data in a changed partition leaves less room for the others.
            answers = self._reader.read_again(list((self._partitions | moved).values()))
        else:
            answers = [answer for answer in self._answers if answer[0].key not in moved]
            answers += self._reader.read_again(list(moved.values()))
        return _sent(self._request, self._context, self._reader, answers)

    def then(self, respond: Respond) -> None:
        """Wait in purgatory, then respond."""
        self._respond = respond
        timeout_seconds = self._request.body.max_wait_ms / 1000
        purgatory, standing = self._request.services.partitions.waits.fetches, self._context.watch
        keys = self._partitions if standing is None else ()
        purgatory.watch(self, keys, timeout_seconds, self._since, standing)
