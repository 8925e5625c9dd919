"""The ACLs of the cluster: reading them from ZooKeeper, changing them, and hearing of changes.

A `NoteFollower` has one thread for all reading, which makes each new snapshot. A change waits until that thread has
read the ACLs back, so what was granted holds on this broker when the response is sent. Other brokers hear of it through
a note, within milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import Final

import structlog

from ottla.broker.cluster.change_notes import ChangeNotes, add_note
from ottla.broker.cluster.cluster_registry import translated_errors
from ottla.broker.cluster.note_follower import NoteFollower
from ottla.broker.cluster.operations import BadVersionError, NodeExistsError, NoNodeError, ZNode
from ottla.broker.cluster.znodes import MalformedNodeError
from ottla.broker.cluster.zookeeper import ZooKeeper
from ottla.broker.common.clocks import wall_clock_ms
from ottla.broker.security.acls.acl import PATTERN_TYPES, RESOURCE_TYPES, AclEntry, ResourcePattern
from ottla.broker.security.acls.acl_nodes import (
    CHANGE_PATHS,
    CHANGE_PREFIX,
    UNREADABLE,
    AclNode,
    acl_path,
    decode_change,
    encode_change,
    is_node_name,
    permanent_paths,
    types_path,
)
from ottla.broker.security.acls.acl_snapshot import AclSnapshot, Entries
from ottla.protocol.acls import PatternType
from ottla.protocol.errors import ErrorCode, KafkaError

log = structlog.get_logger(__name__)


_ATTEMPTS_MAX: Final = 20
# A server closes the connection after a request of more than a mebibyte.
_NODE_BYTES_MAX: Final = 900 * 1024


class AclStore:
    """The ACLs in ZooKeeper. `use` is called with every new snapshot; any worker thread may change ACLs."""

    def __init__(
        self, zookeeper: ZooKeeper, use: Callable[[AclSnapshot], None], *, clock: Callable[[], int] = wall_clock_ms
    ) -> None:
        self._zookeeper = zookeeper
        self._use = use
        notes = {kind: ChangeNotes(zookeeper, CHANGE_PATHS[kind], CHANGE_PREFIX, clock) for kind in PATTERN_TYPES}
        self._follower = NoteFollower(zookeeper, notes, self._read_all, self._read_noted, name="acl-changes")
        # Only the follower's thread changes it, and `start` before that thread runs.
        self._snapshot = AclSnapshot()

    # Life cycle

    def start(self) -> None:
        """Read all ACLs, and follow changes from then on; raise a ZooKeeperError if that fails."""
        for path in permanent_paths():
            self._zookeeper.ensure_path(path)
        self._follower.start()

    def close(self) -> None:
        """Stop following changes."""
        self._follower.close()

    def session_renewed(self) -> None:
        """Watch again, and read what was missed."""
        self._follower.session_renewed()

    @property
    def snapshot(self) -> AclSnapshot:
        """The ACLs that were read last."""
        return self._snapshot

    # Changing

    def change(
        self, pattern: ResourcePattern, *, added: Iterable[AclEntry] = (), removed: Iterable[AclEntry] = ()
    ) -> None:
        """Add and remove ACLs of one pattern, in one write; KafkaError if that fails."""
        with translated_errors():
            self._write(pattern, frozenset(added), frozenset(removed))
            # Add the note even if nothing changed: an earlier try may have failed after its write.
            add_note(self._zookeeper, CHANGE_PATHS[pattern.pattern_type], CHANGE_PREFIX, encode_change(pattern))
        self._follower.read_back(lambda: self._read({pattern}))

    def _write(self, pattern: ResourcePattern, added: Set[AclEntry], removed: Set[AclEntry]) -> None:
        path = acl_path(pattern)
        for _ in range(_ATTEMPTS_MAX):
            node = self._zookeeper.read_or_none(path)
            current = AclNode(acls=[]) if node is None or not node.data else AclNode.decode(node.data, path)
            wanted = current.changed(added, removed)
            if wanted == current:
                return
            content = wanted.encode()
            if len(content) > _NODE_BYTES_MAX:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "too many ACLs for one resource")
            try:
                if node is None:
                    self._zookeeper.create(path, content)
                elif wanted.acls:
                    self._zookeeper.write(path, content, node.stat.version)
                else:
                    self._zookeeper.delete(path, node.stat.version)
            except (BadVersionError, NodeExistsError, NoNodeError):
                continue
            return
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the ACLs of {pattern.name} keep being changed by others")

    # Reading, on the follower's thread

    def _read_all(self) -> None:
        found: dict[ResourcePattern, Entries] = {}
        for pattern_type in PATTERN_TYPES:
            for kind in RESOURCE_TYPES:
                names = self._zookeeper.children(types_path(pattern_type, kind))
                found |= self._entries([ResourcePattern(kind, name, pattern_type) for name in names])
        self._swap(AclSnapshot(found))
        log.info("acls_read", patterns=len(self._snapshot.acls))

    def _read_noted(self, pattern_type: PatternType, notes: Mapping[str, bytes]) -> None:
        told = {_told(pattern_type, data, path) for path, data in notes.items()}
        self._read({pattern for pattern in told if pattern is not None})

    def _read(self, patterns: Set[ResourcePattern]) -> None:
        self._swap(self._snapshot.replacing(self._entries(sorted(patterns))))

    def _swap(self, snapshot: AclSnapshot) -> None:
        self._snapshot = snapshot
        self._use(snapshot)

    def _entries(self, patterns: list[ResourcePattern]) -> Mapping[ResourcePattern, Entries]:
        nodes = self._zookeeper.read_many([acl_path(pattern) for pattern in patterns])
        return {pattern: _decoded(pattern, node) for pattern, node in zip(patterns, nodes, strict=True)}


def _told(pattern_type: PatternType, data: bytes, path: str) -> ResourcePattern | None:
    try:
        return decode_change(pattern_type, data, path)
    except MalformedNodeError as error:
        log.error("acl_change_not_read", reason=str(error))
        return None


def _decoded(pattern: ResourcePattern, node: ZNode | None) -> Entries:
    """Return the ACLs in a node. An unreadable node denies everything, because its ACLs may have been meant to."""
    if node is None or not node.data:
        return frozenset()
    try:
        return AclNode.decode(node.data, acl_path(pattern)).entries()
    except MalformedNodeError as error:
        log.error("acls_not_readable", reason=str(error))
        return UNREADABLE


def check_name(name: str) -> None:
    """Raise INVALID_REQUEST for a name that cannot have ACLs."""
    if not is_node_name(name):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "a resource with ACLs cannot have an empty name, or one that contains /"
        )
