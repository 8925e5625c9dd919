"""The same bytes as Apache Kafka 3.9.1: its own Java classes read and write every message in every version."""

from __future__ import annotations

import json
import os
import subprocess
from base64 import b64encode
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from tests.kit.apache_kafka import WIRE_ORACLE, UnavailableError, jars, java, skip_or_fail
from tests.protocol.samples import sample
from tests.protocol.test_messages import DECLARED, VERSIONS

from ottla.protocol.api import Api
from ottla.protocol.codec import decode, encode
from ottla.protocol.message import Message, WireField
from ottla.protocol.messages.control_records import ControlRecordType, EndTxnMarker
from ottla.protocol.messages.storage_records import AbortedTxn, ProducerSnapshot
from ottla.protocol.primitives import Array, Bytes, Records, Uuid, WireType, uuid_to_text

ORACLE = Path(__file__).with_name("WireOracle.java")
ORACLE_SECONDS_MAX = 60
SEEDS = range(8)

# The first version that is not in 3.9: kio is the oracle for these.
LATER = {
    Api.CONSUMER_GROUP_HEARTBEAT: 1,
    Api.CONSUMER_GROUP_DESCRIBE: 1,
    Api.SHARE_GROUP_HEARTBEAT: 1,
    Api.SHARE_GROUP_DESCRIBE: 1,
    Api.SHARE_FETCH: 1,
    Api.SHARE_ACKNOWLEDGE: 1,
    Api.DESCRIBE_SHARE_GROUP_OFFSETS: 0,
    Api.ALTER_SHARE_GROUP_OFFSETS: 0,
    Api.DELETE_SHARE_GROUP_OFFSETS: 0,
    **{api: 0 for api in Api if api.is_own},
}
# 3.9 writes these by hand; their schemas came after it.
BY_HAND = (AbortedTxn, ControlRecordType, EndTxnMarker, ProducerSnapshot)
NOT_IN_KAFKA = {
    (cls, version)
    for api, first in LATER.items()
    for cls in (api.request, api.response)
    for version in range(first, api.versions.last + 1)
} | {(cls, version) for cls in BY_HAND for version in range(cls.versions.first, cls.versions.last + 1)}
IN_KAFKA = [case for case in VERSIONS if case not in NOT_IN_KAFKA]

APIS = {cls: (kind, api) for api in Api for kind, cls in (("request", api.request), ("response", api.response))}


class Answer(NamedTuple):
    """What Kafka says to one of our messages; `shown` is its JSON in one or two versions."""

    message: Message
    encoded: bytes
    body: str
    shown: dict[str, Any]
    header_version: int
    versions: str


Answers = dict[tuple[type[Message], int], list[Answer]]


@pytest.fixture(scope="module")
def answers() -> Answers:
    """Kafka's answers to the samples of all messages, from one run of Java."""
    try:
        classpath = os.pathsep.join(map(str, jars(WIRE_ORACLE)))
        command = [java(), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath, str(ORACLE)]
    except UnavailableError as reason:
        skip_or_fail(reason)
    messages = [(version, sample(cls, version, Random(seed))) for cls, version in VERSIONS for seed in SEEDS]
    lines = [_line(message, version) for version, message in messages]
    done = subprocess.run(
        command, check=False, input="\n".join(lines), capture_output=True, encoding="utf-8", timeout=ORACLE_SECONDS_MAX
    )
    assert done.returncode == 0, done.stderr
    answered = done.stdout.rstrip("\n").split("\n")
    found: Answers = {}
    for (version, message), line, answer in zip(messages, lines, answered, strict=True):
        found.setdefault((type(message), version), []).append(_answer(message, line, answer))
    return found


def _line(message: Message, version: int) -> str:
    kind, api = APIS.get(type(message), ("data", None))
    key, name = (api.value, api.label) if api is not None else (-1, type(message).__name__)
    return f"{kind}\t{key}\t{name}\t{version}\t{encode(message, version).hex()}"


def _answer(message: Message, line: str, answer: str) -> Answer:
    asked, fields = line.split("\t"), answer.split("\t")
    assert fields[:4] == asked[:4]
    body, shown, header_version, versions = fields[4:] if len(fields) == 8 else (fields[4], "{}", "-1", "")
    return Answer(message, bytes.fromhex(asked[4]), body, json.loads(shown), int(header_version), versions)


@pytest.mark.parametrize(("cls", "version"), IN_KAFKA, ids=lambda value: getattr(value, "__name__", str(value)))
def test_kafka_reads_and_writes_the_same_bytes(cls: type[Message], version: int, answers: Answers) -> None:
    """What we write, Kafka reads to the same values in fields of the same names, and writes again byte for byte."""
    for answer in answers[cls, version]:
        assert answer.body == answer.encoded.hex()
        assert decode(cls, version, bytes.fromhex(answer.body)) == answer.message
        # In a later version, the fields that this one lacks are shown too: with Kafka's defaults, and ours.
        for shown_version, shown in answer.shown.items():
            _assert_same(shown, answer.message, int(shown_version))


@pytest.mark.parametrize("cls", DECLARED, ids=lambda cls: cls.__name__)
def test_we_have_all_versions_of_kafka(cls: type[Message], answers: Answers) -> None:
    """None is missing, and none is ours alone but those that are listed above."""
    ours = [version for case, version in IN_KAFKA if case is cls]
    for version in ours:
        for answer in answers[cls, version]:
            assert answer.versions == (str(ours[0]) if len(ours) == 1 else f"{ours[0]}-{ours[-1]}")


@pytest.mark.parametrize("api", list(Api), ids=lambda api: api.label)
def test_headers_have_the_versions_of_kafka(api: Api, answers: Answers) -> None:
    """Requests and responses begin with the header that Kafka expects before them."""
    for version in range(api.versions.first, api.versions.last + 1):
        if (api.request, version) in NOT_IN_KAFKA:
            continue
        assert {answer.header_version for answer in answers[api.request, version]} == {
            api.request_header_version(version)
        }
        assert {answer.header_version for answer in answers[api.response, version]} == {
            api.response_header_version(version)
        }


def test_the_exceptions_are_really_missing_in_kafka(answers: Answers) -> None:
    """When Kafka covers a version, this file must too."""
    assert {case for case in answers if answers[case][0].body == "unsupported"} == NOT_IN_KAFKA


def _assert_same(theirs: dict[str, Any], ours: Message, version: int) -> None:
    """Compare field by field: Kafka's names are in camel case, and it leaves out tagged fields with their defaults."""
    values = {name.lower(): value for name, value in theirs.items()}
    for field in ours.wire_fields:
        value = getattr(ours, field.name)
        # Of our own fields Kafka keeps the bytes, and knows no names for them.
        if version not in field.versions or field.is_own:
            continue
        name = _kafka_name(field, value)
        if field.tag is not None and name not in values:
            assert value == field.absent, field.name
        else:
            _assert_same_value(values.pop(name), field.type, value, version)
    assert not values


def _kafka_name(field: WireField, value: Any) -> str:
    name = field.name.replace("_", "")
    return f"{name}sizeinbytes" if field.type is Records and value is not None else name


def _assert_same_value(theirs: Any, wire_type: Any, ours: Any, version: int) -> None:
    if ours is None:
        assert theirs is None
    elif isinstance(wire_type, Array):
        for their_item, our_item in zip(theirs, ours, strict=True):
            _assert_same_value(their_item, wire_type.item, our_item, version)
    elif isinstance(wire_type, WireType):
        assert theirs == _plain(wire_type, ours)
    else:
        _assert_same(theirs, ours, version)


def _plain(wire_type: WireType, ours: Any) -> Any:
    if wire_type is Uuid:
        return uuid_to_text(ours)
    if wire_type is Bytes:
        return b64encode(ours).decode()
    return len(ours) if wire_type is Records else ours
