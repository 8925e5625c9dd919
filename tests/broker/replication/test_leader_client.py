"""How a follower connects to its leader."""

from __future__ import annotations

import socket

import pytest
from tests.broker.replication.fake_leader import VERSIONS, FakeLeader
from tests.broker.replication.peer import peer

from ottla.broker.config import BrokerConfig
from ottla.broker.replication.follower.leader_client import LeaderClient
from ottla.client.net.connector import IN_THE_CLEAR

LEADER, FOLLOWER = 1, 2


@pytest.mark.parametrize("wanted", [20_000, 40_000])
def test_the_receive_buffer_of_a_followers_socket_is_the_one_that_was_set(wanted: int) -> None:
    """Linux doubles the number, for its own use."""
    config = BrokerConfig.of({"replica.socket.receive.buffer.bytes": str(wanted)})
    with peer(FakeLeader().answer, VERSIONS) as leader:
        client = LeaderClient(LEADER, FOLLOWER, lambda: 1, lambda _: leader.endpoint, config, "test", IN_THE_CLEAR)
        made = client._connected()._socket
        assert made is not None
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (wanted, 2 * wanted)
        client.close()
