"""What a record promises to those who keep it."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
import pytest

from ottla.client.types import ConsumerRecord, TopicPartition


def record(**changes: Any) -> ConsumerRecord[bytes, bytes]:
    """Return a record with some of its fields changed."""
    made = ConsumerRecord("t", 3, 9, 1000, 0, b"k", b"v", (("h", None),), 1, 1, 5)
    return msgspec.structs.replace(made, **changes) if changes else made


def test_records_are_values() -> None:
    """Equal ones are equal, with the same hash; none can be changed; they survive pickling."""
    assert record() == record()
    assert hash(record()) == hash(record())
    assert len({record(), record(), record(offset=10)}) == 2
    assert record() != record(value=None)
    assert pickle.loads(pickle.dumps(record())) == record()
    with pytest.raises(AttributeError):
        record().offset = 10  # type: ignore[misc]


def test_a_record_shows_its_fields() -> None:
    """By name, in the order in which its constructor takes them."""
    assert record().topic_partition == TopicPartition("t", 3)
    assert repr(record()).startswith("ConsumerRecord(topic='t', partition=3, offset=9, timestamp=1000, ")
    assert list(msgspec.structs.asdict(record())) == [field.name for field in msgspec.structs.fields(ConsumerRecord)]
    assert ConsumerRecord("t", 3, 9, 1000, 0, None, None, (), -1, -1).leader_epoch is None
