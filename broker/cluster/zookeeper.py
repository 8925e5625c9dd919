"""The one crossing point to ZooKeeper; with the client that it uses, the only file that imports kazoo.

A `ZooKeeper` has one session at a time. Calls block, and belong on worker and controller threads. A call that loses the
connection is sent again when the connection is back; what the first try may have done is recognised. When the session
is over, every call raises SessionExpiredError until `renew_session` has made another: nobody goes on in a new session
without having noticed the end of the old one.

kazoo calls us in exactly one function, `_post`, which only queues. Our own thread takes the events from there, keeps
the state, and calls those who watch; they must return at once, so they post to their own queues. kazoo fires every
watch when the connection is lost, as something may be missed from then on: those who watch are told when it is back,
and can look.

Only a server can say that a session is over, and kazoo hears that when it has reached one again. A broker that is cut
off must know earlier that others may have been told so: when the session timeout has passed since the last request that
is known to have arrived, the session is in doubt. kazoo goes on with it, calls go on waiting, and when a server still
knows the session nothing has happened (docs/adr/0004-session-in-doubt.md).
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, cast

import structlog
from kazoo import exceptions as kazoo_errors  # type: ignore[import-untyped]
from kazoo.client import KazooState  # type: ignore[import-untyped]
from kazoo.handlers.threading import KazooTimeoutError  # type: ignore[import-untyped]

from ottla.broker.cluster.operations import (
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SessionExpiredError,
    SetData,
    ZooKeeperError,
    ZooKeeperUnavailableError,
)
from ottla.broker.cluster.session_client import SessionClient
from ottla.broker.cluster.tree import Submit, Tree, Watch
from ottla.broker.config import ZooKeeperAddresses

log = structlog.get_logger(__name__)

# How often a waiting call looks whether the session is over.
_WAIT_SLICE_SECONDS: Final = 0.25
_LOST: Final = (kazoo_errors.ConnectionLoss, kazoo_errors.OperationTimeoutError, kazoo_errors.SessionMovedError)
# Of a multi that fails, the operations before the one at fault are answered by the first, those behind by the second.
_NOT_DONE: Final = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
_ERRORS: Final[tuple[tuple[type[Exception], type[ZooKeeperError]], ...]] = (
    (kazoo_errors.NodeExistsError, NodeExistsError),
    (kazoo_errors.NoNodeError, NoNodeError),
    (kazoo_errors.BadVersionError, BadVersionError),
    (kazoo_errors.NotEmptyError, NotEmptyError),
    (kazoo_errors.SessionExpiredError, SessionExpiredError),
)


class State(Enum):
    """What we believe about the session."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    # Not connected; the session lives on the servers.
    SUSPENDED = "suspended"
    # Not connected for so long that the servers may have ended the session, and have told others.
    IN_DOUBT = "in_doubt"
    EXPIRED = "expired"
    CLOSED = "closed"


_CUT_OFF: Final = (State.SUSPENDED, State.IN_DOUBT)


@dataclass(frozen=True, slots=True)
class _StateChange:
    client: SessionClient
    state: str


@dataclass(frozen=True, slots=True)
class _WatchFired:
    """kazoo keeps watches in a set: equal ones, set twice on a node, fire once."""

    post: Callable[[object], None]
    watch: Watch

    def __call__(self, _event: object) -> None:
        self.post(self.watch)


class ZooKeeper(Tree):
    """A session with an ensemble. `start` it, `close` it in the end; paths are below the cluster's chroot."""

    def __init__(
        self,
        addresses: ZooKeeperAddresses,
        *,
        session_timeout_ms: int,
        connection_timeout_ms: int,
        in_flight_max: int = 10,
    ) -> None:
        self.addresses = addresses
        self.chroot = addresses.chroot
        # Called from the event thread when the session is over; must return at once.
        self.on_expired: Callable[[], None] = lambda: None
        # Called from the event thread with each new state; must return at once.
        self.on_state: Callable[[State], None] = lambda _state: None
        self._session_timeout = session_timeout_ms / 1000
        self._connection_timeout = connection_timeout_ms / 1000
        self._in_flight_max = in_flight_max
        self._events: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._handle_events, name="zookeeper-events", daemon=True)
        # How often the session came into each state; for metrics.
        self.entered: Counter[State] = Counter()
        # Fired while there is no connection; only the event thread has them.
        self._held_watches: list[Watch] = []
        # The three below change under `_changed`, and only on the event thread once a client is set.
        self._changed = threading.Condition()
        self._client: SessionClient | None = None
        self._state = State.CLOSED
        self.session_id = 0

    def __repr__(self) -> str:
        return f"<ZooKeeper {self.addresses} {self._state.value} session={self.session_id:#x}>"

    @property
    def state(self) -> State:
        """What is believed about the session now."""
        return self._state

    @property
    def is_session_sure(self) -> bool:
        """Whether nobody can have been told that this session is over; cheap, for any thread."""
        client = self._client
        is_open = self._state in (State.CONNECTED, State.SUSPENDED)
        return is_open and client is not None and time.monotonic() < client.sure_until

    # The session

    def start(self) -> None:
        """Connect, and make sure that the chroot exists."""
        self._thread.start()
        try:
            self._connect()
            if self.chroot:
                self.ensure_path("/")
        except BaseException:
            self.close()
            raise

    def renew_session(self) -> None:
        """Begin a new session in place of one that is over; ZooKeeperUnavailableError if no server answers."""
        with self._changed:
            if self._state is not State.EXPIRED:
                raise AssertionError(f"the session is {self._state.value}, not expired")
            client = self._client
        assert client is not None
        _stop(client)
        self._connect()

    def close(self) -> None:
        """End the session, and with it this broker's ephemeral nodes."""
        with self._changed:
            client, self._client = self._client, None
            self._state = State.CLOSED
            self._changed.notify_all()
        if client is not None:
            _stop(client)
        self._events.put(None)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=self._session_timeout)

    def _connect(self) -> None:
        servers = list(map(str, self.addresses.servers))
        client = SessionClient(servers, self._session_timeout)
        with self._changed:
            before = self._state
            self._client, self._state = client, State.CONNECTING
        client.add_listener(lambda state: self._post(_StateChange(client, state)))
        try:
            client.start(timeout=self._connection_timeout)
            self._connected_client(time.monotonic() + self._connection_timeout)
        except (KazooTimeoutError, ZooKeeperError) as error:
            with self._changed:
                self._client = client if before is State.EXPIRED else None
                self._state = before
            _stop(client)
            raise ZooKeeperUnavailableError(
                f"no ZooKeeper server answers at {', '.join(servers)} within "
                f"{self._connection_timeout:g} s; check that it runs there, that zookeeper.connect names it, "
                f"and that nothing between blocks the port"
            ) from error

    def _post(self, event: object) -> None:
        self._events.put(event)

    def _handle_events(self) -> None:
        while True:
            try:
                event = self._events.get(timeout=self._time_left())
            except queue.Empty:
                self._change_state(State.IN_DOUBT)
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
        if self._state is not State.SUSPENDED or client is None:
            return None
        return max(0.0, client.sure_until - time.monotonic())

    def _take_state(self, event: _StateChange) -> None:
        if event.client is not self._client or self._state is State.EXPIRED:
            return
        if event.state == KazooState.CONNECTED:
            if (session := event.client.client_id) is not None:
                self.session_id = session[0]
            self._change_state(State.CONNECTED)
        elif event.state == KazooState.SUSPENDED:
            self._change_state(State.SUSPENDED)
        elif self._state is not State.CONNECTING:
            self._change_state(State.EXPIRED)

    def _change_state(self, state: State) -> None:
        with self._changed:
            if self._state is State.CLOSED:
                return
            self._state = state
            self.entered[state] += 1
            self._changed.notify_all()
        log.info("zookeeper_state", state=state.value, session=f"{self.session_id:#x}")
        self._call_out(lambda: self.on_state(state))
        if state is State.EXPIRED:
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

    # Calls

    def _watcher(self, watch: Watch | None) -> _WatchFired | None:
        return None if watch is None else _WatchFired(self._post, watch)

    def _transaction(self, client: SessionClient, operations: Sequence[Operation]) -> Any:
        transaction = client.transaction()
        for operation in operations:
            path = self._full(operation.path)
            match operation:
                case Create():
                    transaction.create(path, operation.data, ephemeral=operation.ephemeral)
                case SetData():
                    transaction.set_data(path, operation.data, operation.version)
                case Delete():
                    transaction.delete(path, operation.version)
                case Check():
                    transaction.check(path, operation.version)
        return transaction.commit_async()

    def _failure(self, answer: Sequence[Any]) -> tuple[int, ZooKeeperError] | None:
        for index, result in enumerate(answer):
            if isinstance(result, Exception) and not isinstance(result, _NOT_DONE):
                return index, _translated(result, "in a multi")
        return None

    def _connected_client(self, deadline: float) -> SessionClient:
        """Wait for a connection; SessionExpiredError when the session ends instead."""
        with self._changed:
            while self._state is State.CONNECTING or self._state in _CUT_OFF:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise ZooKeeperUnavailableError(f"no connection to ZooKeeper at {self.addresses}")
                self._changed.wait(left)
            if self._state is not State.CONNECTED or self._client is None:
                raise SessionExpiredError(f"the session with ZooKeeper at {self.addresses} is {self._state.value}")
            return self._client

    def _call(self, submit: Submit, path: str, *, retried: bool = False) -> Any:
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

    def _call_many(self, submits: Sequence[Submit], paths: Sequence[str]) -> list[Any]:
        under_way: deque[tuple[Submit, str, Any]] = deque()
        answers: list[Any] = []
        for submit, path in zip(submits, paths, strict=True):
            if len(under_way) >= self._in_flight_max:
                answers.append(self._oldest_answer(under_way))
            client = self._connected_client(time.monotonic() + 2 * self._session_timeout)
            under_way.append((submit, path, submit(client)))
        while under_way:
            answers.append(self._oldest_answer(under_way))
        return answers

    def _oldest_answer(self, under_way: deque[tuple[Submit, str, Any]]) -> Any:
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
                if self._state in (State.EXPIRED, State.CLOSED):
                    raise SessionExpiredError(f"the session with {self.addresses} ended during a call") from None
                if time.monotonic() > deadline:
                    raise ZooKeeperUnavailableError(f"ZooKeeper at {self.addresses} does not answer") from None


def _stop(client: SessionClient) -> None:
    client.stop()
    client.close()


def _translated(error: Exception, path: str) -> ZooKeeperError:
    for theirs, ours in _ERRORS:
        if isinstance(error, theirs):
            return ours(f"{path}: {ours.__doc__}")
    return ZooKeeperError(f"{path}: {type(error).__name__} {error}".rstrip())
