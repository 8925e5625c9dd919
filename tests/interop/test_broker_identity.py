"""Who a broker is: its number in the cluster, its folder, its ports."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest
from tests.interop.clients.confluent import Confluent
from tests.interop.clients.record import DEADLINE_S, Sent
from tests.kit.broker_process import BrokerProcess, BrokerStartError, MakeBroker
from tests.kit.zookeeper import ZooKeeper


def test_a_second_broker_with_the_same_id_is_refused(
    broker: BrokerProcess, make_broker: MakeBroker, topic: str
) -> None:
    """It says who has the id and what to do, ends with an error, and the first one is not disturbed."""
    with pytest.raises(BrokerStartError) as refusal:
        make_broker(zookeeper=broker.zookeeper, broker_id=broker.broker_id)

    assert refusal.value.exit_code == 1
    assert f"there is a live broker with id {broker.broker_id}" in refusal.value.output
    assert broker.bootstrap in refusal.value.output
    assert Confluent().produce(broker.bootstrap, topic, [Sent(b"value")]) == [0]


def test_a_log_directory_belongs_to_one_broker(make_broker: MakeBroker) -> None:
    """A folder with the records of another broker is not touched."""
    first = make_broker(broker_id=1)
    assert first.stop() == 0

    with pytest.raises(BrokerStartError) as refusal:
        make_broker(f"log.dirs={first.log_dir}", broker_id=2)
    assert refusal.value.exit_code == 1
    first.start()


def test_a_port_that_is_taken_is_named(broker: BrokerProcess, zookeeper: ZooKeeper, tmp_path: Path) -> None:
    """The message has the address, and the exit code says that it failed."""
    with pytest.raises(BrokerStartError) as refusal:
        BrokerProcess(tmp_path, zookeeper.connect, f"listeners=PLAINTEXT://{broker.bootstrap}").start()

    assert refusal.value.exit_code == 1
    assert broker.bootstrap in refusal.value.output


@pytest.mark.parametrize("override", ["no-equals-sign", "broker.id=many", "listeners=nonsense"])
def test_wrong_options_are_named_before_anything_starts(override: str, make_broker: MakeBroker) -> None:
    """One line that names the option, and an exit code of its own."""
    with pytest.raises(BrokerStartError) as refusal:
        make_broker(override)

    assert refusal.value.exit_code == 2
    assert override.partition("=")[0] in refusal.value.output
    assert "Traceback" not in refusal.value.output


def test_health_and_metrics_are_served(broker: BrokerProcess) -> None:
    """For whoever supervises the broker."""
    with urllib.request.urlopen(f"{broker.http}/health/ready", timeout=DEADLINE_S) as response:
        assert json.load(response)["ready"] is True
    with urllib.request.urlopen(f"{broker.http}/metrics", timeout=DEADLINE_S) as response:
        assert b"kafka_server_" in response.read()
