"""AlterClientQuotas (49), versions 0-1. Any broker answers.

Behavior: sets or removes quotas of entities (see `quota_entities.py`). Quotas that the request does not name stay as
they are. Removing a quota that is not set is no error. All changes of an entity are made, or none. INVALID_REQUEST: an
impossible entity, a quota that the entity cannot have, the same quota twice, a value that is not greater than 0, or a
fraction for a number of bytes or connections. UNSUPPORTED_VERSION: an unknown type of entity. `validate_only` only
checks.

Version notes: version 1 is flexible.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.quotas.entities import check_key, place_of, quota_entity, quota_text
from ottla.broker.requests.access import CLUSTER, check
from ottla.broker.requests.audited import note_change
from ottla.broker.requests.outcome import DONE, Outcome
from ottla.broker.requests.request import AdminRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    RequestEntryData,
    ResponseEntityData,
    ResponseEntryData,
)


def alter_client_quotas(request: AdminRequest) -> AlterClientQuotasResponse:
    """Change the quotas of entities."""
    body: AlterClientQuotasRequest = request.body
    try:
        check(request, CLUSTER)
        outcomes = [_alter(request, entry) for entry in body.entries]
    except KafkaError as error:
        outcomes = [Outcome.refused(error)] * len(body.entries)
    return AlterClientQuotasResponse(
        throttle_time_ms=0,
        entries=[_result(entry, outcome) for entry, outcome in zip(body.entries, outcomes, strict=True)],
    )


def _alter(request: AdminRequest, entry: RequestEntryData) -> Outcome:
    try:
        entity = quota_entity((each.entity_type, each.entity_name) for each in entry.entity)
        changes: dict[str, str | None] = {}
        for change in entry.ops:
            if change.key in changes:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{change.key} is changed twice")
            check_key(entity, change.key)
            changes[change.key] = None if change.remove else quota_text(entity, change.key, change.value)
        place = place_of(entity)
        if not request.body.validate_only:
            difference = request.services.cluster.change_entity_config(*place, lambda config: _changed(config, changes))
            note_change(request, "quotas_altered", f"Quota:{'/'.join(place)}", difference)
    except KafkaError as error:
        return Outcome.refused(error)
    return DONE


def _changed(config: Mapping[str, str], changes: Mapping[str, str | None]) -> Mapping[str, str]:
    changed = {**config, **changes}
    return {key: value for key, value in changed.items() if value is not None}


def _result(entry: RequestEntryData, outcome: Outcome) -> ResponseEntryData:
    return ResponseEntryData(
        error_code=outcome.code,
        error_message=outcome.message,
        entity=[
            ResponseEntityData(entity_type=each.entity_type, entity_name=each.entity_name) for each in entry.entity
        ],
    )
