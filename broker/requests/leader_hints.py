"""Where the leader is, for clients that asked a broker which does not lead: they need not fetch metadata then."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.broker.requests.request import DataRequest
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


def leader_hints(request: DataRequest, partitions: Iterable[TopicPartition]) -> LeaderHints:
    """Look the leaders up: what we were told as a replica, or what the controller told everybody."""
    snapshot = request.services.metadata.snapshot
    leaders = {}
    nodes: dict[int, Node] = {}
    for partition in partitions:
        leader, epoch = _newest(request, partition)
        if leader < 0:
            continue
        leaders[partition] = (leader, epoch)
        endpoint = snapshot.endpoint(leader, request.session.listener)
        if endpoint is not None:
            nodes[leader] = Node(leader, endpoint.host, endpoint.port, snapshot.brokers[leader].rack)
    return LeaderHints(leaders, list(nodes.values()))


def _newest(request: DataRequest, partition: TopicPartition) -> tuple[int, int]:
    """Return leader and epoch. Replicas learn of a change before everybody does."""
    told = request.services.metadata.snapshot.partition(*partition)
    here = request.services.partitions.find(partition)
    if here is not None and (told is None or here.role.leader_epoch >= told.leader_epoch):
        return here.role.leader_id, here.role.leader_epoch
    return (told.leader, told.leader_epoch) if told is not None else (-1, -1)
