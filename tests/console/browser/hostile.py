"""Names and values that would do harm if a page took them for HTML, and a cluster that has them."""

from __future__ import annotations

import json

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import NewTopic
from ottla.client.consumer.consumer import Consumer
from ottla.client.producer.producer import Producer

MARKUP = '<img src=x onerror="window.__harmed=1"><script>window.__harmed=1</script>'
GROUP = f"billing {MARKUP} ✂ '\""
CLIENT_ID = f"client {MARKUP}"
# More than JavaScript's numbers can hold.
LARGE = "9223372036854775807"


async def fill(bootstrap: str, topic: str, *, partitions: int = 2, records: int = 30) -> None:
    """Make a topic with hostile records, and a group with a hostile name that has read a part of it."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, num_partitions=partitions)])
    async with Producer(bootstrap_servers=bootstrap, client_id=CLIENT_ID) as producer:
        for number in range(records):
            value = f'{{"id": {LARGE}, "user": {json.dumps(MARKUP)}, "items": [{{"n": {number}}}]}}'
            await producer.send_and_wait(
                topic,
                value.encode(),
                key=f"key {MARKUP} {number}".encode(),
                partition=number % partitions,
                headers=[(f"trace {MARKUP}", MARKUP.encode()), ("binary", b"\xff\x00\x01")],
            )
        await producer.send_and_wait(topic, None, key=b"gone", partition=0)
        await producer.send_and_wait(topic, b"\x93\x01\x02\x03", key=b"\xff\xfe", partition=0)
    async with Consumer(
        topic, bootstrap_servers=bootstrap, group_id=GROUP, client_id=CLIENT_ID, auto_offset_reset="earliest"
    ) as consumer:
        for _ in range(5):
            await anext(consumer)
        await consumer.commit()
