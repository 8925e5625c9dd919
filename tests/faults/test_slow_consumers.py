"""Consumers that ask for much and take nearly nothing of it. Row F29."""

from __future__ import annotations

import socket
import statistics
import time
from contextlib import ExitStack, closing, suppress

from tests.faults.live import (
    FETCH_VERSION,
    MIB,
    PATIENCE_SECONDS,
    Client,
    Process,
    Said,
    batch_of,
    connect,
    fetch_request,
)
from tests.kit.broker_process import MakeBroker
from tests.kit.waiting import until

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frame import frame
from ottla.protocol.requests import encode_request

CONSUMERS = 50
WRITE_DEADLINE_MS = 2000
STORED_BATCHES = 56
ASKED_BYTES = 50 * MIB
# What they asked for is 2,500 MiB: it must leave from the page cache, and never be here.
MEMORY_GROWTH_BYTES_MAX = 32 * MIB
ROUND_TRIP_SECONDS_MAX = 0.25


def take_one_byte(consumer: socket.socket) -> None:
    """Read the next byte, if it is there."""
    with suppress(BlockingIOError, ConnectionError):
        consumer.recv(1, socket.MSG_DONTWAIT)


def test_slow_consumers_are_cut_and_cost_nobody_else(make_broker: MakeBroker, topic: str) -> None:
    """They hold no memory, others are served promptly meanwhile, and at the write deadline they are gone."""
    broker = make_broker(f"ottla.connection.write.timeout.ms={WRITE_DEADLINE_MS}", "log.segment.bytes=104857600")
    process, said = Process(broker.pid), Said(broker)
    with ExitStack() as opened:
        served = opened.enter_context(closing(Client(broker)))
        served.create_topic(topic)
        served.create_topic(f"{topic}-served")
        batch = batch_of(bytes(MIB - 1024))
        for _ in range(STORED_BATCHES):
            assert served.produce(topic, batch) is ErrorCode.NONE
        served.round_trip(f"{topic}-served")
        resident, descriptors = process.resident_bytes, process.descriptors
        request = fetch_request(topic, 0, max_bytes=ASKED_BYTES)
        asking = frame(encode_request(Api.FETCH, FETCH_VERSION, 1, "slow", request))
        begun = time.monotonic()
        slow = [opened.enter_context(connect(broker)) for _ in range(CONSUMERS)]
        for consumer in slow:
            consumer.setblocking(False)
            consumer.sendall(asking)
        until(lambda: process.descriptors >= descriptors + CONSUMERS, "all are connected")
        round_trips, peak = [], resident
        while process.descriptors > descriptors + 2:
            assert time.monotonic() < begun + PATIENCE_SECONDS, "slow consumers are still connected"
            for consumer in slow:
                take_one_byte(consumer)
            asked = time.monotonic()
            served.round_trip(f"{topic}-served")
            round_trips.append(time.monotonic() - asked)
            peak = max(peak, process.resident_bytes)

        assert time.monotonic() - begun >= WRITE_DEADLINE_MS / 1000
        assert peak - resident < MEMORY_GROWTH_BYTES_MAX
        assert statistics.median(round_trips) < ROUND_TRIP_SECONDS_MAX
    said.check_no_failure()
