"""Real requests, spoilt: bits, bytes, numbers and lengths that no client sends, in frames that look nearly right."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from random import Random

from tests.data.recorded import recorded_frames
from tests.protocol.samples import sample

from ottla.protocol.api import Api
from ottla.protocol.errors import ProtocolError
from ottla.protocol.frame import frame
from ottla.protocol.requests import decode_request, encode_request

# What breaks careless arithmetic, as bytes of a number.
_NUMBERS = [struct.pack(">i", number) for number in (0, -1, 1, 2**31 - 1, -(2**31), 2**16, 2**24 - 1)] + [
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    b"\x7f\xff",
    b"\x80\x00",
]
_PARTITIONS_MAX = 20
# The controller is believed in what it says, and options of a broker may make it useless to everybody: such a request
# that came out well formed is no bad input.
_BELIEVED = {
    Api.LEADER_AND_ISR,
    Api.STOP_REPLICA,
    Api.UPDATE_METADATA,
    Api.ALTER_CONFIGS,
    Api.INCREMENTAL_ALTER_CONFIGS,
}


def recorded_topics() -> set[str]:
    """Name the topics that the requests append to."""
    produced = [each.frame for each in recorded_frames() if each.direction == "request" and each.api_key == Api.PRODUCE]
    return {topic.name for request in produced for topic in decode_request(request)[1].topic_data}


def mutated_frames(seed: int, count: int, apis: Collection[int], *, declared: bool = False) -> Iterator[bytes]:
    """Give so many requests of these APIs with their sizes; the same seed gives the same frames.

    They are made of recorded ones; with `declared`, also of one of each version of each API, as it is declared.
    """
    random = Random(seed)
    requests = [each.frame for each in recorded_frames() if each.direction == "request" and each.api_key in apis]
    if declared:
        requests += _declared_requests(random, apis)
    while count > 0:
        request = bytearray(random.choice(requests))
        for _ in range(random.choice((0, 1, 1, 1, 2, 2, 3, 5))):
            _mutate(random, request, requests)
        if _asks_too_much(bytes(request)):
            continue
        count -= 1
        whole = frame([request])
        if random.random() < 0.01:
            whole = struct.pack(">i", len(request) + random.randint(-3, 3)) + whole[4:]
        yield whole


def _declared_requests(random: Random, apis: Collection[int]) -> list[bytes]:
    made = []
    for api in (each for each in Api if each in apis):
        for version in range(api.versions.first, api.versions.last + 1):
            body = sample(api.request, version, random)
            made.append(b"".join(map(bytes, encode_request(api, version, 1, "declared", body))))
    return made


def _mutate(random: Random, request: bytearray, requests: list[bytes]) -> None:
    position = random.randrange(len(request) or 1)
    match random.randrange(8):
        case 0 if request:
            request[position] ^= 1 << random.randrange(8)
        case 1 if request:
            request[position] = random.randrange(256)
        case 2 | 3:
            number = random.choice(_NUMBERS)
            request[position : position + len(number)] = number
        case 4:
            del request[position:]
        case 5:
            request[position:position] = random.randbytes(random.randint(1, 16))
        case 6:
            del request[position : position + random.randint(1, 8)]
        case _:
            other = random.choice(requests)
            request[position:] = other[random.randrange(len(other)) :]


def _asks_too_much(request: bytes) -> bool:
    """Say whether a request came out well formed and asks for something that a test cannot afford."""
    try:
        header, body = decode_request(request)
    except ProtocolError:
        return False
    api = Api(header.request_api_key)
    if api is Api.CREATE_TOPICS:
        return any(max(topic.num_partitions, len(topic.assignments)) > _PARTITIONS_MAX for topic in body.topics)
    if api is Api.CREATE_PARTITIONS:
        return any(topic.count > _PARTITIONS_MAX for topic in body.topics)
    return api in _BELIEVED
