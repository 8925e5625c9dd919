"""How a client gets into a cluster: as anybody, or over TLS with a name and a password. Each library has its words."""

from __future__ import annotations

import json
import ssl
from dataclasses import asdict, dataclass
from typing import Any, Self

from ottla.client.net.security import sasl
from ottla.client.net.security.login import SaslLogin

MECHANISM = "SCRAM-SHA-512"


@dataclass(frozen=True, slots=True)
class Access:
    """What a client knows of the listeners; without a name they are open."""

    authority: str = ""
    username: str = ""
    password: str = ""

    @property
    def is_open(self) -> bool:
        """Whether nobody asks who we are."""
        return not self.username

    @property
    def librdkafka(self) -> dict[str, object]:
        """The options of confluent-kafka."""
        if self.is_open:
            return {}
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.authority,
            "sasl.mechanism": MECHANISM,
            "sasl.username": self.username,
            "sasl.password": self.password,
        }

    @property
    def keywords(self) -> dict[str, Any]:
        """The arguments of aiokafka's clients, and of ours."""
        if self.is_open:
            return {}
        return {
            "security_protocol": "SASL_SSL",
            "ssl_context": self._context(),
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": self.username,
            "sasl_plain_password": self.password,
        }

    @property
    def connection(self) -> dict[str, Any]:
        """The arguments of a blocking connection."""
        if self.is_open:
            return {}
        context = self._context()
        login = SaslLogin(MECHANISM, lambda: sasl.scram(MECHANISM, self.username, self.password))
        return {"tls": lambda: context, "login": login}

    def to_json(self) -> str:
        """For the command line of another process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The other way."""
        return cls(**json.loads(text))

    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.authority)


OPEN = Access()
