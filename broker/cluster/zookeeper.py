"""The only module that uses kazoo, apart from its client in `session_client.py`.

A `ZooKeeper` has one session at a time. Calls block, so they belong on worker and controller threads. A call that loses
the connection is sent again when the connection is back. The first try may have succeeded; the retry finds out from the
owning session and the data of a node that exists already, or from the data and version of a node that changed. Once
the session has ended, every call raises SessionExpiredError until `renew_session` opens a new one, so no caller can
continue in a new session without noticing that the old one ended.

kazoo calls us in exactly one function, `_post`, which only queues the event. Our own thread takes events from the
queue, keeps the state and calls the watches. A watch must return at once, so watchers post to their own queues. kazoo
fires every watch when the connection is lost, because changes may be missed from then on. We call these watches only
when the connection is back, when the watchers can read again.

Only a server can say that a session has ended, and kazoo learns it only after it reaches a server again. A broker that
is cut off must know earlier that other brokers may already have heard of the end. When the session timeout has passed
since the last request that is known to have arrived, the session is in doubt. kazoo still keeps it and calls still
wait. If a server still knows the session, it continues as if nothing had happened (docs/adr/0004-session-in-doubt.md).
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, Final, cast

import structlog
from kazoo import exceptions as kazoo_errors  # type: ignore[import-untyped]
from kazoo.client import KazooState  # type: ignore[import-untyped]
from kazoo.handlers.threading import KazooTimeoutError  # type: ignore[import-untyped]
from kazoo.security import (  # type: ignore[import-untyped]
    CREATOR_ALL_ACL,
    OPEN_ACL_UNSAFE,
    READ_ACL_UNSAFE,
)
from msgspec import Struct

from ottla.broker.cluster.guardian import Guardian
from ottla.broker.cluster.node_access import NodeAccess, access_of
from ottla.broker.cluster.operations import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    LoginRefusedError,
    MultiError,
    NodeExistsError,
    NodeStat,
    NoNodeError,
    NotAllowedError,
    NotEmptyError,
    Operation,
    SessionExpiredError,
    SetData,
    ZNode,
    ZooKeeperError,
    ZooKeeperUnavailableError,
)
from ottla.broker.cluster.session_client import SessionClient
from ottla.broker.cluster.zookeeper_login import NO_LOGIN, ZooKeeperLogin
from ottla.broker.common.caller_check import check_caller
from ottla.broker.config import ZooKeeperAddresses

log = structlog.get_logger(__name__)

Watch = Callable[[], None]
# Sends a request through kazoo's client and returns kazoo's pending answer.
_Submit = Callable[[SessionClient], Any]

# How often a waiting call checks whether the session has ended.
_WAIT_SLICE_SECONDS: Final = 0.25
_LOST: Final = (kazoo_errors.ConnectionLoss, kazoo_errors.OperationTimeoutError, kazoo_errors.SessionMovedError)
# When a multi fails, the operations before the failed one get the first of these, those after it the second.
_NOT_DONE: Final = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
_ERRORS: Final[tuple[tuple[type[Exception], type[ZooKeeperError]], ...]] = (
    (kazoo_errors.NodeExistsError, NodeExistsError),
    (kazoo_errors.NoNodeError, NoNodeError),
    (kazoo_errors.BadVersionError, BadVersionError),
    (kazoo_errors.NotEmptyError, NotEmptyError),
    (kazoo_errors.NoAuthError, NotAllowedError),
    (kazoo_errors.SessionExpiredError, SessionExpiredError),
)


# `auth` is whoever creates the node.
_ACLS: Final = {
    NodeAccess.OPEN: OPEN_ACL_UNSAFE,
    NodeAccess.READABLE: [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE],
    NodeAccess.PRIVATE: CREATOR_ALL_ACL,
}


class SessionState(Enum):
    """What we believe about the session."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    # Not connected; the servers still keep the session.
    SUSPENDED = "suspended"
    # Not connected for so long that the servers may have ended the session and notified others.
    IN_DOUBT = "in_doubt"
    EXPIRED = "expired"
    CLOSED = "closed"


_CUT_OFF: Final = (SessionState.SUSPENDED, SessionState.IN_DOUBT)


class _StateChange(Struct, frozen=True):
    client: SessionClient
    state: str


class _WatchFired(Struct, frozen=True):
    """What kazoo calls for a watch. kazoo keeps these in a set, so two equal ones on a node fire once."""

    post: Callable[[object], None]
    watch: Watch

    def __call__(self, _event: object) -> None:
        self.post(self.watch)


class ZooKeeper:
    """The nodes of one cluster, and the session with the ensemble that holds them.

    Call `start` first and `close` at the end. Paths are relative to the cluster's chroot. All calls block.

    A watch is called once: when what was read changes, or when it may have changed while there was no connection. Equal
    watches on one node are called once, not once each.
    """

    def __init__(
        self,
        addresses: ZooKeeperAddresses,
        *,
        session_timeout_ms: int,
        connection_timeout_ms: int,
        in_flight_max: int = 10,
        guardian: Guardian | None = None,
        login: ZooKeeperLogin = NO_LOGIN,
    ) -> None:
        """`guardian` is handed each session, and closes it if this process dies."""
        self._login = login
        self.addresses = addresses
        self.chroot = addresses.chroot
        # Called from the event thread when the session has ended; must return at once.
        self.on_expired: Callable[[], None] = lambda: None
        # Called from the event thread with each new state; must return at once.
        self.on_state: Callable[[SessionState], None] = lambda _state: None
        self._session_timeout = session_timeout_ms / 1000
        self._connection_timeout = connection_timeout_ms / 1000
        self._in_flight_max = in_flight_max
        self._guardian = guardian
        self._events: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._handle_events, name="zookeeper-events", daemon=True)
        # How often the session entered each state; for metrics.
        self.entered: Counter[SessionState] = Counter()
        # Watches that fired while there was no connection. Only the event thread touches them.
        self._held_watches: list[Watch] = []
        # The three fields below change under `_changed`; once a client is set, only the event thread changes them.
        self._changed = threading.Condition()
        self._client: SessionClient | None = None
        self._state = SessionState.CLOSED
        self.session_id = 0

    def __repr__(self) -> str:
        return f"<ZooKeeper {self.addresses} {self._state.value} session={self.session_id:#x}>"

    @property
    def state(self) -> SessionState:
        """What we believe about the session now."""
        return self._state

    @property
    def is_session_sure(self) -> bool:
        """Whether no server can have ended this session yet. Cheap; any thread may ask."""
        client = self._client
        is_open = self._state in (SessionState.CONNECTED, SessionState.SUSPENDED)
        return is_open and client is not None and time.monotonic() < client.sure_until

    def was_heard_within(self, seconds: float) -> bool:
        """Whether a server is known to have received a request of this session in the last `seconds`. Cheap; any
        thread may ask.
        """
        client = self._client
        return self.is_session_sure and client is not None and time.monotonic() - client.heard_at <= seconds

    # The session

    def start(self) -> None:
        """Connect, and create the chroot if it is missing."""
        self._thread.start()
        try:
            self._connect()
            if self.chroot:
                self.ensure_path("/")
        except BaseException:
            self.close()
            raise

    def renew_session(self) -> None:
        """Replace a session that has ended by a new one; ZooKeeperUnavailableError if no server answers."""
        with self._changed:
            if self._state is not SessionState.EXPIRED:
                raise AssertionError(f"the session is {self._state.value}, not expired")
            client = self._client
        assert client is not None
        _stop(client)
        self._connect()

    def close(self) -> None:
        """End the session, and with it this broker's ephemeral nodes."""
        with self._changed:
            client, self._client = self._client, None
            can_end = self._state in (SessionState.CONNECTED, SessionState.EXPIRED)
            self._state = SessionState.CLOSED
            self._changed.notify_all()
        if client is not None:
            _stop(client)
        if self._guardian is not None and can_end:
            # Where no server could be told, the guardian tries again when this process is gone.
            self._guardian.dismiss()
        self._events.put(None)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=self._session_timeout)

    def _connect(self) -> None:
        servers = list(map(str, self.addresses.servers))
        client = SessionClient(servers, self._session_timeout, self._login)
        with self._changed:
            before = self._state
            self._client, self._state = client, SessionState.CONNECTING
        client.add_listener(lambda state: self._post(_StateChange(client, state)))
        try:
            client.start(timeout=self._connection_timeout)
            deadline = time.monotonic() + self._connection_timeout
            self._connected_client(deadline)
            if self._login.digest is not None:
                # kazoo is connected before it logs in. The first answer shows that the login was accepted.
                self._answer(client.exists_async("/"), deadline)
        except (KazooTimeoutError, ZooKeeperError, kazoo_errors.KazooException) as error:
            with self._changed:
                self._client = client if before is SessionState.EXPIRED else None
                self._state = before
            _stop(client)
            if client.is_login_refused and self._login.digest is not None:
                raise LoginRefusedError(
                    f"ZooKeeper at {', '.join(servers)} does not accept the password of {self._login.digest.username}, "
                    f"or knows no such user: compare ottla.zookeeper.sasl.jaas.config with the login of its servers"
                ) from error
            raise ZooKeeperUnavailableError(
                f"no ZooKeeper server answers at {', '.join(servers)} within "
                f"{self._connection_timeout:g} s; check that it runs there, that zookeeper.connect names it, "
                f"and that no firewall blocks the port{f' ({client.failure})' if client.failure else ''}"
            ) from error

    # Reading

    def read(self, path: str, watch: Watch | None = None) -> ZNode:
        """Read a node. If it is missing, raise NoNodeError and watch nothing."""
        return _node(self._call(lambda client: client.get_async(self._full(path), self._watcher(watch)), path))

    def read_or_none(self, path: str) -> ZNode | None:
        """Read a node; return None if it is missing."""
        try:
            return self.read(path)
        except NoNodeError:
            return None

    def read_many(self, paths: Sequence[str], watch: Callable[[str], Watch] | None = None) -> list[ZNode | None]:
        """Read many nodes, several at a time; None for missing ones. `watch` returns the watch for a path."""

        def reading(path: str) -> _Submit:
            watcher = self._watcher(None if watch is None else watch(path))
            return lambda client: client.get_async(self._full(path), watcher)

        answers = _present_or_missing(self._call_many([reading(path) for path in paths], paths))
        return [None if isinstance(answer, NoNodeError) else _node(answer) for answer in answers]

    def exists(self, path: str, watch: Watch | None = None) -> NodeStat | None:
        """Return the stat of a node, or None if it is missing; the watch is also called when it is created."""
        stat = self._call(lambda client: client.exists_async(self._full(path), self._watcher(watch)), path)
        return None if stat is None else _stat(stat)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the sorted names of a node's children; the watch is called when one is added or removed."""
        names = self._call(lambda client: client.get_children_async(self._full(path), self._watcher(watch)), path)
        return sorted(names)

    def children_many(self, paths: Sequence[str]) -> list[list[str]]:
        """Return the sorted names of the children of many nodes; an empty list for a missing node."""

        def listing(path: str) -> _Submit:
            return lambda client: client.get_children_async(self._full(path))

        answers = _present_or_missing(self._call_many([listing(path) for path in paths], paths))
        return [[] if isinstance(answer, NoNodeError) else sorted(answer) for answer in answers]

    # Writing

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> NodeStat:
        """Create a node; NodeExistsError if it exists already, NoNodeError if its parent is missing."""

        def submit(client: SessionClient) -> Any:
            acl = self._acl(path)
            return client.create_async(self._full(path), data, acl, ephemeral=ephemeral, include_data=True)

        try:
            return _stat(self._call(submit, path)[1])
        except NodeExistsError as error:
            node = self.read_or_none(path) if error.retried else None
            owner = self.session_id if ephemeral else 0
            if node is None or node.data != data or node.stat.ephemeral_owner != owner:
                raise
            return node.stat

    def create_sequential(self, prefix: str, data: bytes) -> str:
        """Create a persistent node named `prefix` and the next number, in ten digits; return its path.

        If the connection is lost meanwhile, there may be two such nodes.
        """
        acl = self._acl(prefix)
        path: str = self._call(lambda client: client.create_async(self._full(prefix), data, acl, sequence=True), prefix)
        return path[len(self.chroot) :]

    def ensure_path(self, path: str) -> None:
        """Create a persistent node and its parents, as far as they are missing."""
        self.ensure_paths((path,))

    def ensure_paths(self, paths: Sequence[str]) -> None:
        """Create persistent nodes and their parents, as far as they are missing; several at a time."""
        nodes = list(dict.fromkeys(node for path in paths for node in _with_parents(self._full(path))))

        def looking(full: str) -> _Submit:
            return lambda client: client.exists_async(full)

        def creating(full: str) -> _Submit:
            # Each node with an ACL of its own: a parent may be less sensitive than its child.
            acl = self._acl(full.removeprefix(self.chroot))
            return lambda client: client.create_async(full, b"", acl)

        stats = _present_or_missing(self._call_many([looking(node) for node in nodes], nodes))
        missing = [node for node, stat in zip(nodes, stats, strict=True) if stat is None]
        answers = self._call_many([creating(node) for node in missing], missing)
        for node, answer in zip(missing, answers, strict=True):
            if isinstance(answer, NoNodeError):
                # A connection was lost, and the parent was sent again after its child.
                with suppress(NodeExistsError):
                    self._call(creating(node), node)
            elif isinstance(answer, ZooKeeperError) and not isinstance(answer, NodeExistsError):
                raise answer

    def write(self, path: str, data: bytes, version: int = ANY_VERSION) -> NodeStat:
        """Replace the data of a node; BadVersionError if its version is no longer `version`."""
        try:
            return _stat(self._call(lambda client: client.set_async(self._full(path), data, version), path))
        except BadVersionError as error:
            node = self.read_or_none(path) if error.retried else None
            if node is None or node.data != data or node.stat.version != version + 1:
                raise
            return node.stat

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node without children; NoNodeError if it is missing."""
        try:
            self._call(lambda client: client.delete_async(self._full(path), version), path)
        except NoNodeError as error:
            if not error.retried:
                raise

    def multi(self, operations: Sequence[Operation]) -> list[NodeStat | None]:
        """Do all operations or none; return a stat for each SetData, None for the others.

        Raises MultiError, which names the operation that failed. If the connection was lost meanwhile, the first try
        may be what made it fail; the caller has to check.
        """
        outcome = self.multi_many([operations])[0]
        if isinstance(outcome, MultiError):
            raise outcome
        return outcome

    def multi_many(self, multis: Sequence[Sequence[Operation]]) -> list[list[NodeStat | None] | MultiError]:
        """Do many multis, several at a time; each succeeds or fails by itself."""

        def committing(operations: Sequence[Operation]) -> _Submit:
            return lambda client: self._transaction(client, operations)

        answers = self._call_many([committing(operations) for operations in multis], ["multi"] * len(multis))
        outcomes: list[list[NodeStat | None] | MultiError] = []
        for operations, answer in zip(multis, answers, strict=True):
            if isinstance(answer, ZooKeeperError):
                raise answer
            outcomes.append(_failure(operations, answer) or _stats(operations, answer))
        return outcomes

    # Access

    def set_access(self, wanted: Mapping[str, NodeAccess]) -> dict[str, bool]:
        """Say who may use each of some nodes, several at a time.

        Return whether each node was changed; one that belongs to another login was not. Missing nodes are left out.
        """

        def setting(path: str, access: NodeAccess) -> _Submit:
            return lambda client: client.set_acls_async(self._full(path), _ACLS[access])

        answers = self._call_many([setting(*each) for each in wanted.items()], list(wanted))
        changed = {}
        for path, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, ZooKeeperError) and not isinstance(answer, NotAllowedError | NoNodeError):
                raise answer
            if not isinstance(answer, NoNodeError):
                changed[path] = not isinstance(answer, NotAllowedError)
        return changed

    def _acl(self, path: str) -> Any:
        return _ACLS[access_of(path, is_secure=self._login.sets_acls)]

    # Sending requests

    def _watcher(self, watch: Watch | None) -> _WatchFired | None:
        return None if watch is None else _WatchFired(self._post, watch)

    def _transaction(self, client: SessionClient, operations: Sequence[Operation]) -> Any:
        transaction = client.transaction()
        for operation in operations:
            path = self._full(operation.path)
            match operation:
                case Create():
                    acl = self._acl(operation.path)
                    transaction.create(path, operation.data, acl, ephemeral=operation.ephemeral)
                case SetData():
                    transaction.set_data(path, operation.data, operation.version)
                case Delete():
                    transaction.delete(path, operation.version)
                case Check():
                    transaction.check(path, operation.version)
        return transaction.commit_async()

    def _connected_client(self, deadline: float) -> SessionClient:
        """Wait for a connection; SessionExpiredError if the session ends meanwhile.

        After a wait, whoever we work for is asked again (`check_caller`).
        """
        has_waited = False
        with self._changed:
            while self._state is SessionState.CONNECTING or self._state in _CUT_OFF:
                has_waited = True
                left = deadline - time.monotonic()
                if left <= 0:
                    raise ZooKeeperUnavailableError(f"no connection to ZooKeeper at {self.addresses}")
                self._changed.wait(left)
            if self._state is not SessionState.CONNECTED or self._client is None:
                raise SessionExpiredError(f"the session with ZooKeeper at {self.addresses} is {self._state.value}")
            client = self._client
        if has_waited:
            check_caller()
        return client

    def _call(self, submit: _Submit, path: str, *, retried: bool = False) -> Any:
        """Send a request, again after a lost connection, and return its answer; raise a ZooKeeperError."""
        deadline = time.monotonic() + 2 * self._session_timeout
        while True:
            client = self._connected_client(deadline)
            try:
                return self._answer(submit(client), deadline)
            except _LOST:
                retried = True
            except kazoo_errors.KazooException as error:
                translated = _translated(error, path)
                translated.retried = retried
                raise translated from error

    def _call_many(self, submits: Sequence[_Submit], paths: Sequence[str]) -> list[Any]:
        """Send requests, at most `in_flight_max` at a time; return their answers and errors in order."""
        under_way: deque[tuple[_Submit, str, Any]] = deque()
        answers: list[Any] = []
        for submit, path in zip(submits, paths, strict=True):
            if len(under_way) >= self._in_flight_max:
                answers.append(self._oldest_answer(under_way))
            client = self._connected_client(time.monotonic() + 2 * self._session_timeout)
            under_way.append((submit, path, submit(client)))
        while under_way:
            answers.append(self._oldest_answer(under_way))
        return answers

    def _oldest_answer(self, under_way: deque[tuple[_Submit, str, Any]]) -> Any:
        submit, path, result = under_way.popleft()
        try:
            return self._answer(result, time.monotonic() + 2 * self._session_timeout)
        except _LOST:
            try:
                return self._call(submit, path, retried=True)
            except ZooKeeperError as error:
                return error
        except kazoo_errors.KazooException as error:
            return _translated(error, path)
        except ZooKeeperError as error:
            return error

    def _answer(self, result: Any, deadline: float) -> Any:
        while True:
            try:
                return result.get(timeout=_WAIT_SLICE_SECONDS)
            except KazooTimeoutError:
                if self._state in (SessionState.EXPIRED, SessionState.CLOSED):
                    raise SessionExpiredError(f"the session with {self.addresses} ended during a call") from None
                if time.monotonic() > deadline:
                    raise ZooKeeperUnavailableError(f"ZooKeeper at {self.addresses} does not answer") from None

    def _full(self, path: str) -> str:
        return (self.chroot + path).rstrip("/") or "/"

    # Events from kazoo

    def _post(self, event: object) -> None:
        self._events.put(event)

    def _handle_events(self) -> None:
        while True:
            try:
                event = self._events.get(timeout=self._time_left())
            except queue.Empty:
                self._change_state(SessionState.IN_DOUBT)
                continue
            if event is None:
                return
            if isinstance(event, _StateChange):
                self._take_state(event)
            elif self._state in _CUT_OFF:
                self._held_watches.append(cast(Watch, event))
            else:
                self._call_out(cast(Watch, event))

    def _time_left(self) -> float | None:
        client = self._client
        if self._state is not SessionState.SUSPENDED or client is None:
            return None
        return max(0.0, client.sure_until - time.monotonic())

    def _take_state(self, event: _StateChange) -> None:
        if event.client is not self._client or self._state is SessionState.EXPIRED:
            return
        if event.state == KazooState.CONNECTED:
            if (session := event.client.client_id) is not None:
                self.session_id = session[0]
                self._hand_over(*session)
            self._change_state(SessionState.CONNECTED)
        elif event.state == KazooState.SUSPENDED:
            self._change_state(SessionState.SUSPENDED)
        elif self._state is not SessionState.CONNECTING:
            self._change_state(SessionState.EXPIRED)

    def _hand_over(self, session_id: int, password: bytes) -> None:
        """Tell the guardian of a session before anybody can create nodes in it."""
        if self._guardian is not None:
            servers = list(map(str, self.addresses.servers))
            self._guardian.watch_over(session_id, password, round(self._session_timeout * 1000), servers)

    def _change_state(self, state: SessionState) -> None:
        with self._changed:
            if self._state is SessionState.CLOSED:
                return
            self._state = state
            self.entered[state] += 1
            self._changed.notify_all()
        log.info("zookeeper_state", state=state.value, session=f"{self.session_id:#x}")
        self._call_out(lambda: self.on_state(state))
        if state is SessionState.EXPIRED:
            self._call_out(self.on_expired)
        if state not in _CUT_OFF:
            held, self._held_watches = self._held_watches, []
            for watch in held:
                self._call_out(watch)

    def _call_out(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:
            log.exception("zookeeper_listener_failed")


def _stop(client: SessionClient) -> None:
    client.stop()
    client.close()


def _translated(error: Exception, path: str) -> ZooKeeperError:
    for theirs, ours in _ERRORS:
        if isinstance(error, theirs):
            return ours(f"{path}: {ours.__doc__}")
    return ZooKeeperError(f"{path}: {type(error).__name__} {error}".rstrip())


def _with_parents(full: str) -> list[str]:
    """Return a path and the paths of its parents, without the root; the uppermost first."""
    parts = full.strip("/").split("/")
    return ["/" + "/".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _present_or_missing(answers: list[Any]) -> list[Any]:
    """Return the answers; raise the first error that is not a NoNodeError."""
    for answer in answers:
        if isinstance(answer, ZooKeeperError) and not isinstance(answer, NoNodeError):
            raise answer
    return answers


def _failure(operations: Sequence[Operation], answer: Sequence[Any]) -> MultiError | None:
    """Return the error of a multi's first failed operation."""
    for index, (operation, result) in enumerate(zip(operations, answer, strict=True)):
        if isinstance(result, Exception) and not isinstance(result, _NOT_DONE):
            return MultiError(index, operation, _translated(result, "in a multi"))
    return None


def _stat(stat: Any) -> NodeStat:
    return NodeStat(stat.czxid, stat.version, stat.ctime, stat.ephemeralOwner, stat.mzxid)


def _node(answer: Any) -> ZNode:
    data, stat = answer
    return ZNode(data or b"", _stat(stat))


def _stats(operations: Sequence[Operation], answer: Sequence[Any]) -> list[NodeStat | None]:
    return [
        _stat(result) if isinstance(operation, SetData) else None
        for operation, result in zip(operations, answer, strict=True)
    ]
