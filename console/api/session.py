"""Who uses the console, and what the console is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import msgspec
from msgspec import Meta

from ottla.console.problems import Problem
from ottla.console.settings import ConsoleSettings
from ottla.console.web.call import Call


class SessionInfo(msgspec.Struct, kw_only=True):
    """The console and its user; `user` is null before the login."""

    user: str | None
    needs_login: bool
    """Whether the cluster asks for a password; otherwise everybody is the anonymous user."""
    mechanisms: list[str]
    """How users may log in; the first is the default."""
    is_read_only: bool
    hides_records: bool
    bootstrap_servers: str
    version: str
    idle_s: int
    """A session ends when it is not used for this long."""


class Credentials(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A login."""

    username: Annotated[str, Meta(min_length=1, max_length=256)]
    password: Annotated[str, Meta(min_length=1, max_length=1024)]
    mechanism: Annotated[str, Meta(max_length=32)] | None = None


_MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")


async def show_session(call: Call) -> SessionInfo:
    """Tell who is logged in, and what the console may do."""
    return session_info(call.settings, None if call.session is None else call.session.user)


async def log_in(call: Call, body: Credentials) -> SessionInfo:
    """Log in at the brokers with SASL; the answer sets the session's cookie."""
    if not call.settings.needs_login:
        raise Problem(409, "This cluster asks for no password")
    if body.mechanism is not None and body.mechanism not in _MECHANISMS:
        raise Problem(400, "Unknown mechanism", f"There are {', '.join(_MECHANISMS)}.")
    session_id, session = await call.sessions.log_in(
        body.username, body.password, body.mechanism, call.request.remote or ""
    )
    call.reply.session_id = session_id
    return session_info(call.settings, session.user)


async def log_out(call: Call) -> SessionInfo:
    """End the session."""
    call.reply.ends_session = True
    return session_info(call.settings, None)


def session_info(settings: ConsoleSettings, user: str | None) -> SessionInfo:
    """Return what the page needs to know first; it comes with the page."""
    servers = settings.client.get("bootstrap_servers", "")
    first = settings.mechanism
    return SessionInfo(
        user=user,
        needs_login=settings.needs_login,
        mechanisms=[first, *(each for each in _MECHANISMS if each != first)] if settings.needs_login else [],
        is_read_only=settings.is_read_only,
        hides_records=settings.hides_records,
        bootstrap_servers=servers if isinstance(servers, str) else ",".join(servers),
        version=ottla_version(),
        idle_s=int(settings.session_idle_s),
    )


def ottla_version() -> str:
    """Return the version of this installation."""
    try:
        return version("ottla")
    except PackageNotFoundError:
        return "unknown"
