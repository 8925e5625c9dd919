"""A TLS context, with aiokafka's arguments."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from ssl import Purpose, SSLContext, create_default_context
from typing import Any

__all__ = ["create_ssl_context"]


def create_ssl_context(
    *,
    cafile: str | bytes | PathLike[str] | PathLike[bytes] | None = None,
    capath: str | bytes | PathLike[str] | PathLike[bytes] | None = None,
    cadata: Any = None,
    certfile: str | bytes | PathLike[str] | PathLike[bytes] | None = None,
    keyfile: str | bytes | PathLike[str] | PathLike[bytes] | None = None,
    password: Callable[[], str | bytes | bytearray] | str | bytes | bytearray | None = None,
) -> SSLContext:
    """Return a context for `ssl_context` that checks the certificate and the host name of brokers."""
    context = create_default_context(Purpose.SERVER_AUTH, cafile=cafile, capath=capath, cadata=cadata)
    if certfile is not None:
        context.load_cert_chain(certfile, keyfile, password)
    return context
