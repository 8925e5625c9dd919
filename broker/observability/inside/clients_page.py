"""Who is connected: the principal, the client id, the software, and how much it sends and gets."""

from __future__ import annotations

import heapq
import time
from typing import Any, Final

from ottla.broker.network.connection import Connection
from ottla.broker.network.network import Network
from ottla.protocol.api import Api

_SHOWN_MAX: Final = 1_000


class ClientsPage:
    """Reads the connections of one broker; with too many, shows those with the most requests."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def __call__(self, subject: str) -> dict[str, Any] | None:
        """Return the page; there is only one."""
        if subject:
            return None
        connections = self._network.connections()
        shown = heapq.nlargest(_SHOWN_MAX, connections, key=lambda each: each.requests)
        now = time.monotonic()
        return {
            "is_truncated": len(connections) > len(shown),
            "clients": [self._row(each, now) for each in shown],
        }

    def _row(self, connection: Connection, now: float) -> dict[str, Any]:
        session = connection.session
        security = self._network.security.get(connection.listener)
        parts = ("SASL" if security and security.sasl else "", "TLS" if security and security.tls else "")
        return {
            # Identifies the connection for as long as it is open.
            "id": f"{connection.fd}-{connection.opened:.6f}",
            "principal": session.principal,
            "client_id": session.client_id,
            "software": session.software,
            "address": connection.peer,
            "listener": connection.listener,
            "protocol": "+".join(part for part in parts if part) or "plaintext",
            "connected_ms": int((now - connection.opened) * 1000),
            "idle_ms": max(0, int((now - connection.last_read) * 1000)),
            "requests": str(connection.requests),
            "bytes_in": connection.bytes_received,
            "bytes_out": connection.bytes_sendfile + connection.bytes_copied,
            "apis": [api.label for api in Api if session.apis >> api.value & 1],
            "is_throttled": connection.is_muted,
            "is_blocked": connection.blocked_since is not None,
        }
