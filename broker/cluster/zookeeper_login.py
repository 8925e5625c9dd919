"""How this process proves to ZooKeeper who it is."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct


@dataclass(frozen=True, slots=True)
class DigestLogin:
    """A user that ZooKeeper's servers know, for SASL with DIGEST-MD5."""

    username: str
    password: str = field(repr=False)


class ZooKeeperLogin(Struct, frozen=True):
    """The login of a session, and who may use the nodes that it creates. By default there is none, as in Kafka."""

    digest: DigestLogin | None = None
    # Makes the context for a connection with TLS; called for each connection, because certificates are renewed.
    # Raises OSError if its files cannot be used.
    tls: Callable[[], ssl.SSLContext] | None = None
    # Whether nodes that are created belong to the login.
    sets_acls: bool = False


NO_LOGIN: Final = ZooKeeperLogin()
