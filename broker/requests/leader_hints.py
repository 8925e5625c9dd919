"""The current leaders, for clients that asked the wrong broker: they need not fetch metadata first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.broker.requests.request import DataRequest
from ottla.protocol.identifiers import TopicPartition


class Node(NamedTuple):
    """A broker with the address on which the client reaches it."""

    node_id: int
    host: str
    port: int
    rack: str | None


class LeaderHints(NamedTuple):
    """(leader id, leader epoch) by partition, and the live brokers among these leaders."""

    leaders: dict[TopicPartition, tuple[int, int]]
    nodes: list[Node]


def leader_hints(request: DataRequest, partitions: Iterable[TopicPartition]) -> LeaderHints:
    """Return the leaders of partitions, from this broker's replicas or from the metadata, whichever is newer."""
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
    """Return the leader and its epoch. A replica learns of a new leader before the metadata does."""
    told = request.services.metadata.snapshot.partition(*partition)
    here = request.services.partitions.find(partition)
    if here is not None and (told is None or here.role.leader_epoch >= told.leader_epoch):
        return here.role.leader_id, here.role.leader_epoch
    return (told.leader, told.leader_epoch) if told is not None else (-1, -1)
