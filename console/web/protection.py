"""What protects the console from other web sites: checks of every request, and headers of every answer.

A page of another site can make a browser send requests to the console, and on a local cluster there is no password. So
requests must call the console by its own name (a site may let its name resolve to 127.0.0.1), and requests that change
something must carry a header that no other site can make a browser send, and come from a page of the console.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from ottla.console.problems import Problem
from ottla.console.settings import ConsoleSettings

CHANGE_HEADER: Final = "X-Ottla-Console"
_SAFE_METHODS: Final = ("GET", "HEAD")
_CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'self'; "
    "form-action 'self'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Server": "Ottla",
    "Content-Security-Policy": _CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def check_request(request: web.Request, settings: ConsoleSettings) -> None:
    """Raise Problem for a request that another site may have caused."""
    name = _host_name(request.headers.get("Host", ""))
    if name not in settings.host_names:
        raise Problem(
            403,
            "Unknown host name",
            "Call the console by its address or localhost.",
            advice="If it is behind a proxy, start it with --public-url.",
        )
    if request.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none") and not _is_navigation(request):
        raise Problem(403, "Requests from other sites are refused")
    if request.method in _SAFE_METHODS:
        return
    origin = request.headers.get("Origin")
    if origin is not None and origin not in _origins(request, settings):
        raise Problem(403, "Requests from other sites are refused", f"The origin {origin[:200]} is not the console.")
    if CHANGE_HEADER not in request.headers:
        raise Problem(403, "Header missing", f"Requests that change something carry the header {CHANGE_HEADER}: 1.")
    if request.can_read_body and request.content_type != "application/json":
        raise Problem(415, "The body must be JSON", "Send it with Content-Type: application/json.")


def _origins(request: web.Request, settings: ConsoleSettings) -> set[str]:
    scheme = "https" if settings.certificate is not None else "http"
    origins = {f"{scheme}://{request.headers.get('Host', '')}"}
    if settings.public_url:
        parts = urlsplit(settings.public_url)
        origins.add(f"{parts.scheme}://{parts.netloc}")
    return origins


def _is_navigation(request: web.Request) -> bool:
    """Whether a user follows a link from elsewhere to a page; that tells the other site nothing."""
    return request.method == "GET" and request.headers.get("Sec-Fetch-Mode") == "navigate"


def _host_name(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()
