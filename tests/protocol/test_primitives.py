"""Primitives: the vectors of the protocol, and what a reader must refuse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol import schema
from ottla.protocol.codec import decode, decode_from, encode
from ottla.protocol.decoder import read_uvarint
from ottla.protocol.errors import DecodeError, EncodeError
from ottla.protocol.message import Message, Versions, message, versions, wire
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.primitives import (
    Array,
    Boolean,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    String,
    UInt16,
    UInt32,
    Uuid,
    encode_uvarint,
    uuid_from_text,
    uuid_to_text,
)


@message("0-1", flexible="1+")
class Everything(Message):
    flag: bool = wire(Boolean)
    tiny: int = wire(Int8)
    small: int = wire(Int16)
    port: int = wire(UInt16)
    middle: int = wire(Int32)
    count: int = wire(UInt32)
    large: int = wire(Int64)
    real: float = wire(Float64)
    uuid: bytes = wire(Uuid)
    text: str = wire(String)
    maybe_text: str | None = wire(String, nullable="0+")
    data: bytes = wire(Bytes)
    maybe_data: bytes | None = wire(Bytes, nullable="0+")
    numbers: list[int] = wire(Array(Int32))
    maybe_texts: list[str] | None = wire(Array(String), nullable="0+")
    uuids: list[bytes] = wire(Array(Uuid))
    tagged: int = wire(Int32, "1+", tag=3, default=-1)


FILLED = Everything(
    flag=True,
    tiny=-1,
    small=-2,
    port=65535,
    middle=-3,
    count=4294967295,
    large=-4,
    real=1.5,
    uuid=bytes(range(16)),
    text="é",
    maybe_text=None,
    data=b"ab",
    maybe_data=None,
    numbers=[1, -1],
    maybe_texts=None,
    uuids=[bytes(16)],
)
FIXED = "01ffff" + "feffff" + "fffffffd" + "ffffffff" + "fffffffffffffffc" + "3ff8000000000000" + bytes(range(16)).hex()


def test_the_classic_encoding_is_as_specified() -> None:
    """Lengths are int16 for strings and int32 for bytes and arrays; -1 is null."""
    variable = "0002c3a9" + "ffff" + "000000026162" + "ffffffff" + "0000000200000001ffffffff" + "ffffffff" + "00000001"

    assert encode(FILLED, 0).hex() == FIXED + variable + "00" * 16


def test_the_flexible_encoding_is_as_specified() -> None:
    """Lengths are uvarint(length + 1), 0 is null, and a struct ends with its tagged section."""
    variable = "03c3a9" + "00" + "036162" + "00" + "0300000001ffffffff" + "00" + "02" + "00" * 16

    assert encode(FILLED, 1).hex() == FIXED + variable + "00"


def test_a_tagged_field_is_written_when_it_is_not_the_default() -> None:
    """One tag: its number, the size of its payload, the payload."""
    tagged = decode(Everything, 1, encode(FILLED, 1)[:-1] + bytes.fromhex("01" + "03" + "04" + "00000007"))

    assert tagged.tagged == 7
    assert encode(tagged, 1).hex().endswith("0103" + "04" + "00000007")


def test_unknown_tags_are_skipped() -> None:
    """A newer peer may send tags that we do not know, before and after those that we do."""
    section = "03" + "0002aabb" + "030400000007" + "ff7f01cc"

    assert decode(Everything, 1, encode(FILLED, 1)[:-1] + bytes.fromhex(section)).tagged == 7


@pytest.mark.parametrize(
    "section",
    ["0203040000000703040000000", "02050000030000", "010305000000070000", "0103ffffffff0f", "ffffffffff01", "0103"],
)
def test_a_bad_tagged_section_is_refused(section: str) -> None:
    """Repeated or falling tags, payloads longer or shorter than their size, endless varints."""
    data = encode(FILLED, 1)[:-1] + bytes.fromhex(section + "0" * (len(section) % 2))
    with pytest.raises(DecodeError):
        decode(Everything, 1, data)


def test_any_byte_but_zero_is_true() -> None:
    """Java reads a boolean that way."""
    data = bytes([2]) + encode(FILLED, 0)[1:]

    assert decode(Everything, 0, data).flag is True


@pytest.mark.parametrize("version", [0, 1])
def test_null_is_refused_where_it_is_not_allowed(version: int) -> None:
    """In both directions."""
    broken = Everything(**{field.name: getattr(FILLED, field.name) for field in FILLED.wire_fields} | {"text": None})
    with pytest.raises(EncodeError, match="Everything"):
        encode(broken, version)
    data = bytearray(encode(FILLED, version))
    position = len(FIXED) // 2
    data[position : position + 2 - version] = b"\xff\xff" if version == 0 else b"\x00"
    with pytest.raises(DecodeError, match="text"):
        decode(Everything, version, bytes(data))


def test_a_value_that_the_version_lacks_is_refused() -> None:
    """Dropping it silently would change what the caller meant."""
    tagged = decode(Everything, 1, encode(FILLED, 1)[:-1] + bytes.fromhex("01030400000007"))
    with pytest.raises(EncodeError, match="tagged"):
        encode(tagged, 0)
    with pytest.raises(EncodeError, match="tagged"):
        schema.build(tagged, 0)


def test_a_value_out_of_range_is_refused() -> None:
    """Numbers, strings and arrays that do not fit are EncodeErrors, whatever struct says of them."""
    for name, value in (("tiny", 128), ("middle", "x"), ("text", "x" * 40000), ("numbers", [2**31]), ("uuid", None)):
        fields = {field.name: getattr(FILLED, field.name) for field in FILLED.wire_fields}
        with pytest.raises(EncodeError):
            encode(Everything(**fields | {name: value}), 0)


def test_bytes_left_over_are_refused() -> None:
    """They mean that the peer speaks another version than it says."""
    with pytest.raises(DecodeError, match="1 bytes left over"):
        decode(Everything, 0, encode(FILLED, 0) + b"\0")


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**32 - 1, "ffffffff0f")]
)
def test_uvarint_vectors(value: int, encoded: str) -> None:
    """Seven bits a byte, low group first."""
    assert encode_uvarint(value).hex() == encoded
    assert read_uvarint(memoryview(bytes.fromhex(encoded)), 0) == (value, len(encoded) // 2)
    assert schema.UVARINT.parse(bytes.fromhex(encoded)) == value


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (300, "d804"),
        (2147483647, "feffffff0f"),
        (-2147483648, "ffffffff0f"),
    ],
)
def test_zigzag_vectors(value: int, encoded: str) -> None:
    """Small magnitudes take few bytes, whatever their sign."""
    assert schema.VARINT.build(value).hex() == encoded
    assert schema.VARINT.parse(bytes.fromhex(encoded)) == value


@pytest.mark.parametrize("encoded", ["8080808080", "ffffffff1f", "ffffffffffff01"])
def test_a_varint_longer_than_allowed_is_refused(encoded: str) -> None:
    """Five bytes and 32 bits at most."""
    with pytest.raises(DecodeError):
        read_uvarint(memoryview(bytes.fromhex(encoded)), 0)


@given(st.binary(min_size=16, max_size=16))
def test_a_uuid_survives_its_text_form(value: bytes) -> None:
    """22 characters of URL-safe base64 without padding."""
    text = uuid_to_text(value)

    assert len(text) == 22
    assert uuid_from_text(text) == value


@pytest.mark.parametrize("text", ["", "short", "A" * 21, "A" * 23, "AAAAAAAAAAAAAAAAAAAAA!", "AAAAAAAAAAAAAAAAAAAAAB"])
def test_text_that_is_not_a_uuid_is_refused(text: str) -> None:
    """Wrong lengths, characters, and bits that 16 bytes do not have."""
    with pytest.raises(ValueError, match="uuid"):
        uuid_from_text(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3", Versions(3, 3)), ("2-5", Versions(2, 5)), ("4+", Versions(4, 32767)), ("none", Versions(1, 0))],
)
def test_version_ranges_read_as_in_declarations(text: str, expected: Versions) -> None:
    """The four forms that a declaration may use."""
    assert versions(text) == expected


def test_a_version_range_knows_its_members() -> None:
    """Both ends belong to it."""
    assert [version for version in range(8) if version in Versions(2, 5)] == [2, 3, 4, 5]
    assert 1 not in versions("none")


def test_strings_are_as_short_as_kafka_wants_them_in_both_encodings() -> None:
    """32,767 bytes pass; one more is refused by decoder, encoder and declaration."""
    fits, too_long = MetadataRequest(topics=[_named(32_767)]), MetadataRequest(topics=[_named(32_768)])
    for version in (1, 12):
        assert decode(MetadataRequest, version, encode(fits, version)) == fits
        with pytest.raises(EncodeError):
            encode(too_long, version)
        with pytest.raises(EncodeError):
            schema.build(too_long, version)
    # One topic without an id, whose name is announced with 32,768 bytes.
    announced = b"\x02" + bytes(16) + b"\x81\x80\x02" + b"x" * 32_768 + b"\0" + b"\0\0\0"
    for read in (decode, schema.parse):
        with pytest.raises(DecodeError, match="longer than 32767"):
            read(MetadataRequest, 12, announced)


def test_a_message_with_more_entries_than_allowed_is_refused() -> None:
    """All lists count together, and so do tagged fields that nobody knows."""
    request = MetadataRequest(topics=[_named(1)] * 10)
    data = encode(request, 12)
    assert decode_from(MetadataRequest, 12, data, 0, 10)[0] == request
    with pytest.raises(DecodeError, match="more entries than this side allows"):
        decode_from(MetadataRequest, 12, data, 0, 9)
    tagged = encode(MetadataRequest(topics=[]), 12)[:-1] + b"\x02" + b"\x64\0" + b"\x65\0"
    assert decode_from(MetadataRequest, 12, tagged, 0, 2)[0] == MetadataRequest(topics=[])
    with pytest.raises(DecodeError, match="more entries"):
        decode_from(MetadataRequest, 12, tagged, 0, 1)


def _named(length: int) -> MetadataRequestTopic:
    return MetadataRequestTopic(topic_id=bytes(16), name="x" * length)
