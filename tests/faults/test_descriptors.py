"""More clients than the broker has descriptors for. Row F27."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack, closing

import pytest
from tests.faults.live import (
    Client,
    Process,
    Said,
    batch_of,
    check_serves,
    connect,
)
from tests.kit.broker_process import BrokerProcess, MakeBroker
from tests.kit.waiting import until

from ottla.protocol.errors import ErrorCode

DESCRIPTORS = 128
CLIENTS = 300
# A loop that tries to accept in vain would take the whole of a processor.
BUSY_SHARE_MAX = 0.5
WATCHED_SECONDS = 2.0
TRIPS = 40


def exhausted(broker: BrokerProcess, opened: ExitStack) -> Said:
    """Let more clients come than the broker may have, and wait until it has noticed."""
    said = Said(broker)
    Process(broker.pid).limit_descriptors(DESCRIPTORS)
    for _ in range(CLIENTS):
        client = opened.enter_context(socket.socket())
        client.setblocking(False)
        client.connect_ex((broker.host, broker.port))
    until(lambda: bool(said.lines("accepting_paused")), "the broker has run out of descriptors")
    return said


def test_without_descriptors_those_who_are_connected_are_served(make_broker: MakeBroker, topic: str) -> None:
    """Also when a log begins a new segment, which needs files of its own; and nobody who was accepted is dropped."""
    broker = make_broker()
    process = Process(broker.pid)
    with ExitStack() as opened:
        served = opened.enter_context(closing(Client(broker)))
        served.create_topic(topic, segment_bytes="16384")
        idle = [opened.enter_context(connect(broker)) for _ in range(10)]
        said = exhausted(broker, opened)
        cpu_seconds, begun = process.cpu_seconds, time.monotonic()
        for trip in range(TRIPS):
            assert served.produce(topic, batch_of(bytes(1500))) is ErrorCode.NONE
            assert served.fetch(topic, 0).high_watermark == trip + 1
        until(lambda: time.monotonic() > begun + WATCHED_SECONDS, "the time is over")
        assert len(list(broker.partition_dir(topic).glob("*.log"))) > 1
        assert (process.cpu_seconds - cpu_seconds) / (time.monotonic() - begun) < BUSY_SHARE_MAX
        assert len(said.lines("accepting_paused")) == 1
        for client in idle:
            client.setblocking(False)
            with pytest.raises(BlockingIOError):
                client.recv(1)
        said.check_no_failure()
    check_serves(broker, topic + "-after")
