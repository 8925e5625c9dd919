"""Certificates of a throw-away CA, as files and as options."""

from __future__ import annotations

import ssl
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


class Certificates:
    """A CA with a certificate for the broker, and for clients as they are asked for."""

    def __init__(self, folder: Path, *, broker_names: tuple[str, ...] = ("127.0.0.1", "localhost")) -> None:
        self.folder = folder
        self.ca = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self.truststore = folder / "ca.pem"
        self.ca.cert_pem.write_to_path(self.truststore)
        self.keystore = folder / "broker.pem"
        self.broker = self.write(self.keystore, self.ca, *broker_names)

    @staticmethod
    def write(path: Path, ca: trustme.CA, *names: str, common_name: str | None = None) -> trustme.LeafCert:
        """Write a new certificate with its key into a file."""
        leaf = ca.issue_cert(*names, common_name=common_name, key_type=trustme.KeyType.ECDSA)
        path.write_bytes(_pkcs8(leaf.private_key_pem.bytes()) + b"".join(pem.bytes() for pem in leaf.cert_chain_pems))
        return leaf

    def options(self, prefix: str = "") -> dict[str, str]:
        """The options of a broker that uses them."""
        return {
            f"{prefix}ssl.keystore.type": "PEM",
            f"{prefix}ssl.keystore.location": str(self.keystore),
            f"{prefix}ssl.truststore.type": "PEM",
            f"{prefix}ssl.truststore.location": str(self.truststore),
        }

    def client_context(self, *, common_name: str | None = None) -> ssl.SSLContext:
        """The context of a client that trusts the CA; with a name it has a certificate of its own."""
        context = ssl.create_default_context(cafile=str(self.truststore))
        if common_name is not None:
            own = self.folder / f"{common_name}.pem"
            self.write(own, self.ca, f"{common_name}@example.org", common_name=common_name)
            context.load_cert_chain(own)
        return context


def _pkcs8(key: bytes) -> bytes:
    """The only form in which Java reads a key in PEM."""
    return load_pem_private_key(key, None).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
