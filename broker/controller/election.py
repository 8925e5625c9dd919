"""Who is the controller, and why a replaced controller can do no harm.

Becoming controller is one multi: create the ephemeral node /controller, and raise /controller_epoch from the value and
version that were read. So each controller has an epoch of its own and knows the version of the epoch node. Each of its
later writes is a multi that checks this version: once there is a newer controller, nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import structlog
from msgspec import Struct

from ottla.broker.cluster import znodes
from ottla.broker.cluster.operations import (
    BadVersionError,
    Check,
    Create,
    Delete,
    MultiError,
    NodeExistsError,
    NodeStat,
    NoNodeError,
    Operation,
    SetData,
)
from ottla.broker.cluster.zookeeper import Watch, ZooKeeper

log = structlog.get_logger(__name__)

# Limits of one group; servers accept requests of up to a megabyte.
_OPERATIONS_MAX: Final = 100
_BYTES_MAX: Final = 128 * 1024


class ControllerMovedError(Exception):
    """There is a newer controller; this one must resign at once."""


class Elected(Struct, frozen=True):
    """A won election: the epoch of the term, and the version of the epoch node that its writes check."""

    epoch: int
    epoch_version: int


def elect(zookeeper: ZooKeeper, broker_id: int, now_ms: int, watch: Watch) -> Elected | None:
    """Try to become controller; None if another broker is. `watch` is called when that may have changed."""
    epoch_node = zookeeper.read_or_none(znodes.CONTROLLER_EPOCH)
    if epoch_node is None:
        try:
            zookeeper.create(znodes.CONTROLLER_EPOCH, b"0")
        except NodeExistsError:
            log.debug("controller_epoch_made_by_another")
        epoch_node = zookeeper.read(znodes.CONTROLLER_EPOCH)
    epoch = znodes.decode_number(epoch_node.data, znodes.CONTROLLER_EPOCH)
    holder = zookeeper.exists(znodes.CONTROLLER, watch)
    if holder is not None:
        if holder.ephemeral_owner != zookeeper.session_id:
            return None
        # A node of our own earlier term, which ended while ZooKeeper was away. Nobody else can delete it.
        zookeeper.delete(znodes.CONTROLLER)
    content = znodes.ControllerNode(broker_id=broker_id, timestamp=str(now_ms)).encode()
    raise_epoch = SetData(znodes.CONTROLLER_EPOCH, str(epoch + 1).encode(), epoch_node.stat.version)
    try:
        stat = zookeeper.multi([Create(znodes.CONTROLLER, content, ephemeral=True), raise_epoch])[1]
    except MultiError as error:
        if not isinstance(error.reason, NodeExistsError | BadVersionError):
            raise
        return _already_elected(zookeeper, epoch + 1)
    assert stat is not None
    return Elected(epoch + 1, stat.version)


def _already_elected(zookeeper: ZooKeeper, epoch: int) -> Elected | None:
    """Check whether the first try, whose answer was lost, won the election."""
    controller = zookeeper.exists(znodes.CONTROLLER)
    node = zookeeper.read(znodes.CONTROLLER_EPOCH)
    is_mine = controller is not None and controller.ephemeral_owner == zookeeper.session_id
    if is_mine and znodes.decode_number(node.data, znodes.CONTROLLER_EPOCH) == epoch:
        return Elected(epoch, node.stat.version)
    return None


class Fence:
    """The writes of one term. Each raises ControllerMovedError if the term is over."""

    def __init__(self, zookeeper: ZooKeeper, elected: Elected) -> None:
        self._zookeeper = zookeeper
        self._check = Check(znodes.CONTROLLER_EPOCH, elected.epoch_version)
        self.epoch = elected.epoch

    def multi_many(self, multis: Sequence[Sequence[Operation]]) -> list[list[NodeStat | None] | MultiError]:
        """Do many multis; each succeeds or fails by itself.

        They are sent in groups, each as one multi. If one member makes its group fail, the group's members are sent one
        by one.
        """
        outcomes: list[list[NodeStat | None] | MultiError] = []
        groups = list(_groups(multis))
        merged = [[operation for multi in group for operation in multi] for group in groups]
        for group, outcome in zip(groups, self._fenced(merged), strict=True):
            if not isinstance(outcome, MultiError):
                stats = iter(outcome)
                outcomes += [[next(stats) for _ in multi] for multi in group]
            elif len(group) == 1:
                outcomes.append(outcome)
            else:
                outcomes += self._fenced(group)
        return outcomes

    def _fenced(self, multis: Sequence[Sequence[Operation]]) -> list[list[NodeStat | None] | MultiError]:
        outcomes: list[list[NodeStat | None] | MultiError] = []
        for outcome in self._zookeeper.multi_many([[self._check, *operations] for operations in multis]):
            if isinstance(outcome, MultiError):
                if outcome.index == 0:
                    raise ControllerMovedError(f"epoch {self.epoch} is over") from outcome
                outcomes.append(MultiError(outcome.index - 1, outcome.operation, outcome.reason))
            else:
                outcomes.append(outcome[1:])
        return outcomes

    def write(self, operation: Operation) -> None:
        """Do one operation; raise its ZooKeeperError if it fails."""
        outcome = self.multi_many([[operation]])[0]
        if isinstance(outcome, MultiError):
            raise outcome.reason

    def ensure(self, paths: Sequence[str]) -> None:
        """Create nodes without data if they are missing; their parents exist."""
        for outcome in self.multi_many([[Create(path)] for path in paths]):
            if isinstance(outcome, MultiError) and not isinstance(outcome.reason, NodeExistsError):
                raise outcome.reason

    def delete(self, paths: Sequence[str]) -> None:
        """Delete nodes, in order; nodes that are gone already do not matter."""
        for outcome in self.multi_many([[Delete(path)] for path in paths]):
            if isinstance(outcome, MultiError) and not isinstance(outcome.reason, NoNodeError):
                raise outcome.reason


def _groups(multis: Sequence[Sequence[Operation]]) -> Iterator[list[Sequence[Operation]]]:
    """Group multis, in order, up to the limits; a multi beyond the limits is a group of its own."""
    group: list[Sequence[Operation]] = []
    operations = size = 0
    for multi in multis:
        bytes_added = sum(len(each.path) + len(getattr(each, "data", b"")) for each in multi)
        if group and (operations + len(multi) > _OPERATIONS_MAX or size + bytes_added > _BYTES_MAX):
            yield group
            group, operations, size = [], 0, 0
        group.append(multi)
        operations += len(multi)
        size += bytes_added
    if group:
        yield group
