"""The records of `__transaction_state`: how they are written and read.

key    int16 version 0, the transactional id
value  int16 version, then the fields; null is a tombstone. Version 0 is written. Version 1 has the same fields, and
       newer brokers add tagged ones, which are skipped
"""

from __future__ import annotations

import struct
from typing import Final

from ottla.broker.transactions.transaction import StoredTransaction, TransactionState
from ottla.protocol.codec import decode_from, encode
from ottla.protocol.errors import DecodeError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue

_VERSION: Final = struct.Struct(">h")
_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 0
_VALUE_VERSION_MAX: Final = 1


def transaction_key(transactional_id: str) -> bytes:
    """Return the key of a transactional id."""
    return _VERSION.pack(_KEY_VERSION) + encode(TransactionLogKey(transactional_id=transactional_id), _KEY_VERSION)


def transaction_value(stored: StoredTransaction) -> bytes:
    """Return the value of a transactional id. As in Kafka, the list of partitions is null in the state Empty."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(stored.partitions):
        by_topic.setdefault(topic, []).append(partition)
    topics = [PartitionsSchema(topic=topic, partition_ids=partitions) for topic, partitions in by_topic.items()]
    fields = TransactionLogValue(
        producer_id=stored.producer_id,
        producer_epoch=stored.producer_epoch,
        transaction_timeout_ms=stored.timeout_ms,
        transaction_status=stored.state,
        transaction_partitions=None if stored.state is TransactionState.EMPTY else topics,
        transaction_last_update_timestamp_ms=stored.last_update_ms,
        transaction_start_timestamp_ms=stored.start_ms,
    )
    return _VERSION.pack(_VALUE_VERSION) + encode(fields, _VALUE_VERSION)


def read_transaction_key(key: bytes) -> str | None:
    """Return the transactional id; None for a key of a later version, which an older broker skips."""
    if len(key) < _VERSION.size:
        raise DecodeError("a key of less than two bytes")
    if _VERSION.unpack_from(key)[0] != _KEY_VERSION:
        return None
    fields, _ = decode_from(TransactionLogKey, _KEY_VERSION, key[_VERSION.size :])
    return fields.transactional_id


def read_transaction_value(value: bytes) -> StoredTransaction:
    """Return what the log has of a transactional id; raise DecodeError if it cannot be read."""
    if len(value) < _VERSION.size:
        raise DecodeError("a value of less than two bytes")
    (version,) = _VERSION.unpack_from(value)
    if not 0 <= version <= _VALUE_VERSION_MAX:
        raise DecodeError(f"a transaction of version {version}; {_VALUE_VERSION_MAX} is the last one known")
    fields, _ = decode_from(TransactionLogValue, version, value[_VERSION.size :])
    try:
        state = TransactionState(fields.transaction_status)
    except ValueError as error:
        raise DecodeError(f"a transaction in state {fields.transaction_status}") from error
    return StoredTransaction(
        producer_id=fields.producer_id,
        producer_epoch=fields.producer_epoch,
        timeout_ms=fields.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(topic.topic, partition)
            for topic in fields.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        last_update_ms=fields.transaction_last_update_timestamp_ms,
        start_ms=fields.transaction_start_timestamp_ms,
    )
