"""Steps that several fault tests take."""

from __future__ import annotations

from collections.abc import Sequence

from tests.faults.cluster import BROKER_IDS, SETTLE_TIMEOUT_S, Cluster, process_state
from tests.faults.cluster_state import StateUnknownError
from tests.faults.live import until

# Failing over takes a session timeout and a moment; this much only a broker that hangs.
ACK_GAP_MAX_S = 30.0


def others(broker: int) -> list[int]:
    """Return the brokers that are not this one."""
    return [one for one in BROKER_IDS if one != broker]


def replicas_led_by(*leaders: int) -> list[Sequence[int]]:
    """Return replicas for one partition per leader, on all brokers."""
    return [[leader, *others(leader)] for leader in leaders]


def kill(cluster: Cluster, broker: int) -> str:
    """Kill a broker and wait until its registration is gone; return what proves that."""
    pid = cluster.brokers[broker].pid
    cluster.brokers[broker].kill()
    assert process_state(pid) == ""
    until(lambda: cluster.state.broker_epoch(broker) == -1, f"broker {broker} is not registered", SETTLE_TIMEOUT_S)
    return f"process {pid} and its registration are gone"


def controller_of(cluster: Cluster) -> int:
    """Return the controller, or -1 where there is none now."""
    try:
        return cluster.state.controller()
    except StateUnknownError:
        return -1
