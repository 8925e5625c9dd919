"""Thousands of connections that do nothing."""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from tests.faults.live import Client, Process, Said, connect
from tests.kit.broker_process import MakeBroker
from tests.kit.waiting import until

CONNECTIONS = 5_000
# The broker keeps a fifth of its descriptors for files.
DESCRIPTORS = 7_000
CONNECTION_BYTES_MAX = 16 * 1024
ROUND_TRIPS = 50
ROUND_TRIP_SECONDS_MAX = 0.25


@pytest.fixture
def descriptors() -> Iterator[int]:
    """Allow ourselves as many descriptors as the test needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS:
        pytest.skip(f"the limit of open files is {hard}: {CONNECTIONS} connections need {DESCRIPTORS} (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, DESCRIPTORS), hard))
    yield DESCRIPTORS
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_idle_connections_cost_little_and_hold_nobody_up(
    make_broker: MakeBroker, topic: str, descriptors: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The broker answers as before, and has its memory and descriptors to itself again when they are gone."""
    broker = make_broker("socket.listen.backlog.size=1024")
    process, said = Process(broker.pid), Said(broker)
    process.limit_descriptors(descriptors)
    with closing(Client(broker)) as served:
        served.create_topic(topic)
        before = process.descriptors
        resident = process.resident_bytes
        with ExitStack() as opened:
            for _ in range(CONNECTIONS):
                opened.enter_context(connect(broker))
            until(lambda: process.descriptors >= before + CONNECTIONS, "all are connected")
            each = (process.resident_bytes - resident) / CONNECTIONS
            seconds = []
            for _ in range(ROUND_TRIPS):
                begun = time.monotonic()
                served.round_trip(topic)
                seconds.append(time.monotonic() - begun)
            with capsys.disabled():
                sys.stdout.write(
                    f"\n{CONNECTIONS} idle connections: {each / 1024:.1f} KiB each, "
                    f"median round trip {statistics.median(seconds) * 1000:.1f} ms\n"
                )

            assert each < CONNECTION_BYTES_MAX
            assert statistics.median(seconds) < ROUND_TRIP_SECONDS_MAX
        until(lambda: process.descriptors <= before + 2, "their descriptors are back")
        served.round_trip(topic)
    said.check_no_failure()
