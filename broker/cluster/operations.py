"""Requests to ZooKeeper, their answers, and their errors."""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec import Struct

ANY_VERSION: Final = -1


class NodeStat(NamedTuple):
    """What ZooKeeper knows about a node besides its data."""

    # Number of the transaction that created the node: grows over the whole ensemble, never repeats.
    czxid: int
    # How often the data was set; 0 after the creation.
    version: int
    created_ms: int
    # The session that owns the node; 0 for a persistent node.
    ephemeral_owner: int
    # Number of the transaction that wrote the data.
    mzxid: int = 0


class ZNode(NamedTuple):
    """The data of a node, read together with its stat."""

    data: bytes
    stat: NodeStat


class Create(Struct, frozen=True):
    """Create a node; its parent must exist."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


class SetData(Struct, frozen=True):
    """Replace the data of a node, if it is still at this version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(Struct, frozen=True):
    """Delete a node without children, if it is still at this version."""

    path: str
    version: int = ANY_VERSION


class Check(Struct, frozen=True):
    """Do the other operations of the multi only if the node is still at this version."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check


class ZooKeeperError(Exception):
    """ZooKeeper refused a request, or could not be reached."""

    # Whether the call was sent again after a lost connection. Then its own first try may be the reason for the error.
    retried = False


class NodeExistsError(ZooKeeperError):
    """The node to create exists already."""


class NoNodeError(ZooKeeperError):
    """The node, or the parent of a node to create, does not exist."""


class BadVersionError(ZooKeeperError):
    """The node has changed since the version in the call."""


class NotEmptyError(ZooKeeperError):
    """The node to delete has children."""


class NotAllowedError(ZooKeeperError):
    """The node belongs to another login: check ottla.zookeeper.sasl.jaas.config and zookeeper.set.acl."""


class SessionExpiredError(ZooKeeperError):
    """The session has ended, or may have, and there is no new one yet."""


class ZooKeeperUnavailableError(ZooKeeperError):
    """No server of the ensemble answers."""


class LoginRefusedError(ZooKeeperUnavailableError):
    """ZooKeeper does not accept our user and password."""


class MultiError(ZooKeeperError):
    """A multi failed because of one of its operations; none of the operations was done."""

    def __init__(self, index: int, operation: Operation, reason: ZooKeeperError) -> None:
        """`index` is the place of the failed operation in the multi, `reason` is its error."""
        super().__init__(f"operation {index}, {operation}: {reason}")
        self.index = index
        self.operation = operation
        self.reason = reason
