"""What the real ZooKeeper client costs, on a real server: the part of a controller's time that a simulation lacks."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from tests.kit.zookeeper import ZooKeeperServer

from ottla.broker.cluster.operations import Create, SetData
from ottla.broker.cluster.zookeeper import ZooKeeper
from ottla.broker.config import BrokerConfig

_GROUP = 100
_DATA = b"x" * 110


def client_cost(count: int = 2_000) -> dict[str, float]:
    """Return the processor time of a read, and of a node that is written in a multi of 100, in microseconds."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder, ZooKeeperServer(Path(folder)) as server:
        addresses = BrokerConfig.of({"zookeeper.connect": server.connect}).zookeeper
        client = ZooKeeper(addresses, session_timeout_ms=30_000, connection_timeout_ms=30_000)
        client.start()
        try:
            client.create("/n")
            paths = [f"/n/{number}" for number in range(count)]
            groups = [paths[first : first + _GROUP] for first in range(0, count, _GROUP)]
            client.multi_many([[Create(path, _DATA) for path in group] for group in groups])
            started = time.process_time()
            client.multi_many([[SetData(path, _DATA) for path in group] for group in groups])
            written = time.process_time()
            client.read_many(paths)
            done = time.process_time()
        finally:
            client.close()
    return {"read_us": (done - written) / count * 1e6, "node_written_us": (written - started) / count * 1e6}
