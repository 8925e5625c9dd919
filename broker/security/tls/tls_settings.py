"""The TLS options of one listener, and the contexts made from them."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.broker.config.doubts import is_tls_13_suite
from ottla.broker.config.kinds import Password
from ottla.broker.config.names import listener_prefix
from ottla.broker.config.rows.broker import BrokerOptions
from ottla.broker.security.tls.key_stores import KeyStoreError, as_file, key_pem, pem_of_text, trusted_pem

if TYPE_CHECKING:
    from ottla.broker.config import BrokerConfig

_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_NO_MATCH: Final = "the private key and its first certificate do not belong together"
_REASONS: Final = {
    "KEY_VALUES_MISMATCH": _NO_MATCH,
    "KEY_TYPE_MISMATCH": _NO_MATCH,
    "BAD_DECRYPT": "ssl.key.password is not the password of the private key",
}

# Modification time in nanoseconds, size and inode of each file; None for a missing one.
Stamp = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The TLS options of one listener; equal options with unchanged files make equal contexts."""

    keystore_type: str
    keystore_location: str | None
    keystore_password: Password | None
    keystore_key: Password | None
    keystore_certificate_chain: Password | None
    key_password: Password | None
    truststore_type: str
    truststore_location: str | None
    truststore_password: Password | None
    truststore_certificates: Password | None
    client_auth: str
    enabled_protocols: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    endpoint_identification_algorithm: str

    @classmethod
    def of(cls, config: BrokerConfig, listener: str) -> TlsSettings:
        """Look up the options, those of the listener first.

        If clients authenticate with SASL, they need certificates only if the listener's own option says so.
        """
        options = BrokerOptions.rows()
        values = {
            name: config.for_listener(listener, options["ssl." + name.replace("_", ".")])
            for name in cls.__dataclass_fields__
        }
        protocol = config.listener_security_protocol_map.get(listener)
        own = f"{listener_prefix(listener)}{BrokerOptions.ssl_client_auth.name}"
        if protocol is not None and protocol.has_sasl and not any(own in layer.settings for layer in config.layers):
            values["client_auth"] = "none"
        return cls(**values)

    @classmethod
    def of_zookeeper(cls, config: BrokerConfig) -> TlsSettings:
        """Look up the options of the connection to ZooKeeper."""
        keystore, truststore = config.zookeeper_ssl_keystore_location, config.zookeeper_ssl_truststore_location
        return cls(
            keystore_type=config.zookeeper_ssl_keystore_type or _type_by_name(keystore),
            keystore_location=keystore,
            keystore_password=config.zookeeper_ssl_keystore_password,
            keystore_key=None,
            keystore_certificate_chain=None,
            key_password=config.zookeeper_ssl_keystore_password,
            truststore_type=config.zookeeper_ssl_truststore_type or _type_by_name(truststore),
            truststore_location=truststore,
            truststore_password=config.zookeeper_ssl_truststore_password,
            truststore_certificates=None,
            client_auth="none",
            enabled_protocols=config.zookeeper_ssl_enabled_protocols or tuple(_VERSIONS),
            cipher_suites=config.zookeeper_ssl_cipher_suites or (),
            endpoint_identification_algorithm=config.zookeeper_ssl_endpoint_identification_algorithm,
        )

    def stamp(self) -> Stamp:
        """Return what tells the current files from other versions of them."""
        return tuple(_stamp(path) for path in (self.keystore_location, self.truststore_location) if path)

    def server_context(self) -> ssl.SSLContext:
        """Make the context of a listener; KeyStoreError if its keys or certificates are invalid."""
        context = self._limited(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        # A client must not trigger renegotiation: a key exchange costs us more than the client.
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        if not self._load_key(context):
            raise KeyStoreError("a listener with TLS needs a key: set ssl.keystore.location or ssl.keystore.key")
        context.verify_mode = _CLIENT_AUTH[self.client_auth]
        if context.verify_mode is not ssl.CERT_NONE and not self._load_trusted(context):
            raise KeyStoreError(f"ssl.client.auth={self.client_auth} needs ssl.truststore.location or .certificates")
        return context

    def client_context(self) -> ssl.SSLContext:
        """Make the context for connections to other brokers at the listener of this name."""
        context = self._limited(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        context.check_hostname = bool(self.endpoint_identification_algorithm)
        self._load_key(context)
        if not self._load_trusted(context):
            context.load_default_certs()
        return context

    def client_pem(self) -> tuple[bytes, bytes]:
        """Return the trusted certificates and the key as PEM text; empty if there are none. Raises KeyStoreError."""
        trusted, key = self._trusted_pem(), self._key_pem()
        return (b"" if trusted is None else trusted[1]), (b"" if key is None else key[1])

    def _limited(self, context: ssl.SSLContext) -> ssl.SSLContext:
        versions = {_VERSIONS[name] for name in self.enabled_protocols}
        if self.cipher_suites:
            # As in Java, a version without a suite in the list is not spoken.
            older = [suite for suite in self.cipher_suites if not is_tls_13_suite(suite)]
            versions &= {
                *({ssl.TLSVersion.TLSv1_2} if older else ()),
                *({ssl.TLSVersion.TLSv1_3} if len(older) < len(self.cipher_suites) else ()),
            }
            if not versions:
                raise KeyStoreError("ssl.cipher.suites has no suite for the versions in ssl.enabled.protocols")
            _set_ciphers(context, older)
        context.minimum_version, context.maximum_version = min(versions), max(versions)
        return context

    def _key_pem(self) -> tuple[str, bytes] | None:
        """Return where the key is from, and the key with its certificates."""
        if self.keystore_key:
            text = f"{_shown(self.keystore_key)}\n{_shown(self.keystore_certificate_chain) or ''}"
            return "ssl.keystore.key with ssl.keystore.certificate.chain", pem_of_text(text)
        if self.keystore_location:
            pem = key_pem(self.keystore_location, self.keystore_type, _shown(self.keystore_password))
            return self.keystore_location, pem
        return None

    def _trusted_pem(self) -> tuple[str, bytes] | None:
        """Return where the trusted certificates are from, and the certificates."""
        if self.truststore_certificates:
            return "ssl.truststore.certificates", pem_of_text(self.truststore_certificates.value)
        if self.truststore_location:
            pem = trusted_pem(self.truststore_location, self.truststore_type, _shown(self.truststore_password))
            return self.truststore_location, pem
        return None

    def _load_key(self, context: ssl.SSLContext) -> bool:
        found = self._key_pem()
        if found is None:
            return False
        origin, pem = found
        try:
            with as_file(pem) as path:
                # Never None: OpenSSL would ask for a missing password on the terminal.
                context.load_cert_chain(path, password=_shown(self.key_password) or "")
        except OSError as error:
            raise KeyStoreError(f"{origin}: {_reason(error)}") from error
        return True

    def _load_trusted(self, context: ssl.SSLContext) -> bool:
        found = self._trusted_pem()
        if found is None:
            return False
        origin, pem = found
        try:
            context.load_verify_locations(cadata=pem.decode("ascii", errors="ignore"))
        except OSError as error:
            raise KeyStoreError(f"{origin} has no readable certificates") from error
        return True


def _set_ciphers(context: ssl.SSLContext, suites: Sequence[str]) -> None:
    """Accept these suites of TLS 1.2. OpenSSL ignores unknown ones as long as it knows another."""
    for suite in suites:
        try:
            context.set_ciphers(openssl_name(suite))
        except ssl.SSLError as error:
            raise KeyStoreError(f"ssl.cipher.suites has {suite}, which is not a known suite") from error
    if suites:
        context.set_ciphers(":".join(map(openssl_name, suites)))


def openssl_name(suite: str) -> str:
    """Translate the standard name of a suite, as Kafka uses it, to OpenSSL's; leave OpenSSL's names as they are."""
    exchange, separator, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    if not separator:
        return suite
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC", "")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    parts = [cipher] if exchange == "RSA" else [exchange, cipher]
    return "-".join(parts).replace("_", "-")


def _reason(error: OSError) -> str:
    """Say what is wrong without revealing any part of a key."""
    reason = getattr(error, "reason", None)
    if not reason:
        return "a private key with its certificates is expected, and the password of the key in ssl.key.password"
    return _REASONS.get(reason, f"not usable for TLS ({reason})")


def _type_by_name(location: str | None) -> str:
    return "PEM" if location is not None and location.endswith(".pem") else "PKCS12"


def _shown(secret: Password | None) -> str | None:
    return None if secret is None else secret.value


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
