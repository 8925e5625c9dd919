"""The Produce requests of one connection, decoded by what they have in common.

A producer with small requests sends the same bytes again and again, apart from the correlation id, the partition, and
the records:

    API and version | correlation id | client id, acks, timeout, topic | partition | size | records | three empty tags

So the fields between the correlation id and the partition are decoded once, and compared after that. A frame that
differs in any of these bytes, or in the form of the rest, is left to the ordinary decoder.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from ottla.protocol.api import Api
from ottla.protocol.messages.headers import RequestHeader
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.requests import encode_request

_START_BYTES: Final = 4
_CORRELATION_ID_END: Final = 8
_PARTITION_BYTES: Final = 4
# Their size takes two bytes at most.
_RECORDS_BYTES_MAX: Final = (1 << 14) - 2
# Of the partition, of the topic, and of the request.
_NO_TAGS: Final = bytes(3)
_FLEXIBLE: Final = ProduceRequest.flexible
# What is kept of a client that invents long names.
_PREFIX_BYTES_MAX: Final = 1024
# A client whose requests differ each time is not worth learning from.
_UNUSED_MAX: Final = 8
_NEVER: Final = 1 << 62

_new: Final = object.__new__


class ProduceShape:
    """What the last Produce of a connection looked like. One thread at a time uses it.

    It knows bytes and messages only. Who may write, and where, is asked for every request anew.
    """

    __slots__ = (
        "_acks",
        "_begin",
        "_least",
        "_prefix",
        "_start",
        "_timeout_ms",
        "_topic",
        "_transactional_id",
        "_unpack",
        "_unused",
        "client_id",
        "version",
    )

    def __init__(self) -> None:
        # What every request of this shape has.
        self.version = 0
        self.client_id: str | None = None
        # The API and version, and what lies between the correlation id and the partition.
        self._start = self._prefix = b""
        # The size of a frame without records. No frame is so long as long as no shape is known.
        self._least = _NEVER
        # Where the records begin if their size takes two bytes.
        self._begin = 0
        # Reads the correlation id, the partition, and two bytes that begin with the size of the records, plus one.
        self._unpack: Callable[[bytes], Any] = bytes
        self._transactional_id: str | None = None
        self._acks = 0
        self._timeout_ms = 0
        self._topic = ""
        # How many shapes were learned since one was of use.
        self._unused = 0

    def decode(self, frame: memoryview | bytes) -> tuple[int, ProduceRequest] | None:
        """Return the correlation id and the message if the frame has the known shape; None otherwise."""
        if (
            type(frame) is not bytes
            or len(frame) < self._least
            or not (frame.startswith(self._prefix, _CORRELATION_ID_END) and frame.startswith(self._start))
        ):
            return None
        correlation_id, index, low, high = self._unpack(frame)
        if low < 0x80:
            begin = self._begin - 1
            end = begin + low - 1
        elif high < 0x80:
            begin = self._begin
            end = begin + (high << 7 | low & 0x7F) - 1
        else:
            return None
        if end < begin or frame[end:] != _NO_TAGS:
            return None
        self._unused = 0
        data: Any = _new(PartitionProduceData)
        data.index = index
        data.records = memoryview(frame)[begin:end]
        topic: Any = _new(TopicProduceData)
        topic.name = self._topic
        topic.partition_data = [data]
        message: Any = _new(ProduceRequest)
        message.transactional_id = self._transactional_id
        message.acks = self._acks
        message.timeout_ms = self._timeout_ms
        message.topic_data = [topic]
        return correlation_id, message

    def learn(self, frame: memoryview | bytes, header: RequestHeader, message: ProduceRequest) -> None:
        """Take the shape of a frame that was decoded, if it has one batch in one partition, and nothing unknown."""
        version = header.request_api_version
        if type(frame) is not bytes or version not in _FLEXIBLE or self._unused >= _UNUSED_MAX:
            return
        if len(message.topic_data) != 1 or len(message.topic_data[0].partition_data) != 1:
            return
        topic = message.topic_data[0]
        records = topic.partition_data[0].records
        if records is None or len(records) > _RECORDS_BYTES_MAX:
            return
        self._unused += 1
        # Only a frame that says nothing else than the message has its fields where they are expected.
        if b"".join(encode_request(Api.PRODUCE, version, header.correlation_id, header.client_id, message)) != frame:
            return
        size_bytes = 1 if len(records) < 0x7F else 2
        prefix_end = len(frame) - len(_NO_TAGS) - len(records) - size_bytes - _PARTITION_BYTES
        if prefix_end - _CORRELATION_ID_END > _PREFIX_BYTES_MAX:
            return
        self.version, self.client_id = version, header.client_id
        self._start, self._prefix = frame[:_START_BYTES], frame[_CORRELATION_ID_END:prefix_end]
        self._least = prefix_end + _PARTITION_BYTES + 1 + len(_NO_TAGS)
        self._begin = prefix_end + _PARTITION_BYTES + 2
        self._unpack = struct.Struct(f">{_START_BYTES}xi{len(self._prefix)}xiBB").unpack_from
        self._transactional_id, self._acks, self._timeout_ms = (
            message.transactional_id,
            message.acks,
            message.timeout_ms,
        )
        self._topic = topic.name
