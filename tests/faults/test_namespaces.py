"""The network between test hosts does what the fault tests rely on."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.namespaces import NamespaceNetwork
from tests.kit.apache_kafka import UnavailableError, skip_or_fail

TIMEOUT_S = 0.5


@pytest.fixture
def network(tmp_path: Path) -> Iterator[NamespaceNetwork]:
    """Three hosts."""
    try:
        made = NamespaceNetwork(tmp_path, ("a", "b", "c"))
    except UnavailableError as error:
        skip_or_fail(error)
    yield made
    made.close()


def test_packets_are_dropped_between_those_who_are_cut_off_and_nobody_else(network: NamespaceNetwork) -> None:
    """The counter of dropped packets is the proof; after healing, everybody reaches everybody."""
    listener = network.hosts["a"].call(lambda: socket.create_server((network.hosts["a"].address, 0)))
    with listener:
        address = listener.getsockname()

        def is_reached_from(name: str) -> bool:
            try:
                network.hosts[name].call(lambda: socket.create_connection(address, TIMEOUT_S)).close()
            except TimeoutError:
                return False
            return True

        assert is_reached_from("b")
        network.cut("a", "b")
        assert not is_reached_from("b")
        assert is_reached_from("c")
        assert network.dropped_packets() > 0

        network.heal()
        assert is_reached_from("b")
        assert network.dropped_packets() > 0
