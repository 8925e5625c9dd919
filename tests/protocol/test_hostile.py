"""Any bytes can arrive: what does not decode is a DecodeError, and nothing is allocated on a peer's word."""

from __future__ import annotations

import contextlib
import tracemalloc
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples
from tests.protocol.samples import sample
from tests.protocol.test_messages import DECLARED

from ottla.protocol import schema
from ottla.protocol.api import Api
from ottla.protocol.codec import decode, decoder, encode
from ottla.protocol.errors import DecodeError
from ottla.protocol.message import Message
from ottla.protocol.messages.consumer_group_records import ConsumerGroupMemberMetadataValue
from ottla.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from ottla.protocol.requests import decode_request, decode_response

# An empty struct of two bytes on the wire is an object of some 80 bytes in memory: the worst that honest data does.
ALLOCATED_PER_BYTE_MAX = 64
ALLOCATED_FIXED_BYTES = 64 * 1024


def _mutated(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        if not changed:
            break
        position = random.randrange(len(changed))
        match random.randrange(5):
            case 0:
                changed[position] ^= 1 << random.randrange(8)
            case 1:
                changed[position] = random.choice((0, 0x7F, 0x80, 0xFF))
            case 2:
                del changed[position:]
            case 3:
                changed[position : position + 4] = random.choice(
                    (b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x80" * 4)
                )
            case _:
                changed[position:position] = random.randbytes(random.randrange(1, 6))
    return bytes(changed)


@pytest.mark.parametrize("cls", DECLARED, ids=lambda cls: cls.__name__)
@examples(60)
@given(seed=st.integers(0, 2**32))
def test_mutated_bytes_decode_or_are_refused(cls: type[Message], seed: int) -> None:
    """The compiled decoder and the declaration agree on which bytes are a message, and on what they say."""
    random = Random(seed)
    version = random.randint(cls.versions.first, cls.versions.last)
    data = _mutated(encode(sample(cls, version, random), version), random)

    try:
        expected = schema.parse(cls, version, data)
    except DecodeError:
        with pytest.raises(DecodeError):
            decode(cls, version, data)
    else:
        # As bytes, because a float64 that is not a number does not equal itself.
        assert encode(decode(cls, version, data), version) == encode(expected, version)


@pytest.mark.parametrize(("marker", "is_there"), [(b"\x00", False), (b"\x80\x00", False), (b"\x81\x00", True)])
def test_the_marker_of_a_tagged_struct_may_take_several_bytes(marker: bytes, is_there: bool) -> None:
    """It is a varint, though one byte would do."""
    value = ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="",
        client_host="",
        subscribed_topic_names=[],
        subscribed_topic_regex=None,
        rebalance_timeout_ms=1,
        server_assignor=None,
    )
    payload = marker + (b"\x00\x00\x00\x07\x01\x00" if is_there else b"")
    # One tagged field, with tag 0.
    data = encode(value, 0)[:-1] + bytes([1, 0, len(payload)]) + payload

    decoded = decode(ConsumerGroupMemberMetadataValue, 0, data)

    assert decoded == schema.parse(ConsumerGroupMemberMetadataValue, 0, data)
    assert (decoded.classic_member_metadata is not None) is is_there


@pytest.mark.parametrize("cls", DECLARED, ids=lambda cls: cls.__name__)
def test_hostile_bytes_allocate_no_more_than_a_small_multiple_of_themselves(cls: type[Message]) -> None:
    """Truncated, mutated and length-inflated messages cost memory in proportion to what was sent."""
    random = Random(cls.__name__)
    for version in range(cls.versions.first, cls.versions.last + 1):
        decoder(cls, version)
        inputs = [_mutated(encode(sample(cls, version, random), version), random) for _ in range(8)]
        inputs += [b"\xff" * 200, b"\x7f" * 200, b"\x00\x00\x40\x00" + bytes(400), b"\x81\x01" + bytes(600)]
        for data in inputs:
            assert _allocated(cls, version, data) <= ALLOCATED_PER_BYTE_MAX * len(data) + ALLOCATED_FIXED_BYTES


def _allocated(cls: type[Message], version: int, data: bytes) -> int:
    tracemalloc.start()
    try:
        decode(cls, version, data)
    except DecodeError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak


@pytest.mark.parametrize("count", [1000, 50000])
def test_the_dearest_honest_bytes_cost_a_bounded_multiple(count: int) -> None:
    """An array of as many of the smallest structs as fit is the worst ratio of memory to bytes."""
    group = ListedGroup(group_id="", protocol_type="")
    data = encode(ListGroupsResponse(error_code=0, groups=[group] * count), 3)
    assert len(data) < 4 * count

    allocated = _allocated(ListGroupsResponse, 3, data)

    assert count * 50 < allocated <= ALLOCATED_PER_BYTE_MAX * len(data) + ALLOCATED_FIXED_BYTES


@examples(300)
@given(data=st.binary(max_size=300))
def test_random_frames_are_refused_with_a_typed_error(data: bytes) -> None:
    """Whatever a socket brings as a request or a response, only DecodeError comes out."""
    with contextlib.suppress(DecodeError):
        decode_request(data)
    for api in (Api.API_VERSIONS, Api.FETCH, Api.METADATA):
        with contextlib.suppress(DecodeError):
            decode_response(api, api.versions.last, data)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (b"", "no room for a header"),
        (b"\x00\x03", "no room for a header"),
        (b"\x03\xe8\x00\x00\x00\x00\x00\x01\xff\xff", "unknown API key 1000"),
        (b"\x00\x03\xff\xff\x00\x00\x00\x01\xff\xff", "negative"),
        (b"\x00\x03\x00\x63\x00\x00\x00\x01\xff\xff\x00", "has versions 0-12, not 99"),
        (b"\x00\x03\x00\x01\x00\x00\x00\x01\xff\xff\x00\x00\x00\x01\x00\x05ab", r"topics\[0\].name"),
    ],
)
def test_the_error_says_what_is_wrong_and_where(frame: bytes, words: str) -> None:
    """The log line of a refused request names the field."""
    with pytest.raises(DecodeError, match=words):
        decode_request(frame)
