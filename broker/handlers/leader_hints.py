"""Where the leader is, for clients that asked a broker which does not lead: they need not fetch metadata then."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.broker.handlers.request import Request
from ottla.protocol.identifiers import TopicPartition


class Node(NamedTuple):
    """A broker as the client reaches it."""

    node_id: int
    host: str
    port: int
    rack: str | None


class LeaderHints(NamedTuple):
    """(leader id, leader epoch) by partition, and the brokers among them that are alive."""

    leaders: dict[TopicPartition, tuple[int, int]]
    nodes: list[Node]


def leader_hints(request: Request, partitions: Iterable[TopicPartition]) -> LeaderHints:
    """Look the leaders up in the metadata that the controller gave us."""
    snapshot = request.services.metadata.snapshot
    leaders = {}
    nodes: dict[int, Node] = {}
    for partition in partitions:
        known = snapshot.partition(*partition)
        if known is None or known.leader < 0:
            continue
        leaders[partition] = (known.leader, known.leader_epoch)
        endpoint = snapshot.endpoint(known.leader, request.listener)
        if endpoint is not None:
            rack = snapshot.brokers[known.leader].rack
            nodes[known.leader] = Node(known.leader, endpoint.host, endpoint.port, rack)
    return LeaderHints(leaders, list(nodes.values()))
