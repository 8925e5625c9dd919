"""ZooKeeper in memory, behind the interface of the broker's client: for simulations of large clusters.

Requests take effect at once. The time that they would wait for a server is added up and not slept, so the numbers do
not depend on how busy the machine is: a read waits a round trip, a write waits for a quorum of disks as well, and the
requests of one call overlap, as many at a time as the real client has in flight.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.broker.cluster.operations import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    MultiError,
    NodeExistsError,
    NodeStat,
    NoNodeError,
    NotEmptyError,
    Operation,
    SessionExpiredError,
    SetData,
    ZNode,
    ZooKeeperError,
)
from ottla.broker.cluster.zookeeper import Watch, ZooKeeper
from ottla.broker.config import ZooKeeperAddresses

_IN_FLIGHT_MAX: Final = 10


@dataclass(slots=True)
class _Node:
    data: bytes
    czxid: int
    mzxid: int
    ephemeral_owner: int
    version: int = 0
    children: set[str] = field(default_factory=set)

    @property
    def stat(self) -> NodeStat:
        return NodeStat(self.czxid, self.version, 0, self.ephemeral_owner, self.mzxid)


@dataclass(slots=True)
class Work:
    """What one session, or all of them, asked of the ensemble."""

    reads: int = 0
    # Requests that write: a multi is one.
    writes: int = 0
    # Nodes created, changed and deleted.
    node_writes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    # How long the callers would have waited for the servers.
    wait_s: float = 0.0


class Ensemble:
    """The nodes, sessions and watches that all clients share. Thread-safe."""

    def __init__(self, *, read_s: float = 0.0005, write_s: float = 0.002) -> None:
        """A read takes `read_s`, and a write, which a quorum must have on disk, `write_s`."""
        self.read_s = read_s
        self.write_s = write_s
        self.lock = threading.RLock()
        self.work = Work()
        self._nodes: dict[str, _Node] = {"/": _Node(b"", 0, 0, 0)}
        self._zxid = 0
        self._sessions = 0
        # By path: what to call when the node changes, and when its children do, once each; with the session that asked.
        self._data_watches: dict[str, dict[Watch, int]] = {}
        self._child_watches: dict[str, dict[Watch, int]] = {}

    def new_session(self) -> int:
        """Return the number of a new session."""
        with self.lock:
            self._sessions += 1
            return self._sessions

    def end_session(self, session_id: int) -> None:
        """Forget the watches of a session, and delete its ephemeral nodes."""
        with self.lock:
            for watches in (*self._data_watches.values(), *self._child_watches.values()):
                for watch in [each for each, session in watches.items() if session == session_id]:
                    del watches[watch]
            owned = [path for path, node in self._nodes.items() if node.ephemeral_owner == session_id]
            fired = [watch for path in owned for watch in self._apply([Delete(path)], session_id)[1]]
        _fire(fired)

    @property
    def watch_count(self) -> int:
        """The number of watches that clients have set."""
        with self.lock:
            return sum(map(len, (*self._data_watches.values(), *self._child_watches.values())))

    def sizes(self) -> Counter[str]:
        """Return how many nodes there are, and how many bytes of data and of paths."""
        with self.lock:
            return Counter(
                nodes=len(self._nodes),
                data_bytes=sum(len(node.data) for node in self._nodes.values()),
                path_bytes=sum(map(len, self._nodes)),
            )

    # Requests; the caller holds the lock

    def read(self, path: str, watch: Watch | None, session_id: int) -> ZNode:
        """Return a node, and watch it."""
        node = self._nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        self._watch(self._data_watches, path, watch, session_id)
        return ZNode(node.data, node.stat)

    def exists(self, path: str, watch: Watch | None, session_id: int) -> NodeStat | None:
        """Return the stat of a node, and watch it, also if it is missing."""
        self._watch(self._data_watches, path, watch, session_id)
        node = self._nodes.get(path)
        return None if node is None else node.stat

    def children(self, path: str, watch: Watch | None, session_id: int) -> list[str]:
        """Return the names of a node's children, and watch them."""
        node = self._nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        self._watch(self._child_watches, path, watch, session_id)
        return sorted(node.children)

    def write(
        self, operations: Sequence[Operation], session_id: int
    ) -> tuple[list[NodeStat | None] | MultiError, list[Watch]]:
        """Do all operations or none; return the outcome, and the watches to call without the lock."""
        try:
            self._check(operations)
        except MultiError as error:
            return error, []
        return self._apply(operations, session_id)

    def _check(self, operations: Sequence[Operation]) -> None:
        # What the earlier operations of the multi have done: version and number of children, None for a missing node.
        changed: dict[str, tuple[int, int] | None] = {}

        def state(path: str) -> tuple[int, int] | None:
            if path in changed:
                return changed[path]
            node = self._nodes.get(path)
            return None if node is None else (node.version, len(node.children))

        def refusal(operation: Operation) -> ZooKeeperError | None:
            found, parent = state(operation.path), _parent(operation.path)
            if isinstance(operation, Create):
                above = state(parent)
                if found is not None:
                    return NodeExistsError(operation.path)
                if above is None:
                    return NoNodeError(parent)
                changed[operation.path], changed[parent] = (0, 0), (above[0], above[1] + 1)
                return None
            if found is None:
                return NoNodeError(operation.path)
            if operation.version not in (ANY_VERSION, found[0]):
                return BadVersionError(operation.path)
            if isinstance(operation, SetData):
                changed[operation.path] = (found[0] + 1, found[1])
            elif isinstance(operation, Delete):
                if found[1]:
                    return NotEmptyError(operation.path)
                above = state(parent)
                assert above is not None
                changed[operation.path], changed[parent] = None, (above[0], above[1] - 1)
            return None

        for index, operation in enumerate(operations):
            reason = refusal(operation)
            if reason is not None:
                raise MultiError(index, operation, reason)

    def _apply(self, operations: Sequence[Operation], session_id: int) -> tuple[list[NodeStat | None], list[Watch]]:
        self._zxid += 1
        stats: list[NodeStat | None] = []
        fired: list[Watch] = []
        for operation in operations:
            path, parent = operation.path, _parent(operation.path)
            stat = None
            match operation:
                case Create():
                    owner = session_id if operation.ephemeral else 0
                    self._nodes[path] = _Node(operation.data, self._zxid, self._zxid, owner)
                    self._nodes[parent].children.add(path.rpartition("/")[2])
                    fired += self._fired(path, parent)
                case SetData():
                    node = self._nodes[path]
                    node.data, node.mzxid, node.version = operation.data, self._zxid, node.version + 1
                    stat = node.stat
                    fired += self._fired(path)
                case Delete():
                    del self._nodes[path]
                    self._nodes[parent].children.discard(path.rpartition("/")[2])
                    fired += self._fired(path, parent)
                case Check():
                    pass
            stats.append(stat)
        return stats, fired

    def _watch(self, watches: dict[str, dict[Watch, int]], path: str, watch: Watch | None, session_id: int) -> None:
        if watch is not None:
            watches.setdefault(path, {})[watch] = session_id

    def _fired(self, path: str, parent: str | None = None) -> list[Watch]:
        fired = list(self._data_watches.pop(path, ()))
        return fired if parent is None else [*fired, *self._child_watches.pop(parent, ())]


class SimulatedZooKeeper(ZooKeeper):
    """One client of an ensemble, with a session of its own."""

    def __init__(self, ensemble: Ensemble) -> None:
        super().__init__(ZooKeeperAddresses((), ""), session_timeout_ms=18_000, connection_timeout_ms=1)
        self._ensemble = ensemble
        self.session_id = ensemble.new_session()
        self.work = Work()
        self._is_closed = False

    def start(self) -> None:
        """Do nothing: the session is open."""

    def close(self) -> None:
        """End the session, as if its broker had died. Every later call fails."""
        self._is_closed = True
        self._ensemble.end_session(self.session_id)

    # Reading

    def read(self, path: str, watch: Watch | None = None) -> ZNode:
        """Read a node."""
        with self._ensemble.lock:
            self._count(reads=1)
            node = self._ensemble.read(path, watch, self.session_id)
            self._count(bytes_read=len(node.data))
            return node

    def read_many(self, paths: Sequence[str], watch: Callable[[str], Watch] | None = None) -> list[ZNode | None]:
        """Read many nodes."""
        nodes: list[ZNode | None] = []
        with self._ensemble.lock:
            for path in paths:
                try:
                    nodes.append(self._ensemble.read(path, None if watch is None else watch(path), self.session_id))
                except NoNodeError:
                    nodes.append(None)
            self._count(reads=len(paths), bytes_read=sum(len(node.data) for node in nodes if node is not None))
        return nodes

    def exists(self, path: str, watch: Watch | None = None) -> NodeStat | None:
        """Return the stat of a node."""
        with self._ensemble.lock:
            self._count(reads=1)
            return self._ensemble.exists(path, watch, self.session_id)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names of a node's children."""
        with self._ensemble.lock:
            names = self._ensemble.children(path, watch, self.session_id)
            self._count(reads=1, bytes_read=sum(map(len, names)))
            return names

    def children_many(self, paths: Sequence[str]) -> list[list[str]]:
        """Return the names of the children of many nodes."""
        found = []
        with self._ensemble.lock:
            for path in paths:
                try:
                    found.append(self._ensemble.children(path, None, self.session_id))
                except NoNodeError:
                    found.append([])
            self._count(reads=len(paths), bytes_read=sum(len(name) for names in found for name in names))
        return found

    # Writing

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> NodeStat:
        """Create a node."""
        self._single(Create(path, data, ephemeral))
        stat = self._ensemble.exists(path, None, self.session_id)
        assert stat is not None
        return stat

    def ensure_path(self, path: str) -> None:
        """Create a node and its parents, as far as they are missing."""
        parts = path.strip("/").split("/")
        for count in range(1, len(parts) + 1):
            above = "/" + "/".join(parts[:count])
            if self.exists(above) is None:
                self.create(above)

    def write(self, path: str, data: bytes, version: int = ANY_VERSION) -> NodeStat:
        """Replace the data of a node."""
        stat = self._single(SetData(path, data, version))
        assert stat is not None
        return stat

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node."""
        self._single(Delete(path, version))

    def multi_many(self, multis: Sequence[Sequence[Operation]]) -> list[list[NodeStat | None] | MultiError]:
        """Do many multis."""
        outcomes: list[list[NodeStat | None] | MultiError] = []
        fired: list[Watch] = []
        written = [each for operations in multis for each in operations if not isinstance(each, Check)]
        with self._ensemble.lock:
            self._count(
                writes=len(multis),
                node_writes=len(written),
                bytes_written=sum(len(each.path) + len(getattr(each, "data", b"")) for each in written),
            )
            for operations in multis:
                outcome, watches = self._ensemble.write(operations, self.session_id)
                outcomes.append(outcome)
                fired += watches
        _fire(fired)
        return outcomes

    def _single(self, operation: Operation) -> NodeStat | None:
        outcome = self.multi_many([[operation]])[0]
        if isinstance(outcome, MultiError):
            raise outcome.reason
        return outcome[0]

    def _count(
        self,
        *,
        reads: int = 0,
        writes: int = 0,
        node_writes: int = 0,
        bytes_read: int = 0,
        bytes_written: int = 0,
    ) -> None:
        ensemble = self._ensemble
        if self._is_closed:
            raise SessionExpiredError("the session has ended")
        wait_s = math.ceil(reads / _IN_FLIGHT_MAX) * ensemble.read_s
        wait_s += math.ceil(writes / _IN_FLIGHT_MAX) * ensemble.write_s
        for work in (self.work, ensemble.work):
            work.reads += reads
            work.writes += writes
            work.node_writes += node_writes
            work.bytes_read += bytes_read
            work.bytes_written += bytes_written
            work.wait_s += wait_s


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _fire(watches: Sequence[Watch]) -> None:
    # Equal watches on one node are called once, as by the real client.
    for watch in dict.fromkeys(watches):
        watch()
