"""docs/CLIENT.md: its tables are those of the code, and its examples do what it says."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from scripts.client_options import PAGE, page
from tests.client.consumer.consuming import create_topic
from tests.client.schema.registry_server import serving
from tests.kit.broker_process import BrokerProcess, topic_name
from tests.kit.waiting import until_async

from ottla.client.consumer.consumer import Consumer
from ottla.client.producer.producer import Producer
from ottla.client.types import TopicPartition

DEADLINE_S = 120
VALUES = [b"order %d" % number for number in range(50)]


def test_the_tables_of_options_are_current() -> None:
    """`make docs` was run after the last change of an option."""
    assert PAGE.read_text() == page()


@pytest.fixture
async def examples(broker: BrokerProcess) -> dict[str, Any]:
    """What the examples define, with topics of their own in place of `orders` and `invoices`, and groups, too."""
    topics = {name: topic_name() for name in ("orders", "invoices", "typed")}
    text = PAGE.read_text()
    for name, own in topics.items():
        await create_topic(broker.bootstrap, own, 2)
        text = text.replace(f'"{name}"', f'"{own}"')
    text = re.sub(r'group_id="(\w+)"', rf'group_id="\1-{topics["orders"]}"', text)
    text = text.replace('f"copy-{instance}"', f'f"copy-{{instance}}-{topics["orders"]}"')
    found: dict[str, Any] = dict(topics)
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        if "basicConfig" in code:
            continue
        names: dict[str, Any] = {}
        exec(compile(code, str(PAGE), "exec"), names)
        found |= {name: item for name, item in names.items() if not name.startswith("_")}
    async with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for value in VALUES:
            await producer.send(topics["orders"], value)
    return found


@asynccontextmanager
async def running(example: Awaitable[Any]) -> AsyncIterator[None]:
    """Have an example run that does not end."""
    task = asyncio.ensure_future(example)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), task.exception()


async def test_the_worker_processes_every_record(examples: dict[str, Any], broker: BrokerProcess) -> None:
    """And commits: the next worker of the group starts behind them."""
    done: list[bytes] = []

    async def process(record: Any) -> None:
        done.append(record.value)

    group = f"billing-{examples['orders']}"
    async with running(examples["work"](broker.bootstrap, process)):
        await until_async(lambda: len(done) >= len(VALUES), "all records")
        async with Consumer(bootstrap_servers=broker.bootstrap, group_id=group) as watching:
            partitions = await watching.end_offsets(_partitions(examples["orders"]))
            await until_async(lambda: _all_committed(watching, partitions), "the commit")

    assert Counter(done) == Counter(VALUES)


def _partitions(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(2)]


async def _all_committed(consumer: Consumer, ends: dict[Any, int]) -> bool:
    committed = await consumer.committed_offsets(list(ends))
    return all((known := committed[one]) is not None and known.offset == end for one, end in ends.items())


async def test_the_copy_is_exact(examples: dict[str, Any], broker: BrokerProcess) -> None:
    """Every record once."""
    copied: list[bytes] = []
    async with (
        running(examples["copy_exactly_once"](broker.bootstrap, "1")),
        Consumer(
            examples["invoices"],
            bootstrap_servers=broker.bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer,
    ):
        while len(copied) < len(VALUES):
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                copied += [record.value or b"" for record in records]

    assert Counter(copied) == Counter(VALUES)


async def test_a_writer_with_a_small_buffer_writes_everything(examples: dict[str, Any], broker: BrokerProcess) -> None:
    """More than the buffer holds."""
    count = await examples["write_all"](broker.bootstrap, (bytes(1000) for _ in range(12_000)))

    assert count == 12_000


async def test_a_reader_with_a_limit_waits_for_its_queue(examples: dict[str, Any], broker: BrokerProcess) -> None:
    """It never has more than fits, and goes on when there is room."""
    queue: asyncio.Queue[bytes] = asyncio.Queue(maxsize=10)
    got: list[bytes] = []
    async with running(examples["read_with_a_limit"](broker.bootstrap, queue)):
        await until_async(queue.full, "a full queue")
        while len(got) < len(VALUES):
            got.append(await asyncio.wait_for(queue.get(), DEADLINE_S))

    assert Counter(got) == Counter(VALUES)


async def test_a_signal_ends_a_consumer_in_order(examples: dict[str, Any], broker: BrokerProcess) -> None:
    """What it got is committed."""
    seen: list[bytes] = []
    running_task = asyncio.ensure_future(examples["run_until_terminated"](broker.bootstrap, seen))
    await until_async(lambda: len(seen) == len(VALUES), "all records")
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(running_task, DEADLINE_S)
    asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)

    async with Consumer(bootstrap_servers=broker.bootstrap, group_id=f"audit-{examples['orders']}") as consumer:
        assert await _all_committed(consumer, await consumer.end_offsets(_partitions(examples["orders"])))


async def test_the_other_examples_do_what_they_say(
    examples: dict[str, Any], broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tables, schemas, interceptors, aiokafka's names, and the lag."""
    with serving() as registry:
        assert await examples["with_a_schema"](broker.bootstrap, registry.url) == {"id": 1}
    table = await examples["read_table"](broker.bootstrap, len(VALUES))
    assert Counter(table["value"].to_pylist()) == Counter(VALUES)
    # Other examples have written to the topic, too.
    assert (await examples["as_with_aiokafka"](broker.bootstrap)).startswith(b"order")
    await examples["send_stamped"](broker.bootstrap)
    assert capsys.readouterr().out.strip().isdecimal()
    lags: list[float] = []
    async with Producer(bootstrap_servers=broker.bootstrap) as producer:
        reporting = asyncio.ensure_future(examples["report_lag"](broker.bootstrap, lags))
        while not reporting.done():
            await producer.send_and_wait(examples["orders"], b"one more")
    assert lags
