"""TLS at one listener: its contexts, renewed with the certificates, and the users of client certificates."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog

from ottla.broker.config.layers import ConfigError, Problem
from ottla.broker.config.rows.broker import BrokerOptions
from ottla.broker.security.audit.audit import Audit, AuditSubject
from ottla.broker.security.rarely import Rarely
from ottla.broker.security.session import ANONYMOUS, Session
from ottla.broker.security.tls.distinguished_name import subject_of
from ottla.broker.security.tls.key_stores import KeyStoreError
from ottla.broker.security.tls.principal_mapping import MappingRulesError, PrincipalMapping
from ottla.broker.security.tls.tls_settings import TlsSettings
from ottla.protocol.frame import describe_first_bytes

if TYPE_CHECKING:
    from ottla.broker.config import BrokerConfig

log = structlog.get_logger(__name__)

_TLS_START: Final = b"\x16\x03"
# The length of a frame has four bytes, and no first request is long enough to need the first one.
_KAFKA_START: Final = b"\0"
# OpenSSL's reason -> what to do about it.
_HINTS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client sends no certificate, but ssl.client.auth=required needs one",
    "CERTIFICATE_VERIFY_FAILED": "the client's certificate is not signed by one of ssl.truststore, or has expired",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust our certificate: give it the CA that signed it",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not trust our certificate: give it the CA that signed it",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client refuses our certificate: does it name the host that it connects to?",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our certificate has expired",
    "NO_SHARED_CIPHER": "the client has no cipher suite in common with us: see ssl.cipher.suites",
    "UNSUPPORTED_PROTOCOL": "the client's version of TLS is older than ssl.enabled.protocols",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the client's versions of TLS are not among ssl.enabled.protocols",
}


class UnknownCertificateError(ValueError):
    """A certificate is trusted, but no rule says which user it belongs to."""


class TlsListener:
    """The current contexts of one listener. They are replaced as a whole: open connections keep theirs."""

    def __init__(self, name: str, config: Callable[[], BrokerConfig], audit: Audit | None = None) -> None:
        """Load keys and certificates; ConfigError if they are invalid."""
        self.name = name
        self._config = config
        self._audit = audit or Audit()
        self._rarely = Rarely()
        self.failures = 0
        self._counting = threading.Lock()
        # Held while files are read, so that an older state does not replace a newer one.
        self._refreshing = threading.Lock()
        self._settings = TlsSettings.of(config(), name)
        self._stamp = self._settings.stamp()
        try:
            self.context = self._settings.server_context()
            # For connections to other brokers at the same listener.
            self.client_context = self._settings.client_context()
            self._mapping = PrincipalMapping(config().for_listener(name, BrokerOptions.ssl_principal_mapping_rules))
        except (KeyStoreError, MappingRulesError) as error:
            raise ConfigError([Problem((BrokerOptions.listeners.name,), f"listener {name}: {error}")]) from error

    def __repr__(self) -> str:
        return f"<TlsListener {self.name} {self._settings}>"

    def refresh(self) -> None:
        """Load keys and certificates again if options or files have changed; keep the old ones if that fails."""
        with self._refreshing:
            self._refresh()

    def _refresh(self) -> None:
        settings = TlsSettings.of(self._config(), self.name)
        stamp = settings.stamp()
        if (settings, stamp) == (self._settings, self._stamp):
            return
        # Broken files are also read only once.
        self._settings, self._stamp = settings, stamp
        try:
            context, client_context = settings.server_context(), settings.client_context()
        except KeyStoreError as error:
            log.error(
                "certificates_not_reloaded", listener=self.name, error=str(error), hint="the old ones stay in use"
            )
            return
        self.context, self.client_context = context, client_context
        log.info("certificates_reloaded", listener=self.name)

    def principal(self, certificate: bytes | None) -> str:
        """Return the user of a client by its certificate; ValueError if the user is unknown."""
        if certificate is None:
            return ANONYMOUS
        name = subject_of(certificate)
        user = self._mapping.user(name)
        if user is None:
            raise UnknownCertificateError(f"ssl.principal.mapping.rules has no rule for {name!r}")
        return f"User:{user}"

    def note_login(self, session: Session) -> None:
        """Note that a client has authenticated with its certificate, if it has."""
        if session.principal != ANONYMOUS:
            self._audit.login(AuditSubject(session), "SSL")

    def failed(self, peer: str, error: Exception, first_bytes: bytes) -> None:
        """Count a failed handshake, and log it unless one of that peer failed the same way a moment ago."""
        # A client that speaks Kafka without TLS gets a line of its own: OpenSSL's reason is the same for any garbage.
        spoken = "Kafka" if first_bytes[:1] == _KAFKA_START else ""
        if self._rarely.allows(f"{peer} {getattr(error, 'reason', None) or type(error).__name__} {spoken}"):
            reason = getattr(error, "reason", None) or str(error)
            log.warning(
                "tls_handshake_failed", listener=self.name, peer=peer, error=reason, hint=_hint(error, first_bytes)
            )
        with self._counting:
            self.failures += 1


def _hint(error: Exception, first_bytes: bytes) -> str:
    if first_bytes and not first_bytes.startswith(_TLS_START):
        if first_bytes[:1] == _KAFKA_START:
            return "the client does not speak TLS: set its security.protocol to SSL or SASL_SSL"
        return f"the client does not speak TLS, but {describe_first_bytes(first_bytes)}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return _HINTS.get(error.reason, "see the client's log")
    return "the client closed the connection during the handshake: see its log for the reason"
