"""Pages that brokers serve over HTTP, beside the protocol."""

from __future__ import annotations

from typing import Final

# The option of a broker that says where; Apache Kafka has no such thing.
LISTENER: Final = "ottla.http.listener"
_ANY_HOST: Final = ("", "0.0.0.0", "[::]", "::")


def page_url(listener: str, broker_host: str, path: str) -> str:
    """Return where a page is; a broker that listens everywhere does so where clients find it, too."""
    host, _, port = listener.rpartition(":")
    return f"http://{broker_host if host in _ANY_HOST else host}:{port}{path}"
