"""Pages that brokers serve over HTTP, beside the protocol."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

# The broker option with the address. Apache Kafka does not have it.
LISTENER: Final = "ottla.http.listener"
# The token for brokers that require one over HTTP (`ottla.http.token`).
TOKEN_VARIABLE: Final = "OTTLA_HTTP_TOKEN"  # noqa: S105 - the name of a variable
_ANY_HOST: Final = ("", "0.0.0.0", "[::]", "::")  # noqa: S104 - compared with, not bound


def page_url(listener: str, broker_host: str, path: str) -> str:
    """Return the URL of a page; for a listener on all interfaces, use the broker's advertised host."""
    host, _, port = listener.rpartition(":")
    return f"http://{broker_host if host in _ANY_HOST else host}:{port}{path}"


def authorization(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the headers with our token, if we have one."""
    token = environment.get(TOKEN_VARIABLE)
    return {"Authorization": f"Bearer {token}"} if token else {}
