"""DeleteTopics (20), versions 0-6. For the controller; others answer NOT_CONTROLLER for each topic.

Behavior: marks topics for deletion, and responds when they have left this broker's metadata. Topics that are still
there after `timeout_ms` are REQUEST_TIMED_OUT, although they will be deleted; if it is 0 or less, this is true for all
of them. The response also waits for topics that were marked before. Unknown topics: UNKNOWN_TOPIC_OR_PARTITION or
UNKNOWN_TOPIC_ID. With `delete.topic.enable=false` each topic is TOPIC_DELETION_DISABLED.

Version notes: from version 6 on, a request gives the name or the id of a topic; both or neither is INVALID_REQUEST.
Versions before 3 have no code for disabled deletion: INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Set

from ottla.broker.requests.access import TOPIC, check
from ottla.broker.requests.audited import note_change
from ottla.broker.requests.metadata_wait import Condition, answer_when_met, is_gone
from ottla.broker.requests.outcome import DONE, Outcome
from ottla.broker.requests.request import Delayed, TopicsRequest
from ottla.broker.requests.throttling import has_mutation_quota, take_mutations
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Message
from ottla.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.primitives import UUID_ZERO

_DELETION_DISABLED_VERSION = 3
_STRICT_QUOTA_VERSION = 5
_LATE = Outcome.of(ErrorCode.REQUEST_TIMED_OUT, "The topic is being deleted, but not all brokers are done yet.")


def delete_topics(request: TopicsRequest) -> Message | Delayed:
    """Delete topics, and wait until they are gone."""
    body: DeleteTopicsRequest = request.body
    wanted = body.topics or [DeleteTopicState(name=name, topic_id=UUID_ZERO) for name in body.topic_names]
    conditions: dict[str, Condition] = {}
    results = [_delete(request, topic, conditions) for topic in wanted]

    def answer(late: Set[str]) -> DeleteTopicsResponse:
        return DeleteTopicsResponse(
            responses=[_result(name, topic_id, _LATE if name in late else end) for name, topic_id, end in results]
        )

    return answer_when_met(request, body.timeout_ms, conditions, answer)


def _delete(
    request: TopicsRequest, wanted: DeleteTopicState, conditions: dict[str, Condition]
) -> tuple[str | None, bytes, Outcome]:
    """Delete one topic, and add the condition for it to be gone; return its name, its id and the outcome so far."""
    name, topic_id = wanted.name, wanted.topic_id
    try:
        if not request.services.cluster.is_controller:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        found = _name(request, wanted)
        if wanted.name is None:
            # A client that may not describe the topic must not learn its name.
            check(request, TOPIC, found, as_api=Api.METADATA)
        name = found
        check(request, TOPIC, name)
        if name not in conditions:
            known = request.services.metadata.snapshot.topic(name)
            if known is not None and has_mutation_quota(request):
                take_mutations(request, len(known.partitions), strict_since=_STRICT_QUOTA_VERSION)
            request.services.cluster.delete_topic(name)
            note_change(
                request,
                "topic_deleted",
                f"Topic:{name}",
                {} if known is None else {"partitions": (len(known.partitions), None)},
            )
            conditions[name] = is_gone(name, None if known is None else known.id)
    except KafkaError as error:
        if error.code is ErrorCode.TOPIC_DELETION_DISABLED and request.version < _DELETION_DISABLED_VERSION:
            error = KafkaError(ErrorCode.INVALID_REQUEST, error.code.description)
        return name, topic_id, Outcome.refused(error)
    return name, topic_id, DONE


def _name(request: TopicsRequest, wanted: DeleteTopicState) -> str:
    if (wanted.name is None) == (wanted.topic_id == UUID_ZERO):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "give either the name or the id of a topic")
    if wanted.name is not None:
        return wanted.name
    known = request.services.metadata.snapshot.topic_by_id(wanted.topic_id)
    if known is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    return known.name


def _result(name: str | None, topic_id: bytes, outcome: Outcome) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=outcome.code, error_message=outcome.message)
