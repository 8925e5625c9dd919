"""Confluent's framing: bytes that other serializers write, and any others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.errors import SerializationError
from ottla.client.schema.framing import framed, is_framed, message_index, read_message_index, schema_id_of


def test_a_frame_is_a_zero_and_four_bytes() -> None:
    """The id with its highest byte first."""
    assert framed(0x01020304, b"payload") == b"\0\1\2\3\4payload"
    assert schema_id_of(b"\0\1\2\3\4payload") == 0x01020304
    assert schema_id_of(framed((1 << 32) - 1, b"x")) == (1 << 32) - 1


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0\0\1", b"{}", b"\1\0\0\0\1x"])
def test_bytes_without_a_frame_are_refused(data: bytes) -> None:
    """Too few, or with another first byte."""
    assert not is_framed(data)
    with pytest.raises(SerializationError, match="no schema id"):
        schema_id_of(data)


@pytest.mark.parametrize(
    ("path", "data"), [([0], b"\0"), ([1], b"\x02\x02"), ([2, 0], b"\x04\x04\x00"), ([100, 3], b"\x04\xc8\x01\x06")]
)
def test_message_indexes_are_those_of_confluent(path: list[int], data: bytes) -> None:
    """A count and indexes as zigzag varints; the first message is a single zero."""
    assert message_index(path) == data
    assert read_message_index(data + b"rest") == (path, len(data))


@given(st.binary(max_size=20))
def test_no_message_index_does_harm(data: bytes) -> None:
    """Anything may be written to a topic."""
    try:
        path, position = read_message_index(data)
    except SerializationError:
        return
    assert 0 < position <= len(data)
    assert path
