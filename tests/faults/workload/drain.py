"""Read everything from the beginning, with two clients, up to the highest offset that anybody knows of."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import KafkaException
from tests.faults.checker.history import Drain
from tests.faults.workload.consumer import ConsumerWorker
from tests.faults.workload.observer import Observer
from tests.faults.workload.settings import Settings

WATERMARK_TIMEOUT_S = 5.0


def drain(settings: Settings, known: Mapping[int, int], timeout_s: float) -> bool:
    """Read up to the offsets in `known` and to the high watermarks; say in the history whether that was reached."""
    deadline = time.monotonic() + timeout_s
    observer = Observer(settings, "drain-observer")
    consumer = ConsumerWorker(settings, "drain")
    try:
        ends = _ends(consumer, settings, known, deadline)
        for worker, reader in (("drain", consumer), ("drain-observer", observer)):
            while not (is_complete := _has_reached(reader.positions, ends)) and time.monotonic() < deadline:
                reader.poll()
            detail = f"positions {reader.positions}, ends {ends}"
            settings.history.write(Drain(worker=worker, is_complete=is_complete and bool(ends), detail=detail))
            if not is_complete:
                return False
    finally:
        observer.close()
        consumer.close()
    return bool(ends)


def _ends(consumer: ConsumerWorker, settings: Settings, known: Mapping[int, int], deadline: float) -> dict[int, int]:
    """Where to read to; nothing if the leaders do not say how far they are."""
    while time.monotonic() < deadline:
        try:
            return {
                partition: max(known.get(partition, 0), consumer.high_watermark(partition, WATERMARK_TIMEOUT_S))
                for partition in range(settings.partitions)
            }
        except (KafkaException, TimeoutError):
            continue
    return {}


def _has_reached(positions: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    return all(positions[partition] >= end for partition, end in ends.items())
