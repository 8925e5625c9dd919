"""Keys and certificates from files or options: PEM text, or PKCS#12 as Java's tools write it.

Everything becomes PEM text, because contexts need that. Keys stay in memory: OpenSSL needs a file, and gets one without
a name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

FILE_BYTES_MAX: Final = 1024 * 1024

_PEM_START: Final = b"-----BEGIN "
_PEM_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\s]*)-----END \1-----")
_JKS_START: Final = b"\xfe\xed\xfe\xed"


class KeyStoreError(Exception):
    """A store cannot be read. The text names the file and says what to do, and contains no secret."""


def read_file(path: str) -> bytes:
    """Read a store; KeyStoreError if it is missing or too large."""
    try:
        if Path(path).stat().st_size > FILE_BYTES_MAX:
            raise KeyStoreError(f"{path} is too large for keys and certificates")
        return Path(path).read_bytes()
    except OSError as error:
        raise KeyStoreError(f"{path} cannot be read: {error.strerror}") from error


def key_pem(path: str, kind: str, password: str | None) -> bytes:
    """Return the private key in a file and its certificates, the key's own first."""
    data = _checked(path, kind)
    if kind == "PEM":
        return data
    store = _pkcs12(path, data, password)
    from cryptography.hazmat.primitives import serialization

    if store.key is None or store.cert is None:
        raise KeyStoreError(f"{path} has no private key with a certificate")
    key: bytes = store.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return key + _certificates_pem([store.cert, *store.additional_certs])


def pem_of_text(text: str) -> bytes:
    """Return PEM as OpenSSL needs it, from the text of an option, in which line breaks are often lost."""
    blocks = [
        f"-----BEGIN {label}-----\n" + "\n".join(wrap("".join(body.split()), 64)) + f"\n-----END {label}-----\n"
        for label, body in _PEM_BLOCK.findall(text)
    ]
    return "".join(blocks).encode() or text.encode()


def trusted_pem(path: str, kind: str, password: str | None) -> bytes:
    """Return the certificates in a file."""
    data = _checked(path, kind)
    if kind == "PEM":
        return data
    store = _pkcs12(path, data, password)
    own = [] if store.cert is None else [store.cert]
    if not own and not store.additional_certs:
        raise KeyStoreError(f"{path} has no certificates")
    return _certificates_pem([*own, *store.additional_certs])


def _checked(path: str, kind: str) -> bytes:
    data = read_file(path)
    if data.startswith(_JKS_START):
        raise KeyStoreError(
            f"{path} is a JKS file: convert it with `keytool -importkeystore -deststoretype pkcs12 -srckeystore {path} "
            "-destkeystore FILE`"
        )
    is_pem = _PEM_START in data
    if is_pem != (kind == "PEM"):
        found = "PEM" if is_pem else "not PEM"
        raise KeyStoreError(
            f"{path} is {found}, but its type is set to {kind}: set ssl.keystore.type or ssl.truststore.type"
        )
    return data


def _pkcs12(path: str, data: bytes, password: str | None) -> Any:
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as error:
        raise KeyStoreError(
            f"{path} is PKCS12, which needs another package: pip install 'ottla[security]', or use PEM files"
        ) from error
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        raise KeyStoreError(f"{path} is damaged, or its password is wrong") from error


def _certificates_pem(certificates: list[Any]) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return b"".join(
        # An entry of a store with its name, or a bare certificate.
        getattr(entry, "certificate", entry).public_bytes(serialization.Encoding.PEM)
        for entry in certificates
    )


@contextmanager
def as_file(data: bytes) -> Iterator[str]:
    """Yield a path where only this process can read the data, until the block ends."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("keys", os.MFD_CLOEXEC)
        try:
            os.write(fd, data)
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
        return
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        yield file.name
