"""Pages that brokers serve over HTTP, beside the protocol."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

# The option of a broker that says where; Apache Kafka has no such thing.
LISTENER: Final = "ottla.http.listener"
# What brokers that ask for a token over HTTP (`ottla.http.token`) are shown.
TOKEN_VARIABLE: Final = "OTTLA_HTTP_TOKEN"
_ANY_HOST: Final = ("", "0.0.0.0", "[::]", "::")


def page_url(listener: str, broker_host: str, path: str) -> str:
    """Return where a page is; a broker that listens everywhere does so where clients find it, too."""
    host, _, port = listener.rpartition(":")
    return f"http://{broker_host if host in _ANY_HOST else host}:{port}{path}"


def authorization(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the headers that show our token, where we have one."""
    token = environment.get(TOKEN_VARIABLE)
    return {"Authorization": f"Bearer {token}"} if token else {}
