"""The load: librdkafka's C interface, in a process of its own.

    python -m bench.support.load produce --bootstrap HOST:PORT --topic T --count N --record-bytes B [--set key=value]...
    python -m bench.support.load produce --bootstrap HOST:PORT --topic T --seconds S --partitions P ...

Prints one line of JSON. No record becomes a Python object (librdkafka.py): the client is to be as little of what is
measured as possible. Only the latency is measured with confluent-kafka, at a few hundred records a second.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable

from bench.support.librdkafka import AT_ONCE, LightConsumer, LightProducer
from confluent_kafka import Consumer, Producer, TopicPartition

WAIT_SECONDS_MAX = 120.0
_QUEUED_MAX = 1_000_000
_REQUESTS_QUEUED_MAX = 500
_PAUSE_SECONDS = 0.001


def produce(options: argparse.Namespace) -> dict[str, float]:
    """Produce records as fast as they are taken."""
    producer = _light_producer(options)
    # Half of the client's own queue is enough to keep it busy.
    queued_max = min(_QUEUED_MAX, 512 * 1024 * 1024 // options.record_bytes) // 2
    begun, used = time.perf_counter(), time.process_time()
    deadline = begun + WAIT_SECONDS_MAX
    batches = 0
    while _goes_on(options, batches * AT_ONCE, begun):
        while len(producer) > queued_max:
            time.sleep(_PAUSE_SECONDS)
            _check(deadline)
        producer.produce(batches % options.partitions)
        batches += 1
    producer.flush(WAIT_SECONDS_MAX)
    return _rate(options, batches * AT_ONCE, begun, used)


def consume(options: argparse.Namespace) -> dict[str, float]:
    """Consume records from the beginning."""
    begun, used = time.perf_counter(), time.process_time()
    consumer = LightConsumer(
        {
            "bootstrap.servers": options.bootstrap,
            "queued.min.messages": _QUEUED_MAX,
            "queued.max.messages.kbytes": 512 * 1024,
            "fetch.message.max.bytes": 8 * 1024 * 1024,
            "fetch.max.bytes": 50 * 1024 * 1024,
            **_settings(options),
        },
        options.topic,
    )
    received = consumer.consume(options.count, WAIT_SECONDS_MAX)
    rate = _rate(options, received, begun, used)
    if received < options.count:
        raise SystemExit(f"not done in {WAIT_SECONDS_MAX:.0f} s")
    consumer.close()
    return rate


def requests(options: argparse.Namespace) -> dict[str, float]:
    """Produce with one record in each request and five requests in flight."""
    options.set = ["batch.num.messages=1", "linger.ms=0", "max.in.flight.requests.per.connection=5", *options.set]
    producer = _light_producer(options)
    begun, used = time.perf_counter(), time.process_time()
    deadline = begun + WAIT_SECONDS_MAX
    sent = 0
    while _goes_on(options, sent, begun):
        # Enough to keep five in flight, and little to wait for when the time is over.
        while len(producer) > _REQUESTS_QUEUED_MAX:
            time.sleep(_PAUSE_SECONDS)
            _check(deadline)
        producer.produce(sent % options.partitions, 1)
        sent += 1
    producer.flush(WAIT_SECONDS_MAX)
    return _rate(options, sent, begun, used)


def latency(options: argparse.Namespace) -> dict[str, float]:
    """Produce at an even pace and consume in another thread; return from send to receive, in milliseconds."""
    options.set = ["linger.ms=0", *options.set]
    if options.seconds is not None:
        options.count = int(options.seconds * options.per_second)
    producer = Producer(_producer_settings(options))
    producer.produce(options.topic, bytes(options.record_bytes), partition=0)
    if producer.flush(WAIT_SECONDS_MAX):
        raise SystemExit("the first record was not acknowledged in time")
    sent = [0.0] * options.count
    took = [0.0] * options.count
    ready, done = threading.Event(), threading.Event()

    def receive() -> None:
        consumer = Consumer({"bootstrap.servers": options.bootstrap, "group.id": "bench", "enable.auto.commit": False})
        consumer.assign([TopicPartition(options.topic, 0, 0)])
        received = -1
        deadline = time.perf_counter() + WAIT_SECONDS_MAX
        while received < options.count and time.perf_counter() < deadline:
            message = consumer.poll(1.0)
            if message is None or message.error() is not None:
                continue
            if received >= 0:
                took[received] = time.perf_counter() - sent[received]
            received += 1
            ready.set()
        consumer.close()
        done.set()

    threading.Thread(target=receive, daemon=True).start()
    ready.wait(WAIT_SECONDS_MAX)
    begun = time.perf_counter()
    for index in range(options.count):
        time.sleep(max(0.0, begun + index / options.per_second - time.perf_counter()))
        sent[index] = time.perf_counter()
        producer.produce(options.topic, bytes(options.record_bytes), partition=0)
        producer.poll(0)
    if not done.wait(WAIT_SECONDS_MAX):
        raise SystemExit("some records did not arrive in time")
    producer.flush(WAIT_SECONDS_MAX)
    ordered = sorted(took)
    return {
        "p50_ms": ordered[len(ordered) // 2] * 1000,
        "p99_ms": ordered[int(len(ordered) * 0.99)] * 1000,
        "max_ms": ordered[-1] * 1000,
    }


def _goes_on(options: argparse.Namespace, sent: int, begun: float) -> bool:
    if options.seconds is None:
        return bool(sent < options.count)
    return bool(time.perf_counter() - begun < options.seconds)


def _producer_settings(options: argparse.Namespace) -> dict[str, str | int | float | bool]:
    return {
        "bootstrap.servers": options.bootstrap,
        "acks": 1,
        "queue.buffering.max.messages": _QUEUED_MAX,
        "queue.buffering.max.kbytes": 1024 * 1024,
        **_settings(options),
    }


def _light_producer(options: argparse.Namespace) -> LightProducer:
    """Return a producer that is connected and knows the leader, before the clock starts."""
    producer = LightProducer(_producer_settings(options), options.topic, os.urandom(options.record_bytes))
    producer.produce(0, 1)
    producer.flush(WAIT_SECONDS_MAX)
    return producer


def _settings(options: argparse.Namespace) -> dict[str, str | int | float | bool]:
    return dict(setting.split("=", 1) for setting in options.set)


def _rate(options: argparse.Namespace, count: int, begun: float, used: float) -> dict[str, float]:
    """Return what went through since a moment, and the processor time of this process since then."""
    return {
        "records": count,
        "bytes": count * options.record_bytes,
        "seconds": time.perf_counter() - begun,
        "cpu_seconds": time.process_time() - used,
    }


def _check(deadline: float) -> None:
    if time.perf_counter() > deadline:
        raise SystemExit(f"not done in {WAIT_SECONDS_MAX:.0f} s")


KINDS: dict[str, Callable[[argparse.Namespace], dict[str, float]]] = {
    "produce": produce,
    "consume": consume,
    "requests": requests,
    "latency": latency,
}


def main() -> None:
    """Run one load and print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m bench.support.load", description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    amount = parser.add_mutually_exclusive_group(required=True)
    amount.add_argument("--count", type=int, help="records")
    amount.add_argument("--seconds", type=float, help="as many records as go in this time")
    parser.add_argument("--partitions", type=int, default=1, help="what is produced is spread over so many")
    parser.add_argument("--record-bytes", type=int, default=100)
    parser.add_argument("--per-second", type=float, default=500.0)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="an option of librdkafka")
    options = parser.parse_args()
    sys.stdout.write(json.dumps(KINDS[options.kind](options)) + "\n")


if __name__ == "__main__":
    main()
