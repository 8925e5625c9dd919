"""A follower's fetches as bytes.

Nearly all of them name the one partition that got records, and nothing else. That one is packed in one go, which costs
a tenth of what the general way does; a property test holds the two together. The layout from version 15 to 17:

    int32 max wait | int32 min bytes | int32 max bytes | int8 isolation | int32 session id | int32 session epoch
    1 topic:        uuid id | 1 partition: int32 index | int32 leader epoch | int64 offset | int32 last fetched epoch
                    | int64 log start | int32 max bytes | no tags | no tags
    no forgotten topics | no rack | 1 tag: number 1, 13 bytes: int32 replica id | int64 replica epoch | no tags
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from ottla.broker.config import BrokerConfig
from ottla.broker.replication.follower.follower import FetchPosition
from ottla.client.net.fetch_session_client import SessionFetch, SessionPartition, fetch_topics, forgotten_topics
from ottla.protocol.codec import encode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, ReplicaState

# From this version on, replicas tell their epoch.
_REPLICA_STATE_VERSION: Final = 15
_ONE_PARTITION: Final = struct.Struct(">iiibii B16sB iiqiqiBB BBBBB iqB")
_READ_UNCOMMITTED: Final = 0
# In the compact encoding, a count is written as one more.
_ONE, _NONE = 2, 1
_NO_TAGS: Final = 0
_REPLICA_STATE_TAG: Final = 1
_REPLICA_STATE_BYTES: Final = 13


class FetchRequests:
    """Writes the fetches of one follower."""

    def __init__(self, node_id: int, broker_epoch: Callable[[], int], config: BrokerConfig) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        # None of these options changes while the broker runs.
        self._min_bytes = config.replica_fetch_min_bytes
        self._max_bytes = config.replica_fetch_response_max_bytes
        self._partition_bytes = config.replica_fetch_max_bytes

    def encoded(self, version: int, fetch: SessionFetch[FetchPosition], wait_ms: int) -> bytes:
        """Return the body of a fetch."""
        if version < _REPLICA_STATE_VERSION or len(fetch.positions) != 1 or fetch.forgotten:
            return encode(self.message(version, fetch, wait_ms), version)
        ((_, topic_id, index), position), *_ = fetch.positions.items()
        return _ONE_PARTITION.pack(
            wait_ms,
            self._min_bytes,
            self._max_bytes,
            _READ_UNCOMMITTED,
            fetch.session_id,
            fetch.session_epoch,
            _ONE,
            topic_id,
            _ONE,
            index,
            position.current_leader_epoch,
            position.offset,
            position.last_fetched_epoch,
            position.log_start_offset,
            self._partition_bytes,
            _NO_TAGS,
            _NO_TAGS,
            _NONE,
            _NONE,
            1,
            _REPLICA_STATE_TAG,
            _REPLICA_STATE_BYTES,
            self._node_id,
            self._broker_epoch(),
            _NO_TAGS,
        )

    def message(self, version: int, fetch: SessionFetch[FetchPosition], wait_ms: int) -> FetchRequest:
        """Return a fetch as a message."""
        replica: dict[str, Any] = {"replica_id": self._node_id}
        if version >= _REPLICA_STATE_VERSION:
            replica = {"replica_state": ReplicaState(replica_id=self._node_id, replica_epoch=self._broker_epoch())}
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            isolation_level=_READ_UNCOMMITTED,
            session_id=fetch.session_id,
            session_epoch=fetch.session_epoch,
            topics=fetch_topics((each, self._row(each, position)) for each, position in fetch.positions.items()),
            forgotten_topics_data=forgotten_topics(fetch.forgotten),
            **replica,
        )

    def _row(self, partition: SessionPartition, position: FetchPosition) -> FetchPartition:
        return FetchPartition(
            partition=partition.partition,
            current_leader_epoch=position.current_leader_epoch,
            fetch_offset=position.offset,
            last_fetched_epoch=position.last_fetched_epoch,
            log_start_offset=position.log_start_offset,
            partition_max_bytes=self._partition_bytes,
        )
