"""The load: librdkafka through confluent-kafka, in a process of its own, so that it and the broker do not share a GIL.

    python -m bench.support.load produce --bootstrap HOST:PORT --topic T --count N --record-bytes B [--set key=value]...
    python -m bench.support.load produce --bootstrap HOST:PORT --topic T --seconds S --partitions P ...

Prints one line of JSON. Payloads are made once, and records are handed over a thousand at a time: the client is to be
as little of what is measured as possible. Still, it tops out at about half a million records of 100 bytes a second.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition

WAIT_SECONDS_MAX = 120.0
_QUEUED_MAX = 1_000_000
_AT_ONCE = 1000
_REQUESTS_QUEUED_MAX = 500


def produce(options: argparse.Namespace) -> dict[str, float]:
    """Produce records as fast as they are taken."""
    producer = _producer(options)
    value = os.urandom(options.record_bytes)
    _first_record(producer, options.topic, value)
    records = [{"value": value}] * _AT_ONCE
    # Half of the client's own queue is enough to keep it busy.
    queued_max = min(_QUEUED_MAX, 512 * 1024 * 1024 // options.record_bytes) // 2
    begun = time.perf_counter()
    deadline = begun + WAIT_SECONDS_MAX
    batches = 0
    while _goes_on(options, batches * _AT_ONCE, begun):
        while len(producer) > queued_max:
            producer.poll(0.01)
            _check(deadline)
        producer.produce_batch(options.topic, records, partition=batches % options.partitions)
        batches += 1
    if producer.flush(WAIT_SECONDS_MAX):
        raise SystemExit("some records were not acknowledged in time")
    return _rate(options, batches * _AT_ONCE, time.perf_counter() - begun)


def consume(options: argparse.Namespace) -> dict[str, float]:
    """Consume records from the beginning, thousands at a time."""
    consumer = Consumer(
        {
            "bootstrap.servers": options.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.min.messages": _QUEUED_MAX,
            "queued.max.messages.kbytes": 512 * 1024,
            **_consumer_settings(),
            **_settings(options),
        }
    )
    received = 0
    begun = time.perf_counter()
    deadline = begun + WAIT_SECONDS_MAX
    consumer.assign([TopicPartition(options.topic, 0, 0)])
    while received < options.count:
        received += len(consumer.consume(10 * _AT_ONCE, 0.1))
        _check(deadline)
    seconds = time.perf_counter() - begun
    consumer.close()
    return _rate(options, received, seconds)


def consume_kcat(options: argparse.Namespace) -> dict[str, float]:
    """Consume records with kcat, which is librdkafka without Python."""
    settings = [f"{key}={value}" for key, value in {**_consumer_settings(), **_settings(options)}.items()]
    arguments = [argument for setting in settings for argument in ("-X", setting)]
    command = [shutil.which("kcat") or "kcat", "-C", "-b", options.bootstrap, "-t", options.topic, "-p", "0"]
    command += ["-o", "beginning", "-c", str(options.count), "-e", "-q", "-f", "", *arguments]
    begun = time.perf_counter()
    subprocess.run(command, check=True, timeout=WAIT_SECONDS_MAX, stdout=subprocess.DEVNULL)
    return _rate(options, options.count, time.perf_counter() - begun)


def requests(options: argparse.Namespace) -> dict[str, float]:
    """Produce with one record in each request and five requests in flight."""
    options.set = ["batch.num.messages=1", "linger.ms=0", "max.in.flight.requests.per.connection=5", *options.set]
    producer = _producer(options)
    value = os.urandom(options.record_bytes)
    _first_record(producer, options.topic, value)
    begun = time.perf_counter()
    deadline = begun + WAIT_SECONDS_MAX
    sent = 0
    while _goes_on(options, sent, begun):
        # Enough to keep five in flight, and little to wait for when the time is over.
        while len(producer) > _REQUESTS_QUEUED_MAX:
            producer.poll(0.01)
            _check(deadline)
        producer.produce(options.topic, value, partition=sent % options.partitions)
        sent += 1
    if producer.flush(WAIT_SECONDS_MAX):
        raise SystemExit("some records were not acknowledged in time")
    return _rate(options, sent, time.perf_counter() - begun)


def latency(options: argparse.Namespace) -> dict[str, float]:
    """Produce at an even pace and consume in another thread; return from send to receive, in milliseconds."""
    options.set = ["linger.ms=0", *options.set]
    if options.seconds is not None:
        options.count = int(options.seconds * options.per_second)
    producer = _producer(options)
    _first_record(producer, options.topic, bytes(options.record_bytes))
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


def _producer(options: argparse.Namespace) -> Producer:
    return Producer(
        {
            "bootstrap.servers": options.bootstrap,
            "acks": 1,
            "queue.buffering.max.messages": _QUEUED_MAX,
            "queue.buffering.max.kbytes": 1024 * 1024,
            **_settings(options),
        }
    )


def _first_record(producer: Producer, topic: str, value: bytes) -> None:
    """Connect and learn where the leader is, before the clock starts."""
    producer.produce(topic, value, partition=0)
    if producer.flush(WAIT_SECONDS_MAX):
        raise SystemExit("the first record was not acknowledged in time")


def _consumer_settings() -> dict[str, str | int | float | bool]:
    return {"fetch.message.max.bytes": 8 * 1024 * 1024, "fetch.max.bytes": 50 * 1024 * 1024}


def _settings(options: argparse.Namespace) -> dict[str, str | int | float | bool]:
    return dict(setting.split("=", 1) for setting in options.set)


def _rate(options: argparse.Namespace, count: int, seconds: float) -> dict[str, float]:
    return {"records": count, "bytes": count * options.record_bytes, "seconds": seconds}


def _check(deadline: float) -> None:
    if time.perf_counter() > deadline:
        raise SystemExit(f"not done in {WAIT_SECONDS_MAX:.0f} s")


KINDS: dict[str, Callable[[argparse.Namespace], dict[str, float]]] = {
    "produce": produce,
    "consume": consume,
    "consume-kcat": consume_kcat,
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
