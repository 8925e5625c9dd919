"""A certificate authority for one cluster, and the certificate of its brokers; needs `cryptography`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.client.local_cluster.errors import ClusterError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, CertificateBuilder, Name

_DAYS: Final = 825
# The clocks of clients may be behind.
_EARLIER: Final = timedelta(hours=1)
_NAMES: Final = ("localhost",)
_ADDRESSES: Final = ("127.0.0.1", "::1")


def make_certificates(authority: Path, broker: Path, names: Iterable[str] = ()) -> None:
    """Write the authority's certificate, and the brokers' key and certificate in one file that only its owner can read.

    The certificate is valid for the names of this machine and for `names`. The authority's key is not kept, so nobody
    can create another certificate that clients of this cluster trust.
    """
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise ClusterError('--secure creates certificates, which needs: pip install "ottla[security]"') from error

    authority_key, broker_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority_certificate = _sign_authority(authority_key)
    broker_certificate = _sign_broker(broker_key, (*_NAMES, *names), authority_certificate, authority_key)
    pem = serialization.Encoding.PEM
    private = broker_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    write_private(broker, private + broker_certificate.public_bytes(pem))
    authority.write_bytes(authority_certificate.public_bytes(pem))


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)


def _sign_authority(key: EllipticCurvePrivateKey) -> Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    name = _name("Ottla local cluster")
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        _begun(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _sign_broker(
    key: EllipticCurvePrivateKey,
    names: Iterable[str],
    authority: Certificate,
    authority_key: EllipticCurvePrivateKey,
) -> Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID

    hosts = [x509.DNSName(name) for name in names]
    addresses = [x509.IPAddress(ip_address(address)) for address in _ADDRESSES]
    uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    return (
        _begun(_name("broker"), authority.subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([*hosts, *addresses]), critical=False)
        .add_extension(uses, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def _begun(subject: Name, issuer: Name, key: EllipticCurvePrivateKey) -> CertificateBuilder:
    from cryptography import x509

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + timedelta(days=_DAYS))
    )


def _name(common_name: str) -> Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
