"""The same bytes as kio, an independent implementation generated from Kafka's own schemas."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.index import KioIndexError, load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from tests.protocol.samples import TameRandom, sample

from ottla.protocol.api import Api
from ottla.protocol.codec import encode
from ottla.protocol.message import Message
from ottla.protocol.primitives import UUID_ZERO

SEEDS = range(4)

# Versions that Kafka 4 dropped, and with it kio: the oracle for these is Kafka 3.9 itself.
DROPPED = {
    Api.PRODUCE: 3,
    Api.FETCH: 4,
    Api.LIST_OFFSETS: 1,
    Api.LEADER_AND_ISR: 8,
    Api.STOP_REPLICA: 5,
    Api.UPDATE_METADATA: 9,
    Api.CONTROLLED_SHUTDOWN: 4,
    Api.OFFSET_COMMIT: 2,
    Api.OFFSET_FETCH: 1,
    Api.CREATE_TOPICS: 2,
    Api.DELETE_TOPICS: 1,
    Api.OFFSET_FOR_LEADER_EPOCH: 2,
    Api.WRITE_TXN_MARKERS: 1,
    Api.DESCRIBE_ACLS: 1,
    Api.CREATE_ACLS: 1,
    Api.DELETE_ACLS: 1,
    Api.DESCRIBE_CONFIGS: 1,
    Api.ALTER_REPLICA_LOG_DIRS: 1,
    Api.DESCRIBE_LOG_DIRS: 1,
    Api.CREATE_DELEGATION_TOKEN: 1,
    Api.RENEW_DELEGATION_TOKEN: 1,
    Api.EXPIRE_DELEGATION_TOKEN: 1,
    Api.DESCRIBE_DELEGATION_TOKEN: 1,
    Api.ALTER_PARTITION: 2,
}

CASES = [
    pytest.param(cls, load, api, version, id=f"{cls.__name__}-{version}")
    for api in Api
    if not api.is_own
    for cls, load in ((api.request, load_request_schema), (api.response, load_response_schema))
    for version in range(max(api.versions.first, DROPPED.get(api, 0)), api.versions.last + 1)
]


@pytest.mark.parametrize(("cls", "load", "api", "version"), CASES)
def test_kio_reads_and_writes_the_same_bytes(
    cls: type[Message], load: Callable[[int, int], Any], api: Api, version: int
) -> None:
    """What we write, kio reads to the same values in fields of the same names, and writes again byte for byte."""
    schema = load(api.value, version)
    for seed in SEEDS:
        message = sample(cls, version, TameRandom(seed))
        # kio refuses tags that it does not know.
        message = _without_ours(message)
        encoded = encode(message, version)

        theirs, size = entity_reader(schema)(memoryview(encoded), 0)
        written = io.BytesIO()
        entity_writer(schema)(written, theirs)

        assert size == len(encoded)
        assert written.getvalue() == encoded
        _assert_same(theirs, message, version)


@pytest.mark.parametrize("api", DROPPED)
def test_the_dropped_versions_are_really_missing_in_kio(api: Api) -> None:
    """When kio covers a version, this file must too."""
    with pytest.raises(KioIndexError):
        load_request_schema(api.value, DROPPED[api] - 1)


def _without_ours(value: Any) -> Any:
    """Return a message, or any value in one, without the fields that Kafka does not have."""
    match value:
        case Message():
            kept = [field for field in value.wire_fields if not field.is_own]
            return type(value)(**{field.name: _without_ours(getattr(value, field.name)) for field in kept})
        case list():
            return [_without_ours(item) for item in value]
        case _:
            return value


def _assert_same(theirs: Any, ours: Message, version: int) -> None:
    for field in ours.wire_fields:
        if version not in field.versions or field.is_own:
            continue
        name = field.name if hasattr(theirs, field.name) else field.name.removesuffix("_ms")
        _assert_same_value(getattr(theirs, name), getattr(ours, field.name), version)


def _assert_same_value(theirs: Any, ours: Any, version: int) -> None:
    match ours:
        case Message():
            _assert_same(theirs, ours, version)
        case list():
            assert len(theirs) == len(ours)
            for their_item, our_item in zip(theirs, ours, strict=True):
                _assert_same_value(their_item, our_item, version)
        case _:
            assert _plain(theirs) == (None if ours == UUID_ZERO else ours)


def _plain(theirs: Any) -> Any:
    match theirs:
        case UUID():
            return theirs.bytes
        case timedelta():
            return round(theirs.total_seconds() * 1000)
        case datetime():
            return round(theirs.timestamp() * 1000)
        case _:
            return theirs
