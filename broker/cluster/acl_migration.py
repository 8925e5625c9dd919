"""Gives the nodes of a cluster to the brokers' login, or back to everybody, like Kafka's zookeeper-security-migration.

Nodes are visited from the top, and each is set whatever it was. So a run that was interrupted is completed by another
one, and one more changes nothing.
"""

from __future__ import annotations

from msgspec import Struct

from ottla.broker.cluster.node_access import SECURE_ROOTS, access_of
from ottla.broker.cluster.zookeeper import ZooKeeper


class Migrated(Struct, frozen=True):
    """What a migration did."""

    # How many nodes were found, those that stay as they were included.
    nodes: int
    # Nodes that belong to another login, and stay as they were.
    refused: tuple[str, ...]


def migrate(zookeeper: ZooKeeper, *, is_secure: bool) -> Migrated:
    """Set the access of the root, and of every node that belongs to brokers."""
    nodes = 0
    refused: list[str] = []
    level = ["/", *SECURE_ROOTS]
    while level:
        changed = zookeeper.set_access({path: access_of(path, is_secure=is_secure) for path in level})
        nodes += len(changed)
        refused += [path for path, is_done in changed.items() if not is_done]
        # Other nodes below the root are none of ours. The children of a refused node may be secret even from us.
        parents = [path for path, is_done in changed.items() if is_done and path != "/"]
        level = [
            f"{parent}/{name}"
            for parent, names in zip(parents, zookeeper.children_many(parents), strict=True)
            for name in names
        ]
    return Migrated(nodes, tuple(refused))
