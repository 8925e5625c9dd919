"""A request to the console, as handlers see it."""

from __future__ import annotations

from dataclasses import dataclass, field

from aiohttp import web

from ottla.client.admin.admin import Admin
from ottla.console.cluster.view import ClusterView
from ottla.console.login.sessions import Sessions, UserSession
from ottla.console.problems import Problem
from ottla.console.settings import ConsoleSettings


@dataclass(slots=True, eq=False)
class Reply:
    """What a handler wants of the answer besides its body."""

    # The session that a login began.
    session_id: str | None = None
    # Whether the session is over.
    ends_session: bool = False
    # The name of the file that a browser saves the answer in.
    filename: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One request: who asks, and what the console is."""

    request: web.Request
    settings: ConsoleSettings
    sessions: Sessions
    # None before the login.
    session: UserSession | None
    reply: Reply = field(default_factory=Reply)

    @property
    def user(self) -> UserSession:
        """The session; Problem 401 if there is none."""
        if self.session is None:
            raise Problem(401, "Log in first", advice="POST /api/v1/session with username and password.")
        return self.session

    async def view(self) -> ClusterView:
        """Return what the user sees of the cluster."""
        return await self.user.view()

    async def admin(self) -> Admin:
        """Return the client that acts as the user."""
        return (await self.user.view()).admin
