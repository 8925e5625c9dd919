"""The sessions of users: each has a client of its own, which acts as the user.

The cookie holds a random id. Sessions are kept under its hash, so the time of a lookup tells nothing about the id.
Passwords stay in memory, because the client logs in again whenever it connects to another broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import aiohttp

from ottla.client.admin.admin import Admin
from ottla.client.errors import KafkaError
from ottla.client.schema.registry import SchemaRegistry
from ottla.console.cluster.view import ClusterView
from ottla.console.login.attempts import LoginAttempts
from ottla.console.problems import Problem, problem_of
from ottla.console.settings import ConsoleSettings, Stream
from ottla.protocol.errors import ErrorCode

_ID_BYTES: Final = 32
_LOGINS_AT_ONCE: Final = 4
_FREE_BY_USER: Final = 5
_FREE_BY_ADDRESS: Final = 50
_PER_USER_MAX: Final = 8
ANONYMOUS: Final = "ANONYMOUS"


class UserSession:
    """A user, and the client that acts as this user; it connects when it is first needed."""

    def __init__(self, user: str | None, client: dict[str, Any], http: aiohttp.ClientSession, now: float) -> None:
        self.user = user or ANONYMOUS
        self.client = client
        self._http = http
        self.created_at = now
        self.used_at = now
        # The tasks that stream to this user; they end with the session.
        self.streams: dict[asyncio.Task[Any], Stream] = {}
        self._view: ClusterView | None = None
        self._connecting = asyncio.Lock()
        self._beginning: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<UserSession {self.user!r}>"

    async def view(self) -> ClusterView:
        """Return what the user sees of the cluster; KafkaError if no broker answers."""
        if self._view is None:
            async with self._connecting:
                if self._view is None:
                    admin = Admin(**self.client)
                    await admin.start()
                    self._view = ClusterView(admin, self._http)
        return self._view

    def begin(self, read: Callable[[], Awaitable[None]]) -> None:
        """Begin to read what the user will ask for next, unless such a read is under way."""
        if self._beginning is None or self._beginning.done():
            self._beginning = asyncio.create_task(_quietly(read))

    async def close(self) -> None:
        """End the streams, and close the client."""
        for task in (*self.streams, *([self._beginning] if self._beginning else [])):
            task.cancel()
        view, self._view = self._view, None
        if view is not None:
            await view.close()
            await view.admin.close()


class Sessions:
    """All sessions of the console; use it on one event loop."""

    def __init__(
        self, settings: ConsoleSettings, http: aiohttp.ClientSession, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._http = http
        self._clock = clock
        self._by_user = LoginAttempts(_FREE_BY_USER, clock)
        # Many users may share an address: that of a proxy.
        self._by_address = LoginAttempts(_FREE_BY_ADDRESS, clock)
        self._secret = secrets.token_bytes(_ID_BYTES)
        self._logins = asyncio.Semaphore(_LOGINS_AT_ONCE)
        self._by_hash: dict[bytes, UserSession] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._streams: Counter[Stream] = Counter()
        self._streams_max: dict[Stream, int] = {
            "sse": settings.event_streams_max,
            "ndjson": settings.record_streams_max,
        }
        url = settings.schema_registry_url
        self.registry = None if url is None else SchemaRegistry(url)
        # On a cluster without passwords, everybody shares one session.
        self._anonymous = None if settings.needs_login else UserSession(None, settings.client_for(None, None), http, 0)

    def __len__(self) -> int:
        return len(self._by_hash)

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return self._streams.total()

    @property
    def anonymous(self) -> UserSession | None:
        """The session of everybody; None if users log in."""
        return self._anonymous

    async def log_in(self, user: str, password: str, mechanism: str | None, address: str) -> tuple[str, UserSession]:
        """Log in at the brokers; return the id of the new session. Problem if they refuse, or after too many tries."""
        if pause_s := max(self._by_user.pause_s(user), self._by_address.pause_s(address)):
            raise Problem(
                429,
                "Too many failed logins",
                f"Wait {pause_s:.0f} s before the next try.",
                headers={"Retry-After": str(int(pause_s) + 1)},
            )
        session = UserSession(user, self._settings.client_for(user, password, mechanism), self._http, self._clock())
        try:
            async with self._logins:
                await session.view()
        except KafkaError as error:
            if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
                self._by_user.failed(user)
                self._by_address.failed(address)
                raise Problem(401, "The user or the password is wrong", code=error.message) from error
            raise problem_of(error) from error
        self._by_user.succeeded(user)
        self._by_address.succeeded(address)
        self._make_room(session.user)
        session_id = secrets.token_urlsafe(_ID_BYTES)
        self._by_hash[_hashed(session_id)] = session
        return session_id, session

    async def of_credentials(self, user: str, password: str, address: str) -> UserSession:
        """Return the session of a client that sends its password with every request, such as curl."""
        shown = hmac.digest(self._secret, f"{len(user)}:{user}{password}".encode(errors="replace"), "sha256").hex()
        session = self.find(shown)
        if session is None:
            session_id, session = await self.log_in(user, password, None, address)
            if (earlier := self.find(shown)) is not None:
                # Another request of this client has logged in meanwhile.
                self.end(session_id)
                return earlier
            self._by_hash[_hashed(shown)] = self._by_hash.pop(_hashed(session_id))
        return session

    def find(self, session_id: str) -> UserSession | None:
        """Return a session that is not too old, and note that it is used."""
        key = _hashed(session_id)
        session = self._by_hash.get(key)
        if session is None:
            return None
        if self._is_over(session):
            self._drop(key)
            return None
        session.used_at = self._clock()
        return session

    def end(self, session_id: str) -> None:
        """Log out."""
        self._drop(_hashed(session_id))

    def end_session(self, session: UserSession) -> None:
        """End a session whose user the brokers refuse now."""
        for key in [key for key, each in self._by_hash.items() if each is session]:
            self._drop(key)

    def expire(self) -> None:
        """End the sessions that are too old, or were not used for too long."""
        for key in [key for key, session in self._by_hash.items() if self._is_over(session)]:
            self._drop(key)

    @contextlib.contextmanager
    def streaming(self, session: UserSession, kind: Stream) -> Iterator[None]:
        """Count a stream while it runs; Problem if there are too many of its kind.

        Tails of records do not take the places of the events that every tab needs. One user has half of all places; but
        if nobody logs in, all tabs of all people are one user.
        """
        limit = self._streams_max[kind]
        per_session = limit if session is self._anonymous else (limit + 1) // 2
        own = sum(each == kind for each in session.streams.values())
        if self._streams[kind] >= limit or own >= per_session:
            raise Problem(429, "Too many open streams", "Close a page with a live view.", headers={"Retry-After": "5"})
        task = asyncio.current_task()
        assert task is not None
        self._streams[kind] += 1
        session.streams[task] = kind
        try:
            yield
        finally:
            self._streams[kind] -= 1
            session.streams.pop(task, None)
            session.used_at = self._clock()

    async def close(self) -> None:
        """Close all clients."""
        sessions = [*self._by_hash.values(), *([self._anonymous] if self._anonymous else [])]
        self._by_hash.clear()
        await asyncio.gather(*(each.close() for each in sessions), *self._closing, return_exceptions=True)

    def _is_over(self, session: UserSession) -> bool:
        now = self._clock()
        is_idle = not session.streams and now - session.used_at > self._settings.session_idle_s
        return is_idle or now - session.created_at > self._settings.session_age_s

    def _make_room(self, user: str) -> None:
        """End the session of this user, or of anybody, that was not used for longest, if there are too many."""
        self.expire()
        own = [key for key, each in self._by_hash.items() if each.user == user]
        crowd = own if len(own) >= _PER_USER_MAX else list(self._by_hash)
        if len(own) >= _PER_USER_MAX or len(self._by_hash) >= self._settings.sessions_max:
            self._drop(min(crowd, key=lambda key: self._by_hash[key].used_at))

    def _drop(self, key: bytes) -> None:
        session = self._by_hash.pop(key, None)
        if session is not None:
            task = asyncio.create_task(session.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


async def _quietly(read: Callable[[], Awaitable[None]]) -> None:
    # Whoever asks next hears of a failure.
    with contextlib.suppress(KafkaError, Problem):
        await read()


def _hashed(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode(errors="replace")).digest()
