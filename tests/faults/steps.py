"""Steps that several fault tests take."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from tests.faults.cluster import BROKER_IDS, Cluster
from tests.faults.cluster_state import StateUnknownError
from tests.faults.namespaces import NamespaceNetwork
from tests.kit.broker_process import process_state
from tests.kit.waiting import until

# Failing over takes a session timeout and a moment; this much only a broker that hangs.
ACK_GAP_MAX_S = 30.0

# Most tests of clusters are among the long ones where all listeners are SASL_SSL; those that show most are not.
both_protocols = pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_SSL"], indirect=True)
# A restart goes through all that a secured connection needs, so of the two this one shows more.
secured_protocol = pytest.mark.parametrize(
    "protocol", [pytest.param("PLAINTEXT", marks=pytest.mark.long_faults), "SASL_SSL"], indirect=True
)

# The rows of the table in docs/GUARANTEES.md that promise most: what a topic must be set to. The bold row is the
# default, and the only one that is also tried with SASL_SSL.
_BOLD: dict[str, str] = {}
each_row = pytest.mark.parametrize(
    ("protocol", "row"),
    [
        pytest.param("PLAINTEXT", _BOLD, id="PLAINTEXT"),
        pytest.param("SASL_SSL", _BOLD, marks=pytest.mark.long_faults, id="SASL_SSL"),
        pytest.param("PLAINTEXT", {"min_insync_replicas": "1"}, marks=pytest.mark.long_faults, id="min ISR 1"),
        pytest.param("PLAINTEXT", {"ottla_flush_before_ack": "true"}, marks=pytest.mark.long_faults, id="flushed"),
    ],
    indirect=["protocol"],
)


def others(broker: int) -> list[int]:
    """Return the brokers that are not this one."""
    return [one for one in BROKER_IDS if one != broker]


def replicas_led_by(*leaders: int) -> list[Sequence[int]]:
    """Return replicas for one partition per leader, on all brokers."""
    return [[leader, *others(leader)] for leader in leaders]


def kill(cluster: Cluster, broker: int) -> str:
    """Kill a broker and wait until its registration is gone; return what proves that."""
    return _end(cluster, broker, cluster.brokers[broker].kill)


def vanish(cluster: Cluster, broker: int) -> str:
    """Do the same with a broker whose guardian dies with it, as with a machine that loses power."""
    return _end(cluster, broker, cluster.brokers[broker].vanish)


def _end(cluster: Cluster, broker: int, end: Callable[[], None]) -> str:
    pid = cluster.brokers[broker].pid
    end()
    assert process_state(pid) == ""
    until_known(lambda: broker not in cluster.state.brokers(), f"broker {broker} is not registered")
    return f"process {pid} and its registration are gone"


def until_known(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that ZooKeeper must say; as long as it says nothing, the answer is no."""
    until(condition, what, not_yet=StateUnknownError)


def controller_of(cluster: Cluster) -> int:
    """Return the controller, or -1 where there is none now."""
    try:
        return cluster.state.controller()
    except StateUnknownError:
        return -1


def network_of(cluster: Cluster) -> NamespaceNetwork:
    """Return the network of a cluster that has one."""
    assert cluster.network is not None
    return cluster.network


def host(broker: int) -> str:
    """Return the name of a broker's host."""
    return f"broker-{broker}"
