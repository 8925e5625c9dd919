"""One broker with a listener for each way to be reached, and what clients need to get in there.

PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL are what they are called. MUTUAL is SSL with certificates on both sides;
EXPIRED and ELSEWHERE are SSL with a certificate that is too old, and with one for another host.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import jwt
import trustme
from cryptography.hazmat.primitives.asymmetric import ec
from tests.broker.security.certificates import Certificates
from tests.kit.broker_process import BrokerProcess

from ottla.client.admin.security_results import ScramCredentialUpsertion
from ottla.client.cli.access.offline_users import store
from ottla.protocol.scram import ScramMechanism

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROTOCOLS: Final = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "MUTUAL": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",
}
USER: Final = "alice"
# Recognisable, wherever they might show.
PASSWORD: Final = "planted-password-5e1f"
KEYSTORE_PASSWORD: Final = "planted-keystore-77ac"
TOKEN_SECONDS: Final = 3600
STORE_TIMEOUT_S: Final = 60.0

_LOGIN: Final = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'


@dataclass(frozen=True, slots=True)
class Access:
    """How a client tries to get in."""

    bootstrap: str
    protocol: str
    ca: Path
    # Of the client, with its key.
    certificate: Path | None = None
    mechanism: str | None = None
    user: str = USER
    password: str = PASSWORD
    token: str = ""


class Tokens:
    """Somebody who signs tokens, known to the broker by a file with the public key."""

    def __init__(self, keys: Path) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key()))
        keys.write_text(json.dumps({"keys": [{**public, "kid": "1", "alg": "ES256"}]}))

    def token(self, user: str = USER) -> str:
        """Sign that whoever has this is some user."""
        expires = int(time.time()) + TOKEN_SECONDS
        return jwt.encode({"sub": user, "exp": expires}, self._key, "ES256", headers={"kid": "1"})


class SecureBroker(BrokerProcess):
    """The broker; its options with secrets stand in a file, as they should."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.certificates = Certificates(folder)
        self.other_ca = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self.tokens = Tokens(folder / "jwks.json")
        self.properties = folder / "server.properties"
        self.client_certificate = folder / "alice.pem"
        Certificates.write(self.client_certificate, self.certificates.ca, "alice@example.org", common_name=USER)
        self.untrusted_ca = folder / "other-ca.pem"
        self.other_ca.cert_pem.write_to_path(self.untrusted_ca)
        self.expired_certificate = folder / "expired.pem"
        self._write_expired(self.expired_certificate, "127.0.0.1")
        # The key of one listener stands in the options themselves.
        self.inline = self.certificates.ca.issue_cert("elsewhere.example.org", key_type=trustme.KeyType.ECDSA)
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in self._secure_options().items()))
        self.ports: dict[str, int] = {}
        super().__init__(folder, zookeeper)

    def store_users(self) -> None:
        """Write the credentials of SCRAM to ZooKeeper."""
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            wanted = ScramCredentialUpsertion(user=USER, mechanism=mechanism, password=PASSWORD, iterations=4096)
            store(self.zookeeper, [wanted], STORE_TIMEOUT_S)

    def access(self, listener: str, **changes: Any) -> Access:
        """Say how to get in at a listener, but for what is changed."""
        return Access(
            **{
                "bootstrap": f"{self.host}:{self.ports[listener]}",
                "protocol": PROTOCOLS[listener],
                "ca": self.certificates.truststore,
                "certificate": self.client_certificate if listener == "MUTUAL" else None,
                "mechanism": "SCRAM-SHA-512" if listener.startswith("SASL") else None,
                "token": self.tokens.token(),
                **changes,
            }
        )

    def _write_expired(self, path: Path, *names: str) -> None:
        now = datetime.now(UTC)
        leaf = self.certificates.ca.issue_cert(
            *names,
            common_name=USER,
            not_before=now - timedelta(days=2),
            not_after=now - timedelta(days=1),
            key_type=trustme.KeyType.ECDSA,
        )
        path.write_bytes(leaf.private_key_and_cert_chain_pem.bytes())

    def _secure_options(self) -> dict[str, str]:
        inline_key = self.inline.private_key_pem.bytes().decode()
        inline_chain = "".join(blob.bytes().decode() for blob in self.inline.cert_chain_pems)
        return {
            **self.certificates.options(),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.expired.ssl.keystore.location": str(self.expired_certificate),
            "listener.name.elsewhere.ssl.keystore.location": "",
            "listener.name.elsewhere.ssl.keystore.key": inline_key.replace("\n", "\\n"),
            "listener.name.elsewhere.ssl.keystore.certificate.chain": inline_chain.replace("\n", "\\n"),
            "listener.name.elsewhere.ssl.keystore.password": KEYSTORE_PASSWORD,
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.oauthbearer.jwks.endpoint.url": (self.properties.parent / "jwks.json").as_uri(),
            "listener.name.sasl_ssl.plain.sasl.jaas.config": _LOGIN,
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": _LOGIN,
            "ottla.sasl.plain.allow.without.tls": "true",
        }

    def _choose_ports(self) -> None:
        super()._choose_ports()
        taken = {self.port, self.http_port}
        self.ports = {"PLAINTEXT": self.port}
        for listener in PROTOCOLS:
            if listener not in self.ports:
                self.ports[listener] = self.where.free_port(taken)
                taken.add(self.ports[listener])

    def _command(self) -> list[str]:
        listeners = ",".join(f"{name}://{self.host}:{port}" for name, port in self.ports.items())
        protocols = ",".join(f"{name}:{protocol}" for name, protocol in PROTOCOLS.items())
        own = (f"listeners={listeners}", f"listener.security.protocol.map={protocols}")
        return [*super()._command(), *(part for option in own for part in ("--override", option))]

    def _program(self) -> list[str]:
        return [*super()._program(), "--config", str(self.properties)]
