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


def drain(settings: Settings, known: Mapping[str, int], timeout_s: float, *, has_transactions: bool = False) -> bool:
    """Read up to the offsets in `known` and to the high watermarks; say in the history whether that was reached.

    `known` has the offsets by the names of the partitions. Where there were transactions, two clients with
    read_committed do the same afterwards.
    """
    deadline = time.monotonic() + timeout_s
    ends: dict[int, int] = {}
    for is_committed in (False, True) if has_transactions else (False,):
        name = "drain-committed" if is_committed else "drain"
        observer = Observer(settings, f"{name}-observer", is_committed=is_committed)
        consumer = ConsumerWorker(settings, name, is_committed=is_committed)
        try:
            # Only to a reader with read_uncommitted librdkafka tells high watermarks.
            ends = ends or _ends(consumer, settings, known, deadline)
            for worker, reader in ((name, consumer), (f"{name}-observer", observer)):
                while not (is_complete := _has_reached(reader.positions, ends)) and time.monotonic() < deadline:
                    reader.poll()
                settings.history.write(
                    Drain(
                        worker=worker,
                        is_complete=is_complete and bool(ends),
                        detail=f"positions {reader.positions}, ends {ends}",
                        is_committed=is_committed,
                    )
                )
                if not is_complete:
                    return False
        finally:
            observer.close()
            consumer.close()
    return bool(ends)


def _ends(consumer: ConsumerWorker, settings: Settings, known: Mapping[str, int], deadline: float) -> dict[int, int]:
    """Where to read to; nothing if the leaders do not say how far they are."""
    while time.monotonic() < deadline:
        try:
            return {
                number: max(
                    known.get(settings.partition(number), 0), consumer.high_watermark(number, WATERMARK_TIMEOUT_S)
                )
                for number in range(settings.partitions)
            }
        except (KafkaException, TimeoutError):
            continue
    return {}


def _has_reached(positions: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    return all(positions[partition] >= end for partition, end in ends.items())
