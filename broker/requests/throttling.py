"""What becomes of requests from clients that are beyond a quota (KIP-124, KIP-219, KIP-599).

They are answered at once and told how long to wait, and their connections are muted for that long, so that a client
that does not wait is none the better for it. Produce is counted with the size of the request, and done before. Fetch is
counted with the records that it found; beyond the quota they are left out of the answer, and not counted. Changes of
topics are refused one by one in the versions that know a code for it. Besides, every request is counted with the time
that it took on the broker's threads, but for those that brokers send to each other.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, Final

from ottla.broker.replication.leader.fetch_sessions import replica_of
from ottla.broker.requests.request import AnyRequest
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Message

# A second of one thread is 100 % of it.
_PERCENT: Final = 100.0
_AMONG_BROKERS: Final = frozenset(
    {
        Api.LEADER_AND_ISR,
        Api.STOP_REPLICA,
        Api.UPDATE_METADATA,
        Api.CONTROLLED_SHUTDOWN,
        Api.ALTER_PARTITION,
        Api.ALLOCATE_PRODUCER_IDS,
        Api.WRITE_TXN_MARKERS,
    }
)


def throttled(request: AnyRequest, response: Message | None, worker_seconds: float) -> tuple[Message | None, int]:
    """Count a request that is about to be answered; return the answer, and for how many milliseconds to mute."""
    quotas, session, client_id = request.services.quotas, request.session, request.client_id
    throttle_ms = request.throttle_ms
    if request.api is Api.PRODUCE and quotas.produce.is_set:
        throttle_ms = max(throttle_ms, quotas.produce.record(session, client_id, request.size))
    if response is not None and quotas.request.is_set and not _is_among_brokers(request):
        throttle_ms = max(throttle_ms, quotas.request.record(session, client_id, worker_seconds * _PERCENT))
    if throttle_ms and response is not None and _tells_time(request.api, request.version):
        told: Any = response
        response = replace(told, throttle_time_ms=throttle_ms)
    return response, throttle_ms


def count_sending(request: AnyRequest, seconds: float) -> None:
    """Count the time that sending an answer took; whoever is beyond the quota by it waits after the next request."""
    quota = request.services.quotas.request
    if quota.is_set and not _is_among_brokers(request):
        quota.record(request.session, request.client_id, seconds * _PERCENT)


def fetch_bytes_max(request: AnyRequest) -> int:
    """Return how large an answer to Fetch may be: as large as always, but not beyond what a whole window may have."""
    most = request.services.config().fetch_max_bytes
    quota = request.services.quotas.fetch
    if quota.is_set and (window := quota.window_amount(request.session, request.client_id)) is not None:
        return min(most, max(int(window), 1))
    return most


def admits_fetch(request: AnyRequest, size: int) -> bool:
    """Whether records of this size may be sent now; where they may not, notes how long to wait."""
    quota = request.services.quotas.fetch
    if not quota.is_set or not size or _is_among_brokers(request):
        return True
    request.throttle_ms = quota.admit(request.session, request.client_id, size)
    return not request.throttle_ms


def has_mutation_quota(request: AnyRequest) -> bool:
    """Whether partitions must be counted before they are created or deleted."""
    return request.services.quotas.mutation.is_set


def take_mutations(request: AnyRequest, partitions: int, *, strict_since: int) -> None:
    """Count partitions that are about to be created or deleted; raise KafkaError where they must not be yet."""
    quota = request.services.quotas.mutation
    is_strict = request.version >= strict_since
    is_allowed, throttle_ms = quota.take(request.session, request.client_id, partitions, strict=is_strict)
    request.throttle_ms = max(request.throttle_ms, throttle_ms)
    if not is_allowed:
        raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)


def _is_among_brokers(request: AnyRequest) -> bool:
    return request.api in _AMONG_BROKERS or (request.api is Api.FETCH and replica_of(request.body)[0] >= 0)


@cache
def _tells_time(api: Api, version: int) -> bool:
    return any(field.name == "throttle_time_ms" and version in field.versions for field in api.response.wire_fields)
