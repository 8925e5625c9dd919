"""What can be asked of ZooKeeper, what it answers, and how it can fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

ANY_VERSION: Final = -1


class NodeStat(NamedTuple):
    """What ZooKeeper knows about a node besides its data."""

    # Number of the transaction that created the node: grows over the whole ensemble, never repeats.
    czxid: int
    # How often the data was set; 0 after the creation.
    version: int
    created_ms: int
    # Session that the node dies with; 0 for a persistent node.
    ephemeral_owner: int
    # Number of the transaction that wrote the data.
    mzxid: int = 0


class ZNode(NamedTuple):
    """The data of a node, read together with its stat."""

    data: bytes
    stat: NodeStat


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node; its parent must exist."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Replace the data of a node, if it is still at this version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a node without children, if it is still at this version."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Let the operations beside it happen only if the node is still at this version."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check


class ZooKeeperError(Exception):
    """Something that ZooKeeper refused, or could not be asked."""

    # Whether the call was sent again after a lost connection: what it complains about may be its own first try.
    retried = False


class NodeExistsError(ZooKeeperError):
    """The node to create is there already."""


class NoNodeError(ZooKeeperError):
    """The node, or the parent of a node to create, is not there."""


class BadVersionError(ZooKeeperError):
    """The node was changed since the version that the call names."""


class NotEmptyError(ZooKeeperError):
    """The node to delete has children."""


class SessionExpiredError(ZooKeeperError):
    """The session is over, or must be taken to be over; a new one is not there yet."""


class ZooKeeperUnavailableError(ZooKeeperError):
    """No server of the ensemble answers."""


class MultiError(ZooKeeperError):
    """A multi that was not done, because of one of its operations; none of the others was done either."""

    def __init__(self, index: int, operation: Operation, reason: ZooKeeperError) -> None:
        """Name the operation that failed, by its place in the multi, and why it did."""
        super().__init__(f"operation {index}, {operation}: {reason}")
        self.index = index
        self.operation = operation
        self.reason = reason
