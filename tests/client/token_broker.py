"""A broker whose clients log in, and that gives them delegation tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tests.kit.broker_process import BrokerProcess

PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
ADMIN, PASSWORD = "admin", "planted-password-51d2"
# For all others, of whom there are two.
OTHERS: Final = ("alice", "bob")
SECRET: Final = "planted-secret-90af"


class TokenBroker(BrokerProcess):
    """The broker; `admin` is a super user, the others have what ACLs allow."""

    def __init__(self, folder: Path, zookeeper: str, *overrides: str, **fields: Any) -> None:
        users = " ".join(f'user_{name}="{PASSWORD}"' for name in (ADMIN, *OTHERS))
        login = f'{PLAIN} required username="{ADMIN}" password="{PASSWORD}" {users};'
        super().__init__(
            folder,
            zookeeper,
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol=PLAIN",
            "ottla.sasl.plain.allow.without.tls=true",
            f"listener.name.sasl_plaintext.plain.sasl.jaas.config={login}",
            # Kafka's brokers want a login for each mechanism; nobody logs in elsewhere with it.
            f"listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config={SCRAM} required;",
            f"listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config={SCRAM} required;",
            "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
            f"super.users=User:{ADMIN}",
            f"delegation.token.secret.key={SECRET}",
            *overrides,
            protocol="SASL_PLAINTEXT",
            **fields,
        )

    def options(self, user: str = ADMIN) -> dict[str, Any]:
        """Return the options of our clients for a user."""
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": user,
            "sasl_plain_password": PASSWORD,
        }

    def token_options(self, token: Any, mechanism: str = "SCRAM-SHA-512") -> dict[str, Any]:
        """Return the options of our clients for a token."""
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": token.token_id,
            "sasl_plain_password": token.hmac,
            "sasl_scram_token_auth": True,
        }

    @property
    def properties(self) -> str:
        """The same as text for the administrator, as Java's clients take it."""
        return _properties(self.bootstrap, "PLAIN", f'{PLAIN} required username="{ADMIN}" password="{PASSWORD}";')

    def token_properties(self, token: Any, mechanism: str = "SCRAM-SHA-512") -> str:
        """The same for a token."""
        login = f'{SCRAM} required username="{token.token_id}" password="{token.hmac}" tokenauth="true";'
        return _properties(self.bootstrap, mechanism, login)


def _properties(bootstrap: str, mechanism: str, login: str) -> str:
    lines = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": login,
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())
