"""What happens to requests of clients that are above a quota (KIP-124, KIP-219, KIP-599).

The client is answered at once and told how long to wait. Its connection is muted for that time, so a client that does
not wait gains nothing.

- Produce is carried out, and counts with the size of the request.
- Fetch counts with the size of the records found. Above the quota they are left out of the response and do not count.
- Changes of topics are refused one by one, in versions that have an error code for it.
- Every request also counts with its time on the broker's threads, except requests of brokers. A client without a
  broker's right is not one, whatever it asks for.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, Final

from ottla.broker.replication.leader.fetch_sessions import replica_of
from ottla.broker.requests.access import comes_from_broker
from ottla.broker.requests.request import AnyRequest
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Message

# One second of a thread per second is 100 %.
_PERCENT: Final = 100.0
# Clients send these, too.
_SHARED: Final = frozenset({Api.FETCH, Api.OFFSET_FOR_LEADER_EPOCH, Api.ADD_PARTITIONS_TO_TXN})


def throttled(request: AnyRequest, response: Message | None, worker_seconds: float) -> tuple[Message | None, int]:
    """Count a request before it is answered; return the response and the milliseconds to mute the connection."""
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
    """Count the time that sending a response took. A client above its quota waits after its next request."""
    quota = request.services.quotas.request
    if quota.is_set and not _is_among_brokers(request):
        quota.record(request.session, request.client_id, seconds * _PERCENT)


def fetch_bytes_max(request: AnyRequest) -> int:
    """Return the maximum size of a Fetch response: `fetch.max.bytes`, but no more than the quota of a whole window."""
    most = request.services.config().fetch_max_bytes
    quota = request.services.quotas.fetch
    if quota.is_set and (window := quota.window_amount(request.session, request.client_id)) is not None:
        return min(most, max(int(window), 1))
    return most


def admits_fetch(request: AnyRequest, size: int) -> bool:
    """Whether records of this size may be sent now; if not, set the request's throttle time."""
    quota = request.services.quotas.fetch
    if not quota.is_set or not size or _is_among_brokers(request):
        return True
    request.throttle_ms = quota.admit(request.session, request.client_id, size)
    return not request.throttle_ms


def has_mutation_quota(request: AnyRequest) -> bool:
    """Whether a quota limits how many partitions are created and deleted."""
    return request.services.quotas.mutation.is_set


def take_mutations(request: AnyRequest, partitions: int, *, strict_since: int) -> None:
    """Count partitions before they are created or deleted; raise THROTTLING_QUOTA_EXCEEDED if it is too early."""
    quota = request.services.quotas.mutation
    is_strict = request.version >= strict_since
    is_allowed, throttle_ms = quota.take(request.session, request.client_id, partitions, strict=is_strict)
    request.throttle_ms = max(request.throttle_ms, throttle_ms)
    if not is_allowed:
        raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)


def _is_among_brokers(request: AnyRequest) -> bool:
    api = request.api
    if api in _SHARED and not (api is Api.FETCH and replica_of(request.body)[0] >= 0):
        return False
    return comes_from_broker(request.services.security.authorizer, request.session, api)


@cache
def _tells_time(api: Api, version: int) -> bool:
    return any(field.name == "throttle_time_ms" and version in field.versions for field in api.response.wire_fields)
