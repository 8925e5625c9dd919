"""Reading and writing nodes: the calls of a session with ZooKeeper, whatever carries them.

A call that loses the connection is sent again when the connection is back. What the first try may have done is
recognised here: by the owning session and the data of a node that exists, by the data and version of one that changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from ottla.broker.cluster.operations import (
    ANY_VERSION,
    BadVersionError,
    MultiError,
    Node,
    NodeExistsError,
    NodeStat,
    NoNodeError,
    Operation,
    SetData,
    ZooKeeperError,
)

Watch = Callable[[], None]
# Sends a request through the client at hand and returns what will have its answer.
Submit = Callable[[Any], Any]


class Tree(ABC):
    """The nodes of one cluster; paths are below its chroot. All calls block.

    A watch is called once, when what was read changes, and also when that may have happened while there was no
    connection. Equal watches on one node are called once between them.
    """

    chroot: str
    session_id: int

    @abstractmethod
    def _call(self, submit: Submit, path: str) -> Any:
        """Send a request and wait for its answer; raise a ZooKeeperError."""

    @abstractmethod
    def _call_many(self, submits: Sequence[Submit], paths: Sequence[str]) -> list[Any]:
        """Send requests with a bounded number on their way; return answers and errors in order."""

    @abstractmethod
    def _watcher(self, watch: Watch | None) -> Any:
        """Make of a watch what the client takes."""

    @abstractmethod
    def _transaction(self, client: Any, operations: Sequence[Operation]) -> Any:
        """Send a multi through the client at hand."""

    @abstractmethod
    def _failure(self, answer: Sequence[Any]) -> tuple[int, ZooKeeperError] | None:
        """Find in the answer to a multi the operation that was the reason for not doing it."""

    # Reading

    def read(self, path: str, watch: Watch | None = None) -> Node:
        """Read a node; NoNodeError if it is not there, and then nothing is watched."""
        return _node(self._call(lambda client: client.get_async(self._full(path), self._watcher(watch)), path))

    def read_or_none(self, path: str) -> Node | None:
        """Read a node that may not be there."""
        try:
            return self.read(path)
        except NoNodeError:
            return None

    def read_many(self, paths: Sequence[str], watch: Callable[[str], Watch] | None = None) -> list[Node | None]:
        """Read many nodes, several at a time; None for those that are not there. `watch` gives the watch of a path."""

        def reading(path: str) -> Submit:
            watcher = self._watcher(None if watch is None else watch(path))
            return lambda client: client.get_async(self._full(path), watcher)

        answers = self._call_many([reading(path) for path in paths], paths)
        for answer in answers:
            if isinstance(answer, ZooKeeperError) and not isinstance(answer, NoNodeError):
                raise answer
        return [None if isinstance(answer, NoNodeError) else _node(answer) for answer in answers]

    def exists(self, path: str, watch: Watch | None = None) -> NodeStat | None:
        """Return the stat of a node if it is there; the watch is also called when it is created."""
        stat = self._call(lambda client: client.exists_async(self._full(path), self._watcher(watch)), path)
        return None if stat is None else _stat(stat)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the sorted names below a node; the watch is called when one is added or removed."""
        names = self._call(lambda client: client.get_children_async(self._full(path), self._watcher(watch)), path)
        return sorted(names)

    def children_many(self, paths: Sequence[str]) -> list[list[str]]:
        """Return the sorted names below many nodes, several at a time; none below those that are not there."""

        def listing(path: str) -> Submit:
            return lambda client: client.get_children_async(self._full(path))

        answers = self._call_many([listing(path) for path in paths], paths)
        for answer in answers:
            if isinstance(answer, ZooKeeperError) and not isinstance(answer, NoNodeError):
                raise answer
        return [[] if isinstance(answer, NoNodeError) else sorted(answer) for answer in answers]

    # Writing

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> NodeStat:
        """Create a node; NodeExistsError if it was there, NoNodeError without its parent."""

        def submit(client: Any) -> Any:
            return client.create_async(self._full(path), data, ephemeral=ephemeral, include_data=True)

        try:
            return _stat(self._call(submit, path)[1])
        except NodeExistsError as error:
            node = self.read_or_none(path) if error.retried else None
            owner = self.session_id if ephemeral else 0
            if node is None or node.data != data or node.stat.ephemeral_owner != owner:
                raise
            return node.stat

    def create_sequential(self, prefix: str, data: bytes) -> str:
        """Create a persistent node with the next number of ten digits behind `prefix`; return its path.

        A lost connection may leave two of them.
        """
        path: str = self._call(lambda client: client.create_async(self._full(prefix), data, sequence=True), prefix)
        return path[len(self.chroot) :]

    def ensure_path(self, path: str) -> None:
        """Create a persistent node and its parents where they are missing."""
        self._call(lambda client: client.ensure_path_async(self._full(path)), path)

    def write(self, path: str, data: bytes, version: int = ANY_VERSION) -> NodeStat:
        """Replace the data of a node; BadVersionError if it is not at `version` any more."""
        try:
            return _stat(self._call(lambda client: client.set_async(self._full(path), data, version), path))
        except BadVersionError as error:
            node = self.read_or_none(path) if error.retried else None
            if node is None or node.data != data or node.stat.version != version + 1:
                raise
            return node.stat

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node without children; NoNodeError if it is not there."""
        try:
            self._call(lambda client: client.delete_async(self._full(path), version), path)
        except NoNodeError as error:
            if not error.retried:
                raise

    def multi(self, operations: Sequence[Operation]) -> list[NodeStat | None]:
        """Do all operations or none; return the stats of the SetData ones. MultiError says which one failed.

        After a lost connection, the error may complain of what the first try did; the caller looks.
        """
        outcome = self.multi_many([operations])[0]
        if isinstance(outcome, MultiError):
            raise outcome
        return outcome

    def multi_many(self, multis: Sequence[Sequence[Operation]]) -> list[list[NodeStat | None] | MultiError]:
        """Do many multis, several at a time; each succeeds or fails by itself."""

        def committing(operations: Sequence[Operation]) -> Submit:
            return lambda client: self._transaction(client, operations)

        answers = self._call_many([committing(operations) for operations in multis], ["multi"] * len(multis))
        outcomes: list[list[NodeStat | None] | MultiError] = []
        for operations, answer in zip(multis, answers, strict=True):
            if isinstance(answer, ZooKeeperError):
                raise answer
            failure = self._failure(answer)
            if failure is None:
                outcomes.append(_stats(operations, answer))
            else:
                index, reason = failure
                outcomes.append(MultiError(index, operations[index], reason))
        return outcomes

    def _full(self, path: str) -> str:
        return (self.chroot + path).rstrip("/") or "/"


def _stat(stat: Any) -> NodeStat:
    return NodeStat(stat.czxid, stat.version, stat.ctime, stat.ephemeralOwner, stat.mzxid)


def _node(answer: Any) -> Node:
    data, stat = answer
    return Node(data or b"", _stat(stat))


def _stats(operations: Sequence[Operation], answer: Sequence[Any]) -> list[NodeStat | None]:
    return [
        _stat(result) if isinstance(operation, SetData) else None
        for operation, result in zip(operations, answer, strict=True)
    ]
