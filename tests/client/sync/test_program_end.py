"""Records of producers that nobody closed, when the program ends."""

from __future__ import annotations

import subprocess
import sys
from itertools import islice
from typing import Any

from tests.kit.broker_process import BrokerProcess, MakeBroker

from ottla.sync import Consumer

UNCLOSED = """
import sys
import ottla.client.sync.clients
from ottla.sync import Producer

bootstrap, topic = sys.argv[1:]
producer = Producer(bootstrap_servers=bootstrap, linger_ms=60_000, request_timeout_ms=60_000)
producer.start()
producer.partitions_for(topic)
ottla.client.sync.clients.EXIT_TIMEOUT_MS = int(input("ready\\n"))
for number in range(7):
    producer.send(topic, b"%d" % number)
"""
UNCLOSED_ASYNCIO = """
import asyncio
import sys
from ottla import Producer

async def main(bootstrap, topic):
    producer = Producer(bootstrap_servers=bootstrap, linger_ms=60_000)
    await producer.start()
    for number in range(7):
        await producer.send(topic, b"%d" % number)

asyncio.run(main(*sys.argv[1:]))
"""


def start(program: str, bootstrap: str, topic: str) -> subprocess.Popen[str]:
    """Run a program of somebody."""
    return subprocess.Popen(
        [sys.executable, "-c", program, bootstrap, topic],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_records_of_a_producer_that_nobody_closed_are_written(broker: BrokerProcess, topic: str) -> None:
    """A script that ends after its last send has sent."""
    with start(UNCLOSED, broker.bootstrap, topic) as program:
        _, errors = program.communicate("60000\n", timeout=120)

    assert (program.returncode, errors) == (0, "")
    options: dict[str, Any] = {"bootstrap_servers": broker.bootstrap, "auto_offset_reset": "earliest"}
    with Consumer(topic, consumer_timeout_ms=60_000, **options) as consumer:
        values = [record.value for record in islice(consumer, 7)]
    assert values == [b"%d" % number for number in range(7)]


def test_the_end_of_a_program_says_what_was_lost(make_broker: MakeBroker) -> None:
    """It does not wait for ever for a broker that is gone."""
    broker = make_broker()
    with start(UNCLOSED, broker.bootstrap, "lost") as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        broker.kill()
        _, errors = program.communicate("200\n", timeout=120)

    assert program.returncode == 0
    assert "7 record(s) were not written when the program ended: call close() or flush()" in errors


def test_an_asyncio_program_says_what_was_lost(broker: BrokerProcess, topic: str) -> None:
    """Its loop has ended, so nothing can be sent any more."""
    with start(UNCLOSED_ASYNCIO, broker.bootstrap, topic) as program:
        _, errors = program.communicate(timeout=120)

    assert program.returncode == 0
    assert "7 record(s) were not written when the program ended: await stop() or flush()" in errors
