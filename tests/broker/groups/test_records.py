"""Records of `__consumer_offsets`: encoding, and decoding of all versions."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.broker.coordination.stored_records import TransactionalProducer, batch_of
from ottla.broker.groups.classic.messages import GroupSnapshot, MemberSnapshot
from ottla.broker.groups.offsets.offset_store import CommittedOffset
from ottla.broker.groups.records import (
    group_record,
    group_tombstone,
    key_version,
    offset_record,
    read_group_id,
    read_group_value,
    read_offset_key,
    read_offset_value,
)
from ottla.protocol.codec import decode_from, encode
from ottla.protocol.compression import Codec
from ottla.protocol.errors import DecodeError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.offset_records import (
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)

PARTITION = TopicPartition("orders", 7)
OFFSET = CommittedOffset(42, 3, "half way", 1_700_000_000_000)
MEMBER = MemberSnapshot("m-1", "i-1", "client", "/10.0.0.5", 300_000, 45_000, b"topics", b"partitions")
GROUP = GroupSnapshot("readers", "consumer", 5, "range", "m-1", 1_700_000_000_000, (MEMBER,))

names = st.text(max_size=20)
int64 = st.integers(-(2**63), 2**63 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)


@examples(60)
@given(names, names, int32)
def test_the_key_of_an_offset_is_decoded_as_declared(group: str, topic: str, partition: int) -> None:
    """The hand-written decoder must agree with the declaration."""
    key, _ = offset_record(group, TopicPartition(topic, partition), None)
    assert key_version(key) == 1
    declared, end = decode_from(OffsetCommitKey, 1, key, 2)
    assert (declared.group, declared.topic, declared.partition, end) == (group, topic, partition, len(key))
    assert read_offset_key(key) == (group.encode(), topic.encode(), partition)
    assert read_group_id(key) == group


@examples(60)
@given(st.builds(CommittedOffset, int64, int32, names, int64, st.just(-1), st.just(-1)))
def test_an_offset_survives_a_round_trip(committed: CommittedOffset) -> None:
    """The decoder also sets the log offset. When the offset was committed first is not stored."""
    _, value = offset_record("g", PARTITION, committed)
    assert value is not None
    assert struct.unpack_from(">h", value) == (3,)
    assert read_offset_value(value, 99) == committed._replace(log_offset=99, first_commit_timestamp_ms=-1)


def test_an_offset_with_an_expiry_time_is_stored_in_version_1() -> None:
    """Version 1 has an expiry time, but no leader epoch."""
    _, value = offset_record("g", PARTITION, OFFSET._replace(expire_timestamp_ms=1_800_000_000_000))
    assert value is not None
    assert struct.unpack_from(">h", value) == (1,)
    assert read_offset_value(value, 0) == OFFSET._replace(
        leader_epoch=-1, expire_timestamp_ms=1_800_000_000_000, log_offset=0
    )


@pytest.mark.parametrize("version", range(5))
def test_offsets_of_all_versions_are_read(version: int) -> None:
    """Fields that a version does not have get their defaults."""
    stored = OffsetCommitValue(
        offset=42,
        leader_epoch=3 if version >= 3 else -1,
        metadata="half way",
        commit_timestamp=1_700_000_000_000,
        expire_timestamp=5 if version == 1 else -1,
    )
    found = read_offset_value(struct.pack(">h", version) + encode(stored, version), 0)
    assert found == OFFSET._replace(
        leader_epoch=3 if version >= 3 else -1, expire_timestamp_ms=5 if version == 1 else -1, log_offset=0
    )


@pytest.mark.parametrize(
    "value", [b"", b"\x00", b"\x00\x03", b"\x00\x03" + bytes(12) + b"\x7f\xff", b"\xff\xff" + bytes(30)]
)
def test_a_damaged_offset_is_refused(value: bytes) -> None:
    """The error is one that loading handles."""
    with pytest.raises((DecodeError, struct.error)):
        read_offset_value(value, 0)


def test_a_group_survives_a_round_trip() -> None:
    """The members keep their subscriptions and assignments."""
    key, value = group_record(GROUP)
    assert value is not None
    assert (key_version(key), read_group_id(key)) == (2, "readers")
    assert read_group_value("readers", value) == GROUP
    assert group_tombstone("readers") == (key, None)


@pytest.mark.parametrize("version", range(5))
def test_groups_of_all_versions_are_read(version: int) -> None:
    """Version 0 uses the session timeout as rebalance timeout."""
    stored = GroupMetadataValue(
        protocol_type="consumer",
        generation=5,
        protocol="range",
        leader="m-1",
        current_state_timestamp=1_700_000_000_000 if version >= 2 else -1,
        members=[
            MemberMetadata(
                member_id="m-1",
                group_instance_id="i-1" if version >= 3 else None,
                client_id="client",
                client_host="/10.0.0.5",
                rebalance_timeout=300_000 if version >= 1 else -1,
                session_timeout=45_000,
                subscription=b"topics",
                assignment=b"partitions",
            )
        ],
    )
    found = read_group_value("readers", struct.pack(">h", version) + encode(stored, version))
    (member,) = found.members
    assert found.state_timestamp_ms == (1_700_000_000_000 if version >= 2 else -1)
    assert member.rebalance_timeout_ms == (300_000 if version >= 1 else 45_000)
    assert member.instance_id == ("i-1" if version >= 3 else None)
    assert (found.generation, member.subscription, member.assignment) == (5, b"topics", b"partitions")


@pytest.mark.parametrize("codec", list(Codec))
def test_records_go_into_one_batch(codec: Codec) -> None:
    """The batch is compressed with the given codec, and may contain tombstones."""
    records = [offset_record("g", PARTITION, OFFSET), group_tombstone("g")]
    batch = batch_of(records, 1_700_000_000_000, codec)
    batch.check()
    assert batch.codec is codec
    assert [(record.key, record.value) for record in batch.records()] == records


def test_a_batch_with_a_producer_id_is_transactional() -> None:
    """Its offsets take effect when the transaction is committed."""
    batch = batch_of([offset_record("g", PARTITION, OFFSET)], 0, producer=TransactionalProducer(9, 1))
    assert (batch.is_transactional, batch.producer_id, batch.producer_epoch) == (True, 9, 1)
