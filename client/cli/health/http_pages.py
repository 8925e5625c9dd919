"""Pages that brokers serve over HTTP, beside the protocol."""

from __future__ import annotations

import http.client
import os
import urllib.request
from collections.abc import Collection, Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

# The broker option with the address. Apache Kafka does not have it.
LISTENER: Final = "ottla.http.listener"
# The token for brokers that require one over HTTP (`ottla.http.token`).
TOKEN_VARIABLE: Final = "OTTLA_HTTP_TOKEN"  # noqa: S105 - the name of a variable
_ANY_HOST: Final = ("", "0.0.0.0", "[::]", "::")  # noqa: S104 - compared with, not bound


def page_url(listener: str, broker_host: str, path: str) -> str:
    """Return the URL of a page; for a listener on all interfaces, use the broker's advertised host."""
    host, _, port = listener.rpartition(":")
    return f"http://{broker_host if host in _ANY_HOST else host}:{port}{path}"


class UntrustedHostError(Exception):
    """A broker names a host that must not get our token."""


def authorization(url: str, token_for: Collection[str], environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the header with our token, if we have one; UntrustedHostError if the host must not get it.

    `token_for` has the hosts that may get the token, those that the user has named: a broker could name any. Callers do
    not follow redirects, for the same reason.
    """
    token = environment.get(TOKEN_VARIABLE)
    if not token:
        return {}
    if not _is_among(urlsplit(url).hostname or "", token_for):
        raise UntrustedHostError
    return {"Authorization": f"Bearer {token}"}


def get_page(
    url: str,
    timeout_s: float,
    *,
    token_for: Collection[str] = (),
    environment: Mapping[str, str] = os.environ,
) -> http.client.HTTPResponse:
    """Ask for a page, without following redirects; with our token, if `token_for` names hosts that may get it."""
    headers = authorization(url, token_for, environment) if token_for else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - page_url makes http: only
    opened: http.client.HTTPResponse = _OPENER.open(request, timeout=timeout_s)
    return opened


def _is_among(host: str, hosts: Collection[str]) -> bool:
    names = {name.lower() for name in hosts}
    return host in names or (_is_this_machine(host) and any(map(_is_this_machine, names)))


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Takes a redirect for an error."""

    def redirect_request(self, *_: object) -> None:
        """Follow to nowhere."""


_OPENER: Final = urllib.request.build_opener(_NoRedirects)
