"""The entities of DescribeClientQuotas and AlterClientQuotas, and the nodes of their quotas in ZooKeeper.

    user                  /config/users/<user>
    user and client-id    /config/users/<user>/clients/<client id>
    client-id             /config/clients/<client id>
    ip                    /config/ips/<address>

A name is null for the default, which is `<default>` in paths.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.broker.cluster.znodes import DEFAULT_ENTITY
from ottla.broker.config.option import LONG_MAX
from ottla.broker.quotas.client_quotas import CLIENTS, CONNECTION, FETCH, IPS, MUTATION, PRODUCE, REQUEST, USERS
from ottla.protocol.entity_names import desanitized, sanitized
from ottla.protocol.errors import ErrorCode, KafkaError

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

_TYPES: Final = (USER, CLIENT_ID, IP)
_WHOLE_NUMBERS: Final = frozenset({PRODUCE, FETCH, CONNECTION})
_CLIENT_KEYS: Final = frozenset({PRODUCE, FETCH, REQUEST, MUTATION})
_IP_KEYS: Final = frozenset({CONNECTION})
_EPSILON: Final = 1e-6

# Names by type; None is the default of the type.
QuotaEntity = Mapping[str, str | None]


class Place(NamedTuple):
    """Type and name of a node below /config."""

    entity_type: str
    name: str


def quota_entity(named: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Check the entity in a request; raise KafkaError if it cannot exist."""
    entity: dict[str, str | None] = {}
    for entity_type, name in named:
        check_type(entity_type, seen=entity_type in entity)
        if name == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the name of a {entity_type} cannot be empty")
        entity[entity_type] = name
    if not entity:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names no entity")
    if IP in entity and len(entity) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "an ip cannot be combined with a user or a client-id")
    address = entity.get(IP)
    if address is not None:
        _check_address(address)
    return entity


def check_type(entity_type: str, *, seen: bool) -> None:
    """Raise KafkaError for an unknown or repeated type."""
    if not entity_type:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the type of an entity cannot be empty")
    if entity_type not in _TYPES:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{entity_type} is not one of {', '.join(_TYPES)}")
    if seen:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{entity_type} is named twice")


def place_of(entity: QuotaEntity) -> Place:
    """Return the node of an entity's quotas."""
    if IP in entity:
        return Place(IPS, _part(entity[IP]))
    if USER not in entity:
        return Place(CLIENTS, _part(entity[CLIENT_ID]))
    below = f"/{CLIENTS}/{_part(entity[CLIENT_ID])}" if CLIENT_ID in entity else ""
    return Place(USERS, _part(entity[USER]) + below)


def entity_of(place: Place) -> QuotaEntity:
    """Return the entity whose quotas are in a node."""
    if place.entity_type == USERS:
        user, _, client_id = place.name.partition(f"/{CLIENTS}/")
        return {USER: _name(user), **({CLIENT_ID: _name(client_id)} if client_id else {})}
    return {CLIENT_ID if place.entity_type == CLIENTS else IP: _name(place.name)}


def quotas_in(entity: QuotaEntity, config: Mapping[str, str]) -> dict[str, float]:
    """Return the quotas among the options of an entity, without credentials and values that are not numbers."""
    found = {}
    for key in sorted(_keys(entity) & config.keys()):
        try:
            found[key] = float(config[key])
        except ValueError:
            continue
    return found


def quota_text(entity: QuotaEntity, key: str, value: float) -> str:
    """Check the value of a quota; return it as it is stored."""
    check_key(entity, key)
    if not 0 < value <= LONG_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key} must be greater than 0")
    if key not in _WHOLE_NUMBERS:
        return str(float(value))
    whole = int(value + _EPSILON)
    if abs(whole - value) > _EPSILON or not whole:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key} must be a whole number")
    return str(whole)


def check_key(entity: QuotaEntity, key: str) -> None:
    """Raise KafkaError for a quota that an entity cannot have."""
    if key not in _keys(entity):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key} is not a quota of {' and '.join(entity)}")


def _keys(entity: QuotaEntity) -> frozenset[str]:
    return _IP_KEYS if IP in entity else _CLIENT_KEYS


def _check_address(text: str) -> None:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        # Looking up a host name would block a thread that clients wait for, and the result may change.
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{text} is not an address") from None


def _part(name: str | None) -> str:
    return DEFAULT_ENTITY if name is None else sanitized(name)


def _name(part: str) -> str | None:
    return None if part == DEFAULT_ENTITY else desanitized(part)
