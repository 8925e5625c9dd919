"""The C interface of librdkafka, of the library that confluent-kafka brings: a load that costs as little as C's own.

confluent-kafka makes a Python object of every record, and that is what a bench would measure. Here Python makes one
call for a thousand records, and none of them becomes an object: `produce` hands over the same array again and again,
without a copy of the payload, and `consume` has each record passed to a function of the library that does nothing.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from typing import Any, Final

from confluent_kafka import cimpl

AT_ONCE: Final = 1000
_PRODUCER, _CONSUMER = 0, 1
_EVENT_DELIVERY_REPORT: Final = 0x1
_ERROR_BYTES: Final = 512
_POLL_MS: Final = 100
_BEGINNING: Final = -2


class _Message(ctypes.Structure):
    """rd_kafka_message_t."""

    _fields_ = (
        ("err", c_int),
        ("rkt", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("len", c_size_t),
        ("key", c_void_p),
        ("key_len", c_size_t),
        ("offset", c_int64),
        ("_private", c_void_p),
    )


def _library() -> Any:
    # Symbols are also looked up in the libraries that a library was linked with.
    library = ctypes.CDLL(cimpl.__file__)
    for name, result, arguments in (
        ("rd_kafka_conf_new", c_void_p, ()),
        ("rd_kafka_conf_set", c_int, (c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)),
        ("rd_kafka_conf_set_events", None, (c_void_p, c_int)),
        ("rd_kafka_new", c_void_p, (c_int, c_void_p, c_char_p, c_size_t)),
        ("rd_kafka_destroy", None, (c_void_p,)),
        ("rd_kafka_topic_new", c_void_p, (c_void_p, c_char_p, c_void_p)),
        ("rd_kafka_produce_batch", c_int, (c_void_p, c_int32, c_int, POINTER(_Message), c_int)),
        ("rd_kafka_flush", c_int, (c_void_p, c_int)),
        ("rd_kafka_outq_len", c_int, (c_void_p,)),
        ("rd_kafka_queue_get_main", c_void_p, (c_void_p,)),
        ("rd_kafka_queue_poll", c_void_p, (c_void_p, c_int)),
        ("rd_kafka_queue_destroy", None, (c_void_p,)),
        ("rd_kafka_consume_start", c_int, (c_void_p, c_int32, c_int64)),
        ("rd_kafka_consume_stop", c_int, (c_void_p, c_int32)),
        ("rd_kafka_consume_callback", c_int, (c_void_p, c_int32, c_int, c_void_p, c_void_p)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


_LIBRARY: Final = _library()
# Called with every record. It takes no argument, so it looks at none.
_DOES_NOTHING: Final = ctypes.cast(_LIBRARY.rd_kafka_version, c_void_p)


class _Client:
    """A client of librdkafka."""

    def __init__(self, kind: int, settings: Mapping[str, object], events: int = 0) -> None:
        why = ctypes.create_string_buffer(_ERROR_BYTES)
        conf = _LIBRARY.rd_kafka_conf_new()
        for key, value in settings.items():
            if _LIBRARY.rd_kafka_conf_set(conf, key.encode(), _text(value).encode(), why, _ERROR_BYTES):
                raise SystemExit(why.value.decode())
        _LIBRARY.rd_kafka_conf_set_events(conf, events)
        self._client = _LIBRARY.rd_kafka_new(kind, conf, why, _ERROR_BYTES)
        if not self._client:
            raise SystemExit(why.value.decode())

    def topic(self, name: str) -> int:
        """Return a topic of the library."""
        topic: int = _LIBRARY.rd_kafka_topic_new(self._client, name.encode(), None)
        return topic


class LightProducer(_Client):
    """Produces the same record again and again, a thousand at a time."""

    def __init__(self, settings: Mapping[str, object], topic: str, value: bytes) -> None:
        # A report comes only for a record that failed.
        super().__init__(_PRODUCER, {**settings, "delivery.report.only.error": True}, _EVENT_DELIVERY_REPORT)
        self._topic = self.topic(topic)
        self._reports = _LIBRARY.rd_kafka_queue_get_main(self._client)
        # The records refer to it, and it is not copied.
        self._value = ctypes.create_string_buffer(value, len(value))
        self._records = (_Message * AT_ONCE)()
        for record in self._records:
            record.payload, record.len = ctypes.addressof(self._value), len(value)

    def __len__(self) -> int:
        queued: int = _LIBRARY.rd_kafka_outq_len(self._client)
        return queued

    def produce(self, partition: int, count: int = AT_ONCE) -> None:
        """Queue records."""
        if _LIBRARY.rd_kafka_produce_batch(self._topic, partition, 0, self._records, count) != count:
            raise SystemExit("librdkafka did not take all records")

    def flush(self, seconds: float) -> None:
        """Wait until every record is acknowledged; end the program if one is not."""
        _LIBRARY.rd_kafka_flush(self._client, int(seconds * 1000))
        if len(self) or _LIBRARY.rd_kafka_queue_poll(self._reports, 0):
            raise SystemExit("some records were not acknowledged")


class LightConsumer(_Client):
    """Consumes one partition from the beginning, and looks at no record."""

    def __init__(self, settings: Mapping[str, object], topic: str, partition: int = 0) -> None:
        super().__init__(_CONSUMER, settings)
        self._topic = self.topic(topic)
        self._partition = partition
        if _LIBRARY.rd_kafka_consume_start(self._topic, partition, _BEGINNING):
            raise SystemExit("librdkafka does not begin to consume")

    def consume(self, count: int, seconds: float) -> int:
        """Receive that many records, or a few more; return how many, fewer if the time is over."""
        deadline = time.perf_counter() + seconds
        received = 0
        while received < count and time.perf_counter() < deadline:
            received += _LIBRARY.rd_kafka_consume_callback(self._topic, self._partition, _POLL_MS, _DOES_NOTHING, None)
        return received

    def close(self) -> None:
        """Stop to consume."""
        _LIBRARY.rd_kafka_consume_stop(self._topic, self._partition)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
