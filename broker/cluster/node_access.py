"""Who may do what with a node of ZooKeeper, with Kafka's rules.

With `zookeeper.set.acl=true` only the brokers' login may change the nodes that brokers create. Everybody may read them,
except for those with credentials or options of brokers. Each node has its own ACL, which does not count for its
children. But to create or delete a child, one needs a right on its parent.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

# All nodes below these belong to brokers. `/consumers` does not: consumers before Kafka 0.9 write there by themselves.
SECURE_ROOTS: Final = (
    "/admin",
    "/brokers",
    "/cluster",
    "/config",
    "/controller",
    "/controller_epoch",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/delegation_token",
    "/kafka-acl-extended",
    "/migration",
    "/feature",
    "/kafka-acl",
    "/kafka-acl-changes",
    "/kafka-acl-extended-changes",
    # Ours, not Kafka's.
    "/ottla",
)
_SENSITIVE_ROOTS: Final = ("/config/users", "/config/brokers", "/delegation_token/tokens", "/ottla")
_OPEN: Final = "/consumers"


class NodeAccess(Enum):
    """Who may do what with one node."""

    # Everybody may do everything.
    OPEN = "open"
    # Only the brokers' login may change it; everybody may read it.
    READABLE = "readable"
    # Only for the brokers' login.
    PRIVATE = "private"


def access_of(path: str, *, is_secure: bool) -> NodeAccess:
    """Return the access to a new node; `path` is below the chroot."""
    if not is_secure or path == _OPEN:
        return NodeAccess.OPEN
    is_sensitive = any(path == root or path.startswith(f"{root}/") for root in _SENSITIVE_ROOTS)
    return NodeAccess.PRIVATE if is_sensitive else NodeAccess.READABLE
