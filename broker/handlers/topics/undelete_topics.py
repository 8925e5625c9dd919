"""UndeleteTopics (22001), versions 0. For the controller; others answer NOT_CONTROLLER. Ours alone.

Behavior: brings deleted topics back, by their ids, with their records, options and committed offsets. `new_name` gives
a topic another name. Errors of a topic: UNKNOWN_TOPIC_ID if it is not kept; TOPIC_ALREADY_EXISTS if its name is taken;
REQUEST_TIMED_OUT while it is still being deleted; REPLICA_NOT_AVAILABLE if brokers that it needs are down;
KAFKA_STORAGE_ERROR if they have given it up for its space. A topic that is back already is no error. The response waits
until all partitions have leaders; topics that are late after `timeout_ms` are REQUEST_TIMED_OUT, although they are
back. Without topics, the response lists all deleted topics that are kept, each with the error that it would get now.

Version notes: there is one version.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from ottla.broker.controller.kept_topics import DeletedTopic, KeptTopics
from ottla.broker.controller.term import Term
from ottla.broker.requests.audited import note_change
from ottla.broker.requests.metadata_wait import answer_when_met, has_leaders
from ottla.broker.requests.on_controller import OnController
from ottla.broker.requests.outcome import DONE, Outcome
from ottla.broker.requests.request import Delayed, TopicsRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Message
from ottla.protocol.messages.undelete_topics import (
    UndeletableTopic,
    UndeletableTopicResult,
    UndeleteTopicsRequest,
    UndeleteTopicsResponse,
)

_LATE = Outcome.of(ErrorCode.REQUEST_TIMED_OUT, "The topic is back, but not all of its partitions have leaders yet.")


class _Undeleted(NamedTuple):
    """What became of one topic; the name and the number of partitions are there if it is back."""

    topic_id: bytes
    outcome: Outcome
    name: str | None = None
    partitions: int = 0


def undelete_topics(request: TopicsRequest) -> Message | Delayed:
    """List deleted topics, or bring some back, on the controller's thread."""
    body: UndeleteTopicsRequest = request.body
    wanted = body.topics
    if wanted is None:
        return OnController(request.services.controller, _listed, _listing)

    def answer(outcome: list[_Undeleted] | KafkaError) -> Message | Delayed:
        return _refusal(outcome) if isinstance(outcome, KafkaError) else _wait(request, outcome)

    def work(term: Term) -> list[_Undeleted]:
        return [_undelete(term.kept_topics, each, validate_only=body.validate_only) for each in wanted]

    return OnController(request.services.controller, work, answer)


def _refusal(error: KafkaError) -> UndeleteTopicsResponse:
    code, message = Outcome.refused(error)
    return UndeleteTopicsResponse(throttle_time_ms=0, error_code=code, error_message=message, topics=[])


def _listed(term: Term) -> list[tuple[DeletedTopic, KafkaError | None]]:
    kept = term.kept_topics
    return [(each, kept.why_not(each, each.content.name)) for each in kept.all()]


def _listing(found: list[tuple[DeletedTopic, KafkaError | None]] | KafkaError) -> UndeleteTopicsResponse:
    if isinstance(found, KafkaError):
        return _refusal(found)
    rows = []
    for deleted, refusal in found:
        code, message = DONE if refusal is None else Outcome.refused(refusal)
        rows.append(
            UndeletableTopicResult(
                error_code=code,
                error_message=message,
                topic_id=deleted.topic_id,
                name=deleted.content.name,
                deleted_ms=deleted.content.deleted_ms,
                kept_until_ms=deleted.content.kept_until_ms,
                partitions=len(deleted.content.partitions),
                given_up_by=sorted(deleted.given_up),
            )
        )
    return UndeleteTopicsResponse(throttle_time_ms=0, error_code=0, error_message=None, topics=rows)


def _undelete(kept: KeptTopics, wanted: UndeletableTopic, *, validate_only: bool) -> _Undeleted:
    try:
        name, partitions = kept.undelete(wanted.topic_id, wanted.new_name, validate_only=validate_only)
    except KafkaError as error:
        return _Undeleted(wanted.topic_id, Outcome.refused(error))
    return _Undeleted(wanted.topic_id, DONE, name, partitions)


def _wait(request: TopicsRequest, undeleted: list[_Undeleted]) -> Message | Delayed:
    body: UndeleteTopicsRequest = request.body
    back = {each.name: each.partitions for each in undeleted if each.name is not None}
    if not body.validate_only:
        for name, partitions in back.items():
            note_change(request, "topic_undeleted", f"Topic:{name}", {"partitions": (None, partitions)})

    def answer(late: Set[str]) -> UndeleteTopicsResponse:
        rows = []
        for each in undeleted:
            code, message = _LATE if each.name in late else each.outcome
            rows.append(
                UndeletableTopicResult(
                    error_code=code,
                    error_message=message,
                    topic_id=each.topic_id,
                    name=each.name,
                    partitions=each.partitions,
                )
            )
        return UndeleteTopicsResponse(throttle_time_ms=0, error_code=0, error_message=None, topics=rows)

    conditions = {} if body.validate_only else {name: has_leaders(name, range(count)) for name, count in back.items()}
    return answer_when_met(request, body.timeout_ms, conditions, answer)
