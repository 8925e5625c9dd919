"""DescribeClientQuotas (48), versions 0-1. Any broker answers.

Behavior: returns the quotas of all entities (see `quota_entities.py`) that match each component of the filter. A
component has a type, and matches one name, the default, or both. Entities with further types match too, unless the
filter is strict, so a filter without components matches everything. INVALID_REQUEST: the same type twice, an ip
together with other types, an unknown kind of match, or a match by name without a name. UNSUPPORTED_VERSION: an unknown
type.

Version notes: version 1 is flexible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ottla.broker.quotas.client_quotas import CLIENTS, IPS, USERS
from ottla.broker.quotas.entities import (
    CLIENT_ID,
    IP,
    USER,
    Place,
    QuotaEntity,
    check_type,
    entity_of,
    place_of,
    quotas_in,
)
from ottla.broker.requests.outcome import DONE, Outcome
from ottla.broker.requests.request import AdminRequest
from ottla.broker.requests.services import AdminServices
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

_EXACT, _DEFAULT, _ANY = 0, 1, 2

_Match = Callable[[str | None], bool]


def describe_client_quotas(request: AdminRequest) -> DescribeClientQuotasResponse:
    """Return the quotas that match the filter."""
    body: DescribeClientQuotasRequest = request.body
    outcome, entries = DONE, None
    try:
        matches = _matches(body.components)
        entries = [
            EntryData(
                entity=[EntityData(entity_type=each, entity_name=name) for each, name in entity.items()],
                values=[ValueData(key=key, value=value) for key, value in quotas.items()],
            )
            for entity, config in _configs(request.services, matches, body)
            if _is_match(entity, matches, strict=body.strict) and (quotas := quotas_in(entity, config))
        ]
    except KafkaError as error:
        outcome = Outcome.refused(error)
    return DescribeClientQuotasResponse(
        throttle_time_ms=0, error_code=outcome.code, error_message=outcome.message, entries=entries
    )


def _matches(components: list[ComponentData]) -> dict[str, _Match]:
    matches: dict[str, _Match] = {}
    for component in components:
        check_type(component.entity_type, seen=component.entity_type in matches)
        matches[component.entity_type] = _match(component)
    if IP in matches and len(matches) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "an ip cannot be combined with a user or a client-id")
    return matches


def _match(component: ComponentData) -> _Match:
    wanted = component.match
    if component.match_type == _ANY:
        return lambda _name: True
    if component.match_type == _DEFAULT:
        return lambda name: name is None
    if component.match_type != _EXACT or wanted is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"invalid match type {component.match_type} with {wanted}")
    return lambda name: name == wanted


def _is_match(entity: QuotaEntity, matches: Mapping[str, _Match], *, strict: bool) -> bool:
    if strict and entity.keys() != matches.keys():
        return False
    return all(each in entity and is_match(entity[each]) for each, is_match in matches.items())


def _configs(
    services: AdminServices, matches: Mapping[str, _Match], body: DescribeClientQuotasRequest
) -> Iterator[tuple[QuotaEntity, Mapping[str, str]]]:
    """Read the configs of all entities that may match."""
    cluster = services.cluster
    if not matches.keys() & {USER, CLIENT_ID}:
        for name, config in cluster.entity_configs(IPS).items():
            yield entity_of(Place(IPS, name)), config
    if IP in matches:
        return
    if USER not in matches:
        for name, config in cluster.entity_configs(CLIENTS).items():
            yield entity_of(Place(CLIENTS, name)), config
    if CLIENT_ID not in matches:
        for name, config in cluster.entity_configs(USERS).items():
            yield entity_of(Place(USERS, name)), config
    if not body.strict or CLIENT_ID in matches:
        below = [f"{user}/{CLIENTS}" for user in _users(services, body)]
        read = cluster.entity_configs_of([f"{USERS}/{path}" for path in below])
        for path in below:
            for name, config in read[f"{USERS}/{path}"].items():
                yield entity_of(Place(USERS, f"{path}/{name}")), config


def _users(services: AdminServices, body: DescribeClientQuotasRequest) -> list[str]:
    """Return the users that may match, as they appear in paths: just one if a name or the default is wanted."""
    for component in body.components:
        if component.entity_type == USER and component.match_type != _ANY:
            named = component.match if component.match_type == _EXACT else None
            return [place_of({USER: named}).name]
    return services.cluster.entity_names(USERS)
