"""Frames recorded between other people's clients, Kafka's tools and Apache Kafka 3.9 (scripts/record_frames.py)."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.data.recorded import recorded_frames

from ottla.protocol.api import Api
from ottla.protocol.errors import ProtocolError
from ottla.protocol.inspection import viewed
from ottla.protocol.message import Message
from ottla.protocol.requests import decode_request, decode_response, encode_request, encode_response

# Features of KRaft clusters, which we do not have.
LEFT_OUT = {"UpdateFeatures"}
# What a client sends behind its request; Kafka does not look at it.
SURPLUS_BYTES = {("confluent-kafka", Api.ALTER_USER_SCRAM_CREDENTIALS): 1}
RECORDED = [frame for frame in recorded_frames() if frame.api_name not in LEFT_OUT]
CLIENTS = sorted({frame.client for frame in RECORDED})


def _recorded(client: str) -> Iterator[tuple[str, Api, int, bytes]]:
    for frame in RECORDED:
        if frame.client == client:
            yield frame.direction, Api(frame.api_key), frame.api_version, frame.frame


@pytest.mark.parametrize("client", CLIENTS)
def test_recorded_frames_decode_and_encode_to_the_same_bytes(client: str) -> None:
    """Every request and response that was on the wire, byte for byte."""
    for kind, api, version, frame in _recorded(client):
        if kind == "request":
            header, message = decode_request(frame)
            frame = frame[: len(frame) - SURPLUS_BYTES.get((client, api), 0)]
            parts = encode_request(api, version, header.correlation_id, header.client_id, message)
        else:
            answer, message = decode_response(api, version, frame)
            parts = encode_response(api, version, answer.correlation_id, message)

        assert b"".join(parts) == frame, f"{kind} {api.label} {version}"
        assert json.dumps(viewed(message, version))


@pytest.mark.parametrize("client", CLIENTS)
def test_recorded_frames_are_read_to_their_end_and_no_further(client: str) -> None:
    """A frame that lacks its last byte is refused, and so is a response that has one more."""
    for kind, api, version, frame in _recorded(client):
        if (client, api) not in SURPLUS_BYTES:
            with pytest.raises(ProtocolError):
                _decode(kind, api, version, frame[:-1])
        if kind == "response":
            with pytest.raises(ProtocolError):
                _decode(kind, api, version, frame + b"\0")


def test_the_recordings_cover_what_clients_use() -> None:
    """Produce, fetch, groups, admin and the requests between brokers are all there."""
    seen = {api for client in CLIENTS for _, api, _, _ in _recorded(client)}

    assert len(seen) >= 40
    assert {
        Api.PRODUCE,
        Api.FETCH,
        Api.JOIN_GROUP,
        Api.TXN_OFFSET_COMMIT,
        Api.LEADER_AND_ISR,
        Api.UPDATE_METADATA,
    } <= seen


def _decode(kind: str, api: Api, version: int, frame: bytes) -> Message:
    message: Message
    _, message = decode_request(frame) if kind == "request" else decode_response(api, version, frame)
    return message
