"""Requests to an endpoint that the configuration names, such as that of a token issuer, and to nothing else.

Only https is used, or http to this machine, unless the caller sends no secrets and allows http. Redirects are not
followed, because they would make us send requests, and secrets, wherever the answer says; proxies of the environment
are not used for the same reason. Size and time are limited.
"""

from __future__ import annotations

import ipaddress
import ssl
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

if TYPE_CHECKING:
    import http.client

TIMEOUT_SECONDS: Final = 10.0
_CHUNK_BYTES: Final = 64 * 1024


class EndpointError(Exception):
    """The endpoint was not reached, or has not answered as it should. The text has no secret."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        """`status` is that of the HTTP response, if there was one."""
        super().__init__(reason)
        self.status = status


def check_url(url: str, *, allow_http: bool = False) -> SplitResult:
    """Return the parts of a URL that may be requested; ValueError for any other."""
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise ValueError("the URL must not have a user or a password in it")
    if not parts.hostname or parts.scheme not in ("https", "http"):
        raise ValueError("the URL must be like https://issuer.example.org/path")
    if parts.scheme == "http" and not allow_http and not _is_loopback(parts.hostname):
        raise ValueError("the URL must have https: over http anybody on the network could replace the answer")
    _ = parts.port  # raises ValueError if it is no port
    return parts


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def fetch(
    url: str,
    *,
    bytes_max: int,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    cafile: str | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    allow_http: bool = False,
) -> bytes:
    """Return what the endpoint answers to GET, or to POST if there is a body; EndpointError if it does not. Blocks."""
    # Here, because it brings what reads e-mails along, and most logins ask no issuer.
    import http.client

    try:
        parts = check_url(url, allow_http=allow_http)
        connection = _connection(parts, cafile, timeout_seconds)
    except (ValueError, OSError) as error:
        raise EndpointError(f"cannot request {url}: {error}") from error
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    deadline = time.monotonic() + timeout_seconds
    try:
        connection.request(
            "GET" if body is None else "POST", path, body, {"Accept": "application/json", **(headers or {})}
        )
        answer = bytearray()
        with connection.getresponse() as response:
            while chunk := response.read1(_CHUNK_BYTES):
                answer += chunk
                if len(answer) > bytes_max:
                    raise EndpointError(f"{url} answered with more than {bytes_max} bytes", response.status)
                if time.monotonic() > deadline:
                    raise EndpointError(f"{url} took longer than {timeout_seconds:g} s", response.status)
    except (OSError, http.client.HTTPException) as error:
        raise EndpointError(f"cannot request {url}: {type(error).__name__}: {error}") from error
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise EndpointError(f"{url} answered {response.status} {response.reason}", response.status)
    return bytes(answer)


def _connection(parts: SplitResult, cafile: str | None, timeout_seconds: float) -> http.client.HTTPConnection:
    import http.client

    assert parts.hostname is not None
    if parts.scheme == "http":
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_seconds)
    context = ssl.create_default_context(cafile=cafile)
    return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout_seconds, context=context)
