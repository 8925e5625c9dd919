"""All machines lose power: what was acknowledged is there again, whoever starts first, if the topic asks for that."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.replication.cluster_model import Cluster, contents
from tests.broker.replication.controller_model import REPLICAS

LEADER = 1


def told(cluster: Cluster) -> None:
    """Let everything that the controller says arrive."""
    while cluster.in_flight.roles:
        cluster.deliver_role(cluster.in_flight.roles.pop())


def fetches(cluster: Cluster, broker: int) -> None:
    """Let a follower fetch, and hear the answer."""
    cluster.send_fetch(cluster.brokers[broker])
    cluster.deliver_fetch(cluster.in_flight.fetches.pop())
    cluster.deliver_fetched(cluster.in_flight.fetched.pop())


@pytest.mark.parametrize("first", REPLICAS)
@pytest.mark.parametrize("options", [{"ottla.flush.before.ack": "true"}, {"flush.messages": "1"}], ids=str)
def test_what_was_acknowledged_survives_the_loss_of_all_power(
    tmp_path: Path, first: int, options: dict[str, str]
) -> None:
    """Nobody keeps a record that was not forced to disk, and the first that starts leads with what it has."""
    cluster = Cluster(tmp_path, options)
    told(cluster)
    for _ in range(3):
        cluster.append(cluster.brokers[LEADER], -1)
    for _ in range(2):
        for follower in (2, 3):
            fetches(cluster, follower)
    acknowledged = [(offset, value) for _, _, offset, value in cluster.acknowledged]
    assert len(acknowledged) == 3

    for broker in sorted(REPLICAS, key=lambda broker: broker == first):
        cluster.lose_power(cluster.brokers[broker], 0)
    cluster.restart(cluster.brokers[first])
    told(cluster)
    leader = cluster.brokers[first]
    assert leader.leads
    assert leader.partition is not None
    kept = {offset: data for offset, _, data in contents(leader.partition)}
    leader.stop()

    assert [(offset, value in kept.get(offset, b"")) for offset, value in acknowledged] == [
        (0, True),
        (1, True),
        (2, True),
    ]
