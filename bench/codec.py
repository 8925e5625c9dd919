"""What the hot messages cost: compiled codecs beside plain construct and a bare `struct` lower bound, in one run.

    python bench/codec.py [--rounds N]

Prints microseconds per operation, the best of several rounds. The bound does only what cannot be left out: it
unpacks the same bytes into tuples by hand, for this one version, without checks and without objects.
"""

from __future__ import annotations

import argparse
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.protocol import schema
from ottla.protocol.codec import decode, encode, encode_parts
from ottla.protocol.message import Message
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.protocol.messages.headers import RequestHeader
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

TOPIC_ID = bytes(range(16))
RECORDS = memoryview(bytes(16 * 1024))

unpack_h = struct.Struct(">h").unpack_from
unpack_i = struct.Struct(">i").unpack_from
unpack_hii = struct.Struct(">hii").unpack_from
unpack_ii = struct.Struct(">ii").unpack_from
unpack_hhih = struct.Struct(">hhih").unpack_from
unpack_fetch = struct.Struct(">iiiibiiB").unpack_from
unpack_topic = struct.Struct(">16sB").unpack_from
unpack_partition = struct.Struct(">iiqiqiB").unpack_from
unpack_answer_head = struct.Struct(">ihiB").unpack_from
unpack_answer = struct.Struct(">ihqqqBi").unpack_from


def bare_header(data: memoryview) -> Any:
    key, version, correlation_id, size = unpack_hhih(data, 0)
    return key, version, correlation_id, str(data[10 : 10 + size], "utf-8")


def bare_produce(data: memoryview) -> Any:
    """Version 7, classic encoding."""
    (size,) = unpack_h(data, 0)
    position = 2 if size < 0 else 2 + size
    acks, timeout_ms, count = unpack_hii(data, position)
    position += 10
    topics = []
    for _ in range(count):
        (size,) = unpack_h(data, position)
        position += 2
        name = str(data[position : position + size], "utf-8")
        position += size
        (partition_count,) = unpack_i(data, position)
        position += 4
        partitions = []
        for _ in range(partition_count):
            index, size = unpack_ii(data, position)
            position += 8
            partitions.append((index, data[position : position + size]))
            position += size
        topics.append((name, partitions))
    return acks, timeout_ms, topics


def bare_fetch(data: memoryview) -> Any:
    """Version 13, flexible encoding with lengths below 127."""
    head = unpack_fetch(data, 0)
    position = 26
    topics = []
    for _ in range(head[-1] - 1):
        topic_id, count = unpack_topic(data, position)
        position += 17
        partitions = []
        for _ in range(count - 1):
            partitions.append(unpack_partition(data, position))
            position += 33
        position += 1
        topics.append((topic_id, partitions))
    return head, topics


def bare_fetch_response(data: memoryview) -> Any:
    """Version 13; the records' length takes three bytes."""
    head = unpack_answer_head(data, 0)
    position = 11
    topics = []
    for _ in range(head[-1] - 1):
        topic_id, count = unpack_topic(data, position)
        position += 17
        partitions = []
        for _ in range(count - 1):
            answer = unpack_answer(data, position)
            position += 35
            size = (data[position] & 127) + ((data[position + 1] & 127) << 7) + (data[position + 2] << 14) - 1
            position += 3
            partitions.append((answer, data[position : position + size]))
            position += size + 1
        position += 1
        topics.append((topic_id, partitions))
    return head, topics


@dataclass(frozen=True, slots=True)
class Case:
    """One message in one version, with its lower bound for decoding where there is one."""

    name: str
    message: Message
    version: int
    bare: Callable[[memoryview], Any] | None = None


def cases() -> list[Case]:
    """Return the hot messages with one partition each."""
    produce = ProduceRequest(
        acks=-1,
        timeout_ms=30000,
        topic_data=[
            TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=3, records=RECORDS)]),
        ],
    )
    produced = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name="orders",
                partition_responses=[PartitionProduceResponse(index=3, error_code=0, base_offset=12345)],
            )
        ]
    )
    fetch = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        topics=[
            FetchTopic(
                topic_id=TOPIC_ID, partitions=[FetchPartition(partition=3, fetch_offset=9, partition_max_bytes=1 << 20)]
            )
        ],
    )
    fetched = FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic_id=TOPIC_ID,
                partitions=[PartitionData(partition_index=3, error_code=0, high_watermark=99, records=RECORDS)],
            )
        ]
    )
    header = RequestHeader(request_api_key=0, request_api_version=7, correlation_id=1, client_id="rdkafka")
    return [
        Case("request header 1", header, 1, bare_header),
        Case("Produce request 7", produce, 7, bare_produce),
        Case("Produce request 11", produce, 11),
        Case("Produce response 11", produced, 11),
        Case("Fetch request 13", fetch, 13, bare_fetch),
        Case("Fetch response 13", fetched, 13, bare_fetch_response),
    ]


def microseconds(operations: list[Callable[[], Any]], rounds: int) -> list[float]:
    """Return the time of one call of each, the best of several rounds of about 5 ms, taken in turn."""
    best = [float("inf")] * len(operations)
    calls = []
    for operation in operations:
        operation()
        begin = time.perf_counter()
        operation()
        calls.append(max(1, int(0.005 / max(time.perf_counter() - begin, 1e-7))))
    for _ in range(rounds):
        for index, operation in enumerate(operations):
            begin = time.perf_counter()
            for _ in range(calls[index]):
                operation()
            best[index] = min(best[index], (time.perf_counter() - begin) / calls[index] * 1e6)
    return best


def decoding(case: Case, rounds: int) -> str:
    """Return the line that compares the decoders of a message."""
    cls = type(case.message)
    data = encode(case.message, case.version)
    view = memoryview(data)
    assert decode(cls, case.version, view) == case.message
    operations: list[Callable[[], Any]] = [
        lambda: decode(cls, case.version, view),
        lambda: schema.parse(cls, case.version, data),
    ]
    if case.bare is not None:
        bare = case.bare
        operations.append(lambda: bare(view))
    ours, plain, *bound = microseconds(operations, rounds)
    line = f"{case.name:22} decode {ours:8.2f} {plain:10.1f} {plain / ours:9.1f}x"
    return line + "".join(f" {bare:8.2f} {ours / bare:9.2f}x" for bare in bound)


def encoding(case: Case, rounds: int) -> str:
    """Return the line that compares the encoders of a message."""
    ours, plain = microseconds(
        [lambda: encode_parts(case.message, case.version), lambda: schema.build(case.message, case.version)], rounds
    )
    return f"{case.name:22} encode {ours:8.2f} {plain:10.1f} {plain / ours:9.1f}x"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="rounds of about 5 ms for each figure")
    rounds = parser.parse_args().rounds
    print(f"{'µs per operation':22} {'':6} {'compiled':>8} {'construct':>10} {'':>10} {'bare':>8}")
    for case in cases():
        print(decoding(case, rounds))
        print(encoding(case, rounds))


if __name__ == "__main__":
    main()
