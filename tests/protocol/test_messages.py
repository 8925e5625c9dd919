"""Every message in every version: encoded, decoded, and compared with its construct declaration."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import MISSING, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples
from tests.protocol.samples import sample

import ottla.protocol.messages
from ottla.protocol import schema
from ottla.protocol.api import Api
from ottla.protocol.codec import decode, encode
from ottla.protocol.message import ALL_VERSIONS, Message
from ottla.protocol.messages.heartbeat import HeartbeatRequest


def _declared() -> list[type[Message]]:
    found = {}
    for module in pkgutil.iter_modules(ottla.protocol.messages.__path__):
        for value in vars(importlib.import_module(f"ottla.protocol.messages.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Message) and value.versions != ALL_VERSIONS:
                found[value.__qualname__] = value
    return sorted(found.values(), key=lambda cls: cls.__name__)


DECLARED = _declared()
VERSIONS = [(cls, version) for cls in DECLARED for version in range(cls.versions.first, cls.versions.last + 1)]


@pytest.mark.parametrize(("cls", "version"), VERSIONS, ids=lambda value: getattr(value, "__name__", str(value)))
@examples(8)
@given(seed=st.integers(0, 2**32))
def test_a_message_survives_the_wire(cls: type[Message], version: int, seed: int) -> None:
    """Encoding and decoding give the message back, and both agree with the construct declaration."""
    message = sample(cls, version, Random(seed))

    encoded = encode(message, version)

    assert schema.build(message, version) == encoded
    assert decode(cls, version, encoded) == message
    assert schema.parse(cls, version, encoded) == message


@pytest.mark.parametrize("api", list(Api), ids=lambda api: api.label)
def test_request_and_response_have_the_same_versions(api: Api) -> None:
    """A response answers in the version of its request, and turns flexible with it."""
    assert api.request.versions == api.response.versions
    assert api.request.flexible == api.response.flexible


@pytest.mark.parametrize("cls", DECLARED, ids=lambda cls: cls.__name__)
def test_a_field_that_some_version_lacks_has_a_default(cls: type[Message]) -> None:
    """Otherwise a handler could not be written once for all versions."""
    for field in cls.wire_fields:
        covered = field.versions.first <= cls.versions.first and field.versions.last >= cls.versions.last
        assert covered or field.default is not MISSING or field.factory is not MISSING, field.name


def test_a_copy_of_a_message_differs_only_where_it_is_told_to() -> None:
    """`dataclasses.replace` works, and refuses names that the message does not have."""
    message = HeartbeatRequest(group_id="billing", generation_id=1, member_id="a")

    copy = replace(message, generation_id=2)

    assert copy == HeartbeatRequest(group_id="billing", generation_id=2, member_id="a")
    assert message.generation_id == 1
    with pytest.raises(TypeError):
        replace(message, generation=2)  # type: ignore[call-arg]


def test_a_message_has_only_the_fields_of_its_declaration() -> None:
    """They are slots, which a typo cannot add to."""
    message = HeartbeatRequest(group_id="billing", generation_id=1, member_id="a")

    assert [field.name for field in message.wire_fields] == list(vars(HeartbeatRequest)["__slots__"])
    assert not hasattr(message, "__dict__")
    with pytest.raises(AttributeError):
        message.generation = 2  # type: ignore[attr-defined]
