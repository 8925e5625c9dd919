"""A producer that says what it sends and what became of it."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from functools import partial
from itertools import count

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from tests.faults.checker.history import ACKS_ALL, NO_OFFSET, Fail, Info, Invoke, Ok
from tests.faults.workload.settings import DELIVERY_TIMEOUT_MS, REQUEST_TIMEOUT_MS, Settings

# For each partition: one without a leader does not hold back the others.
IN_FLIGHT_MAX = 40
FLUSH_TIMEOUT_S = DELIVERY_TIMEOUT_MS / 1000 + 5
POLL_S = 0.05

# Whatever librdkafka tried before it gave up may have reached a log, so an error code of a broker says nothing certain
# about the record. These are its own, for what it has never sent, and codes that no retry turns into something else.
# _UNKNOWN_PARTITION and _UNKNOWN_TOPIC are not among them: messages under way get these, too.
_NEVER_SENT = frozenset(
    (
        KafkaError._PURGE_QUEUE,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    )
)


def is_surely_not_stored(error: KafkaError) -> bool:
    """Tell `fail` from `info`; in doubt it is `info`."""
    return error.code() in _NEVER_SENT


class ProducerWorker:
    """Sends `worker-counter` to all partitions in turn, at a steady rate, until told to stop."""

    def __init__(self, settings: Settings, name: str, rate: float) -> None:
        self._settings = settings
        self._name = name
        self._interval_s = 1 / rate
        self._in_flight: Counter[int] = Counter()
        self._is_broken = False

    def run(self) -> None:
        """Send until told to stop, then wait for what is under way."""
        for generation in count():
            # What a broken producer had under way may still be stored, in any order with what its successor sends:
            # it is another worker.
            self._run_as(self._name if generation == 0 else f"{self._name}.{generation}")
            if self._settings.stopping.is_set():
                return

    def _run_as(self, worker: str) -> None:
        self._is_broken = False
        self._in_flight.clear()
        producer = Producer(
            {
                **self._settings.client,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "request.timeout.ms": REQUEST_TIMEOUT_MS,
                "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
                "error_cb": self._on_error,
            }
        )
        next_s = time.monotonic()
        for op in count():
            while not self._settings.stopping.is_set() and not self._is_broken:
                wait_s = next_s - time.monotonic()
                if wait_s <= 0:
                    break
                self._poll(producer, max(0.001, min(POLL_S, wait_s)))
            if self._settings.stopping.is_set() or self._is_broken:
                break
            # After a pause, no burst to make up for it.
            next_s = max(next_s + self._interval_s, time.monotonic() - self._interval_s)
            partition = op % self._settings.partitions
            if self._in_flight[partition] < IN_FLIGHT_MAX:
                self._send(producer, worker, op, partition)
        with suppress(KafkaException):
            producer.flush(FLUSH_TIMEOUT_S)

    def _poll(self, producer: Producer, timeout_s: float) -> None:
        try:
            producer.poll(timeout_s)
        except KafkaException as error:
            self._on_error(error.args[0])

    def _send(self, producer: Producer, worker: str, op: int, partition: int) -> None:
        value = f"{worker}-{op}"
        write = self._settings.history.write
        write(Invoke(worker=worker, op=op, partition=self._settings.partition(partition), value=value, acks=ACKS_ALL))
        try:
            producer.produce(
                self._settings.topic,
                value.encode(),
                partition=partition,
                on_delivery=partial(self._on_delivery, worker, op, partition),
            )
        except (BufferError, KafkaException) as error:
            write(Fail(worker=worker, op=op, error=str(error)))
        else:
            self._in_flight[partition] += 1

    def _on_delivery(self, worker: str, op: int, partition: int, error: KafkaError | None, message: Message) -> None:
        self._in_flight[partition] -= 1
        if error is None:
            offset = message.offset()
            known = NO_OFFSET if offset is None or offset < 0 else offset
            self._settings.history.write(Ok(worker=worker, op=op, offset=known))
        elif is_surely_not_stored(error):
            self._settings.history.write(Fail(worker=worker, op=op, error=str(error)))
        else:
            self._settings.history.write(Info(worker=worker, op=op, error=str(error)))

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._is_broken = True
