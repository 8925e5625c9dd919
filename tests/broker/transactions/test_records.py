"""The records of `__transaction_state`, byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.transactions.records import (
    read_transaction_key,
    read_transaction_value,
    transaction_key,
    transaction_value,
)
from ottla.broker.transactions.transaction import StoredTransaction, TransactionState
from ottla.protocol.errors import DecodeError
from ottla.protocol.identifiers import TopicPartition

INT64 = st.integers(-(2**63), 2**63 - 1)
PARTITIONS = st.builds(TopicPartition, st.text("abc.", min_size=1, max_size=3), st.integers(0, 2**31 - 1))


@st.composite
def transactions(draw: st.DrawFn) -> StoredTransaction:
    """Draw what may be in the log."""
    state = draw(st.sampled_from([each for each in TransactionState if each is not TransactionState.DEAD]))
    is_empty = state is TransactionState.EMPTY
    return StoredTransaction(
        producer_id=draw(INT64),
        producer_epoch=draw(st.integers(-(2**15), 2**15 - 1)),
        timeout_ms=draw(st.integers(-(2**31), 2**31 - 1)),
        state=state,
        partitions=frozenset() if is_empty else draw(st.frozensets(PARTITIONS, max_size=5)),
        last_update_ms=draw(INT64),
        start_ms=draw(INT64),
    )


@given(transactions())
def test_what_is_written_is_read(stored: StoredTransaction) -> None:
    """With all fields."""
    assert read_transaction_value(transaction_value(stored)) == stored


@given(st.text(max_size=20))
def test_an_id_is_its_key(transactional_id: str) -> None:
    """Of any characters."""
    assert read_transaction_key(transaction_key(transactional_id)) == transactional_id


def test_the_bytes_are_kafkas() -> None:
    """Key and value of version 0, with two partitions of one topic."""
    assert transaction_key("id") == bytes.fromhex("0000 0002") + b"id"
    stored = StoredTransaction(
        producer_id=7,
        producer_epoch=3,
        timeout_ms=60_000,
        state=TransactionState.ONGOING,
        partitions=frozenset({TopicPartition("t", 1), TopicPartition("t", 0)}),
        last_update_ms=1_000,
        start_ms=900,
    )

    assert transaction_value(stored) == (
        bytes.fromhex("0000 0000000000000007 0003 0000ea60 01 00000001 0001")
        + b"t"
        + bytes.fromhex("00000002 00000000 00000001 00000000000003e8 0000000000000384")
    )


def test_an_empty_one_has_no_list() -> None:
    """Not a list of nothing."""
    stored = StoredTransaction(7, 0, 60_000, TransactionState.EMPTY, frozenset(), 1_000)

    assert transaction_value(stored) == bytes.fromhex(
        "0000 0000000000000007 0000 0000ea60 00 ffffffff 00000000000003e8 ffffffffffffffff"
    )


def test_a_newer_brokers_value_is_read_without_its_tags() -> None:
    """Version 1, with the tagged fields of Kafka 4."""
    value = bytes.fromhex(
        "0001 0000000000000007 0000 0000ea60 00 00 00000000000003e8 ffffffffffffffff 01 00 08 0000000000000006"
    )

    assert read_transaction_value(value) == StoredTransaction(7, 0, 60_000, TransactionState.EMPTY, frozenset(), 1_000)


def test_a_key_of_a_later_version_is_skipped() -> None:
    """A newer broker wrote it."""
    assert read_transaction_key(bytes.fromhex("0001 0002") + b"id") is None


@pytest.mark.parametrize(
    "value",
    [
        "",
        "00",
        "0002 0000000000000007 0000 0000ea60 00 ffffffff 00000000000003e8 ffffffffffffffff",
        "0000 0000000000000007 0000 0000ea60 09 ffffffff 00000000000003e8 ffffffffffffffff",
        "0000 0000000000000007 0000",
    ],
    ids=["empty", "one byte", "a later version", "an unknown state", "cut short"],
)
def test_what_makes_no_sense_is_refused(value: str) -> None:
    """A coordinator must not serve half of what it should know."""
    with pytest.raises(DecodeError):
        read_transaction_value(bytes.fromhex(value))


def test_a_key_that_is_too_short_is_refused() -> None:
    """It has no version."""
    with pytest.raises(DecodeError):
        read_transaction_key(b"\x00")
