"""From an HTTP request to the handler of its route, and back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import quote

import msgspec
from aiohttp import BasicAuth, hdrs, web

from ottla.client.cli.terminal.errors import CommandError
from ottla.client.errors import KafkaError
from ottla.console.login.sessions import Sessions, UserSession
from ottla.console.problems import Problem, problem_of
from ottla.console.settings import ConsoleSettings
from ottla.console.web.call import Call, Reply
from ottla.console.web.protection import HEADERS, check_request
from ottla.console.web.route import Route
from ottla.protocol.errors import ErrorCode

_log = logging.getLogger("ottla.console")
_encoder: Final = msgspec.json.Encoder()
_NDJSON: Final = "application/x-ndjson"
_SSE: Final = "text/event-stream"


class ServerSentEvent(msgspec.Struct, frozen=True):
    """One event of a stream of events."""

    event: str
    data: Any
    id: str | None = None


class Answering:
    """Answers requests: checks them, finds out who asks, and calls the handler."""

    def __init__(self, settings: ConsoleSettings, sessions: Sessions) -> None:
        self._settings = settings
        self._sessions = sessions
        scheme = "__Host-" if settings.is_secure and settings.base_path == "/" else ""
        # Cookies do not tell ports apart, and there may be several consoles on a machine.
        self.cookie_name = f"{scheme}ottla-session-{settings.port}"

    def handler(self, route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """Return the function that aiohttp calls for a route."""

        async def handle(request: web.Request) -> web.StreamResponse:
            session = await self._session(request)
            call = Call(request, self._settings, self._sessions, session)
            if session is None and not route.is_public:
                _ = call.user
            if route.is_change and self._settings.is_read_only:
                raise Problem(403, "This console is read-only", advice="Start it without --read-only.")
            if route.shows_records and self._settings.hides_records:
                raise Problem(403, "This console does not show records", advice="Start it without --hide-records.")
            arguments = await _arguments(route, request)
            try:
                if route.stream is not None:
                    return await self._stream(route, call, arguments)
                answer = await route.handle(call, **arguments)
            except CommandError as error:
                raise Problem(400, "The request is not valid", str(error)) from error
            except KafkaError as error:
                if session is not None and error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
                    self._sessions.end_session(session)
                raise problem_of(error) from error
            if route.is_change and session is not None:
                (await session.view()).changed()
                # Names are the clients' choice: as literals they stay within the line.
                _log.info("%s from %s: %s %r", session.user, request.remote, request.method, request.path)
            response = json_response(answer)
            self._set_session(call, response)
            return response

        return handle

    @web.middleware
    async def protect(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Check the request, and turn errors into problems."""
        try:
            check_request(request, self._settings)
            return await handler(request)
        except Problem as problem:
            return problem_response(problem)
        except web.HTTPException as error:
            return problem_response(Problem(error.status, error.reason))
        except (msgspec.DecodeError, RecursionError) as error:
            return problem_response(Problem(400, "The request is not valid", str(error)))
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            _log.exception("%s %s failed", request.method, request.path)
            return problem_response(_failed())

    def _set_session(self, call: Call, response: web.Response) -> None:
        """Give the browser the session that a login began, or take it away after a logout."""
        session_id = call.reply.session_id
        if session_id is None and not call.reply.ends_session:
            return
        before = call.request.cookies.get(self.cookie_name)
        if before is not None:
            # A login never goes on with an id that somebody may have planted.
            self._sessions.end(before)
        attributes: Any = {
            "path": self._settings.base_path,
            "httponly": True,
            "samesite": "Strict",
            "secure": self._settings.is_secure,
        }
        if session_id is None:
            response.del_cookie(self.cookie_name, **attributes)
        else:
            response.set_cookie(self.cookie_name, session_id, max_age=int(self._settings.session_age_s), **attributes)

    def session_of_browser(self, request: web.Request) -> UserSession | None:
        """Return the session that a browser has; None before the login."""
        cookie = request.cookies.get(self.cookie_name)
        return self._sessions.anonymous or (None if cookie is None else self._sessions.find(cookie))

    async def _session(self, request: web.Request) -> UserSession | None:
        if self._sessions.anonymous is None and (authorization := request.headers.get(hdrs.AUTHORIZATION)):
            try:
                auth = BasicAuth.decode(authorization, encoding="utf-8")
            except ValueError as error:
                raise Problem(401, "Log in with Basic, or with a session") from error
            return await self._sessions.of_credentials(auth.login, auth.password, request.remote or "")
        return self.session_of_browser(request)

    async def _stream(self, route: Route, call: Call, arguments: dict[str, Any]) -> web.StreamResponse:
        # A client may go away at any moment; what the handler holds is given back then.
        assert route.stream is not None
        with self._sessions.streaming(call.user, route.stream):
            async with contextlib.aclosing(route.handle(call, **arguments)) as lines:
                # The first part is waited for before the answer begins, so that an error still has a status.
                first = await anext(lines, None)
                response = web.StreamResponse(headers=_stream_headers(route, call.reply) | HEADERS)
                await response.prepare(call.request)
                write = _write_lines if route.stream == "ndjson" else _write_event
                try:
                    if first is not None:
                        await write(response, first)
                    async for part in lines:
                        await write(response, part)
                except KafkaError as error:
                    await _write_failure(response, route, problem_of(error))
                except Problem as problem:
                    await _write_failure(response, route, problem)
                except ConnectionError:
                    raise
                except Exception:
                    _log.exception("%s %s failed", call.request.method, call.request.path)
                    await _write_failure(response, route, _failed())
            with contextlib.suppress(ConnectionError):
                await response.write_eof()
            return response


def _stream_headers(route: Route, reply: Reply) -> dict[str, str]:
    headers = {
        "Content-Type": _NDJSON if route.stream == "ndjson" else _SSE,
        "Cache-Control": "no-store",
        "X-Accel-Buffering": "no",
    }
    if reply.filename:
        headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(reply.filename, safe='')}"
    return headers


def _failed() -> Problem:
    return Problem(500, "The console failed", "This is a fault of the console; its log says more.")


async def _arguments(route: Route, request: web.Request) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for name, kind in route.path_types.items():
        arguments[name] = msgspec.convert(request.match_info[name], kind, strict=False)
    if route.query is not None:
        arguments["query"] = msgspec.convert(_query(route.query, request), route.query, strict=False)
    if route.body is not None:
        arguments["body"] = msgspec.json.decode(await request.read() or b"{}", type=route.body)
    return arguments


def _query(kind: type[msgspec.Struct], request: web.Request) -> dict[str, Any]:
    """Return the query by field; a field that is a list is repeated. Numbers may also be separated by commas."""
    fields = {each.encode_name: each for each in msgspec.structs.fields(kind)}
    found: dict[str, Any] = {}
    for name, value in request.query.items():
        if name not in fields:
            raise Problem(400, "Unknown parameter", f"There is no {name[:100]}; there are {', '.join(fields)}.")
        if "list" in str(fields[name].type):
            is_numbers = "int" in str(fields[name].type)
            found.setdefault(name, []).extend(part for part in (value.split(",") if is_numbers else [value]) if part)
        else:
            found[name] = value
    return found


async def _write_lines(response: web.StreamResponse, lines: Any) -> None:
    await response.write(_encoder.encode_lines(lines))


async def _write_event(response: web.StreamResponse, event: ServerSentEvent | None) -> None:
    if event is None:
        await response.write(b": alive\n\n")
        return
    number = b"" if event.id is None else b"id: " + event.id.encode() + b"\n"
    data = _encoder.encode(event.data)
    await response.write(number + b"event: " + event.event.encode() + b"\ndata: " + data + b"\n\n")


async def _write_failure(response: web.StreamResponse, route: Route, problem: Problem) -> None:
    """End a stream with the problem, because its status is already sent."""
    if route.stream == "ndjson":
        await _write_lines(response, [{"type": "error", "problem": problem.details}])
    else:
        await _write_event(response, ServerSentEvent("problem", problem.details))


def json_response(answer: Any, status: int = 200) -> web.Response:
    """Return an answer as JSON; it is never kept by browsers."""
    return web.Response(
        status=status,
        body=_encoder.encode(answer),
        content_type="application/json",
        headers={"Cache-Control": "no-store", **HEADERS},
    )


def problem_response(problem: Problem) -> web.Response:
    """Return a problem."""
    return web.Response(
        status=problem.status,
        body=_encoder.encode(problem.details),
        content_type="application/problem+json",
        headers={"Cache-Control": "no-store", **HEADERS, **problem.headers},
    )
