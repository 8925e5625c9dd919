"""Ports that are free and ports that are not."""

from __future__ import annotations

import random
import socket
import subprocess
import sys

import pytest

from ottla.client.local_cluster import ports
from ottla.client.local_cluster.errors import PortTakenError
from ottla.client.local_cluster.ports import check_ports_are_free, free_port, is_accepting


def test_a_free_port_can_be_listened_on() -> None:
    """And then it accepts, and is not free any more."""
    port = free_port("127.0.0.1")
    check_ports_are_free("127.0.0.1", [(port, "nobody", "--base-port")])
    assert not is_accepting("127.0.0.1", port)

    with socket.create_server(("127.0.0.1", port)):
        assert is_accepting("127.0.0.1", port)


def test_processes_with_one_seed_choose_different_ports() -> None:
    """Test runs seed their generators alike; a port that both choose is taken from one before its process listens."""
    chosen = []
    for _ in range(2):
        random.seed(1)
        chosen.append([free_port("127.0.0.1") for _ in range(3)])

    assert chosen[0] != chosen[1]


@pytest.mark.skipif(sys.platform != "linux", reason="ports are held on Linux only")
def test_a_port_that_was_found_is_not_found_again_before_a_server_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZooKeeper takes a second to start, and another run of tests could choose its port meanwhile."""
    port = free_port("127.0.0.1")
    looks = (
        "from ottla.client.local_cluster import ports; "
        f"ports.FREE_PORT_RANGE = range({port}, {port + 1}); ports.FREE_PORT_ATTEMPTS = 1; "
        "print(ports.free_port('127.0.0.1'))"
    )
    found = subprocess.run([sys.executable, "-c", looks], capture_output=True, text=True, timeout=90, check=False)
    assert found.returncode != 0
    assert "No free port was found" in found.stderr


def test_few_ports_are_held_at_a_time() -> None:
    """A process may look for thousands of them."""
    for _ in range(200):
        free_port("127.0.0.1")
    assert len(ports._held) <= 64


def test_every_port_that_is_taken_is_named() -> None:
    """The message has the ports, who wanted them, and the options that move them."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("", 0)) as two:
        taken = [listener.getsockname()[1] for listener in (one, two)]
        free = free_port("127.0.0.1", taken)
        wanted = [(taken[0], "ZooKeeper", "--zookeeper-port"), (free, "broker 1", "--base-port")]
        with pytest.raises(PortTakenError) as raised:
            check_ports_are_free("127.0.0.1", [*wanted, (taken[1], "broker 2", "--base-port")])

    message = str(raised.value)
    assert f"Port {taken[0]} for ZooKeeper is in use. Port {taken[1]} for broker 2 is in use." in message
    assert "choose other ports with --zookeeper-port and --base-port" in message
    assert "broker 1" not in message
