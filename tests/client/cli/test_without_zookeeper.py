"""What commands say of a cluster whose ZooKeeper is down, and what becomes of a change that was given up."""

from __future__ import annotations

import time
from pathlib import Path

from tests.client.cli.conftest import Ottla
from tests.kit.broker_process import BrokerProcess
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeperServer

# Long enough that the broker does not give up while it waits for ZooKeeper; the test does not wait for it.
SESSION_MS = 60_000
# A timeout that a user gives, and how long a command may take on a busy machine.
TIMEOUT_S = 4
COMMAND_S_MAX = 5 * TIMEOUT_S


def test_a_change_that_was_given_up_is_not_made_when_zookeeper_is_back(
    ottla: Ottla, tmp_path: Path, topic: str
) -> None:
    """The command says that the outcome is open, in time; health is critical meanwhile; later all is as before."""
    folder = tmp_path / "zookeeper"
    folder.mkdir()
    with (
        ZooKeeperServer(folder) as server,
        BrokerProcess(tmp_path / "broker", server.connect, f"zookeeper.session.timeout.ms={SESSION_MS}") as broker,
    ):
        where = ("-b", broker.bootstrap)
        assert ottla("topic", "create", topic, *where).code == 0
        assert ottla("check", "health", *where).code == 0
        server.kill()

        began = time.monotonic()
        changed = ottla("config", "set", "topic", topic, "retention.ms=1", "--timeout", str(TIMEOUT_S), *where)
        took_s = time.monotonic() - began
        assert changed.code == 1
        assert "It is not known whether the change was made" in changed.err
        assert took_s < COMMAND_S_MAX

        check = ottla("check", "health", "--timeout", "10", *where)
        assert (check.code, "ZooKeeper" in check.out) == (2, True), check.out
        health = ottla("cluster", "health", "--timeout", "10", *where)
        assert (health.code, "unhealthy" in health.out, "no ZooKeeper:      1" in health.out) == (1, True, True)

        server.start()
        until(lambda: ottla("check", "health", *where).code == 0, "the broker is back in ZooKeeper")
        until(lambda: "the client is gone" in broker.log.read_text(), "the broker has dropped the change")
        (shown,) = ottla("config", "get", "topic", topic, "retention.ms", "--format", "json", *where).items
        assert shown["value"] != "1"
