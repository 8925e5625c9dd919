"""How clients authenticate at each listener with TLS or SASL, and how this broker does at other brokers' listeners."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from ottla.broker.config.layers import ConfigError
from ottla.broker.security.sasl.broker_login import connector_to
from ottla.broker.security.sasl.sasl_listener import SaslListener
from ottla.broker.security.tls.tls_listener import TlsListener
from ottla.client.net.connector import Connector

if TYPE_CHECKING:
    from ottla.broker.config import BrokerConfig
    from ottla.broker.security.audit.audit import Audit
    from ottla.broker.security.sasl.scram_credentials import ScramCredentials
    from ottla.broker.security.tokens.delegation_tokens import DelegationTokens

log = structlog.get_logger(__name__)

_FILES_CHECKED_SECONDS: Final = 3.0


class ListenerSecurity(NamedTuple):
    """What a new connection at a listener has to pass before its first request."""

    tls: TlsListener | None
    sasl: SaslListener | None


class Listeners(dict[str, ListenerSecurity]):
    """The security of all listeners, by name. It is renewed in place when options or files change."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        credentials: ScramCredentials,
        tokens: DelegationTokens,
        audit: Audit,
    ) -> None:
        """Load what all listeners need; ConfigError if something is missing or invalid."""
        self._config = config
        for listener in config().bound_listeners:
            protocol = listener.security_protocol
            self[listener.name] = ListenerSecurity(
                TlsListener(listener.name, config, audit) if protocol.has_tls else None,
                SaslListener(listener.name, config, credentials, tokens, audit) if protocol.has_sasl else None,
            )
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._watch_files, name="certificates", daemon=True)

    def start(self) -> None:
        """Fetch the keys of tokens, and start to watch files for changes."""
        for _, sasl in self.values():
            if sasl is not None:
                sasl.start()
        if any(security.tls is not None for security in self.values()):
            self._thread.start()

    def configure(self) -> None:
        """Apply options that changed while the broker runs; keep the old ones if the new ones are invalid."""
        for name, (tls, sasl) in self.items():
            if tls is not None:
                tls.refresh()
            if sasl is not None:
                try:
                    sasl.configure()
                except ConfigError as error:
                    log.error("logins_not_reloaded", listener=name, error=str(error), hint="the old ones stay in use")

    def connector(self, listener: str) -> Connector:
        """Return how to connect to other brokers at a listener; ConfigError if we have no login for it."""
        return connector_to(listener, self._config, self[listener].tls, self[listener].sasl is not None)

    def close(self) -> None:
        """Stop watching files and refreshing keys."""
        self._is_closed.set()
        for _, sasl in self.values():
            if sasl is not None:
                sasl.close()

    def _watch_files(self) -> None:
        while not self._is_closed.wait(_FILES_CHECKED_SECONDS):
            for tls, _ in self.values():
                if tls is not None:
                    tls.refresh()
