"""kcat beyond producing and consuming: what it shows of a cluster."""

from __future__ import annotations

import json
import re

import pytest
from tests.interop.clients.all import available
from tests.interop.clients.kcat import Kcat, kcat, kcat_outputs
from tests.interop.conftest import CreateTopic
from tests.kit.broker_process import BrokerProcess


@pytest.fixture(autouse=True)
def _kcat_is_installed() -> None:
    available(Kcat())


def test_metadata_is_listed(broker: BrokerProcess, create_topic: CreateTopic) -> None:
    """The broker, and a topic with its leaders and replicas."""
    topic = create_topic(partitions=2)

    listed = json.loads(kcat(broker.bootstrap, "-L", "-J", "-t", topic))

    assert [(each["id"], each["name"]) for each in listed["brokers"]] == [(broker.broker_id, broker.bootstrap)]
    assert listed["controllerid"] == broker.broker_id
    (described,) = listed["topics"]
    assert [(each["partition"], each["leader"]) for each in described["partitions"]] == [(0, 1), (1, 1)]
    assert described["partitions"][0]["replicas"] == [{"id": 1}]


def test_listing_does_not_create(broker: BrokerProcess, topic: str) -> None:
    """A topic that kcat only looks for does not exist afterwards."""
    kcat(broker.bootstrap, "-L", "-t", f"{topic}-not", "-X", "allow.auto.create.topics=false")

    names = [each["topic"] for each in json.loads(kcat(broker.bootstrap, "-L", "-J"))["topics"]]
    assert topic in names
    assert f"{topic}-not" not in names


def test_lines_go_through_a_pipe_unchanged(broker: BrokerProcess, topic: str) -> None:
    """What one kcat reads from standard input, another one writes to standard output."""
    lines = "".join(f"line {number}\n" for number in range(1000))
    kcat(broker.bootstrap, "-P", "-t", topic, "-p", "0", standard_input=lines.encode())

    assert kcat(broker.bootstrap, "-C", "-q", "-e", "-t", topic, "-p", "0", "-o", "beginning") == lines


def test_old_librdkafka_switches_nothing_off(broker: BrokerProcess, topic: str) -> None:
    """It looks for certain versions in what a broker serves, and does without a feature where one is missing."""
    _, said = kcat_outputs(broker.bootstrap, "-L", "-t", topic, "-d", "feature")

    enabled = set(re.findall(r"Enabling feature (\w+)", said))
    assert enabled >= {"MsgVer1", "MsgVer2", "ThrottleTime", "OffsetTime", "IdempotentProducer", "LZ4", "ZSTD"}
