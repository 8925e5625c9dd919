"""What `ottla up --secure` creates: certificates, passwords, the brokers' options, and option files for clients.

All of it is in the folder `security` of the cluster's directory, and is created once. Users that are created later use
SCRAM. The administrator and the brokers must exist before ZooKeeper has any users, so they use PLAIN over TLS.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from ottla.client.local_cluster.certificates import make_certificates, write_private
from ottla.client.local_cluster.errors import ClusterError
from ottla.client.local_cluster.properties import write_properties
from ottla.client.local_cluster.zookeeper import ServerSecurity, login_file

PROTOCOL: Final = "SASL_SSL"
ADMINISTRATOR: Final = "admin"
_BROKER: Final = "broker"
_MECHANISM: Final = "PLAIN"
_PASSWORD_BYTES: Final = 18


class _Passwords(msgspec.Struct, frozen=True):
    administrator: str
    broker: str
    # Of the brokers' login to ZooKeeper. Clusters of earlier versions have none.
    zookeeper: str = ""


class ClusterSecurity:
    """The secrets of one cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = folder / "ca.pem"
        self.client_properties = folder / "client.properties"
        self.librdkafka_properties = folder / "librdkafka.conf"
        self._broker = folder / "broker.pem"
        self._passwords_file = folder / "passwords.json"
        self.zookeeper_properties = folder / "zookeeper.properties"
        self._zookeeper_login = folder / "zookeeper.jaas"

    def prepare(self, bootstrap_servers: str, names: Iterable[str] = ()) -> None:
        """Create missing files, and write the current broker addresses to the clients' files.

        `names` are additional host names for a new certificate.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # The authority's certificate is written last: if it exists, so do the others.
            if not self.authority.exists():
                self._write_passwords(_Passwords(*(secrets.token_urlsafe(_PASSWORD_BYTES) for _ in range(3))))
                make_certificates(self.authority, self._broker, names)
            elif not self._passwords().zookeeper:
                password = secrets.token_urlsafe(_PASSWORD_BYTES)
                self._write_passwords(msgspec.structs.replace(self._passwords(), zookeeper=password))
            self._write_client_files(self.folder, bootstrap_servers, str(self.authority))
        except OSError as error:
            raise ClusterError(f"Cannot use {self.folder}: {error.strerror}.") from error

    def export(self, folder: Path, bootstrap_servers: str) -> None:
        """Write a folder to copy for clients elsewhere; they run inside it, because its certificate has no path."""
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            (folder / self.authority.name).write_bytes(self.authority.read_bytes())
            self._write_client_files(folder, bootstrap_servers, self.authority.name)
        except OSError as error:
            raise ClusterError(f"Cannot use {folder}: {error.strerror}.") from error

    def zookeeper_server(self) -> ServerSecurity:
        """Return what the cluster's own ZooKeeper needs, and write its login file."""
        users = {_BROKER: self._passwords().zookeeper}
        write_private(self._zookeeper_login, login_file(users).encode())
        return ServerSecurity(self._broker, self._zookeeper_login)

    def zookeeper_options(self) -> dict[str, str]:
        """Return the brokers' options for a ZooKeeper with this login, without secrets."""
        return {
            "zookeeper.set.acl": "true",
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.type": "PEM",
            "zookeeper.ssl.truststore.location": str(self.authority),
        }

    def zookeeper_secrets(self) -> dict[str, str]:
        """Return the login of brokers to ZooKeeper."""
        module = "org.apache.zookeeper.server.auth.DigestLoginModule"
        password = self._passwords().zookeeper
        return {
            "ottla.zookeeper.sasl.jaas.config": f'{module} required username="{_BROKER}" password="{password}";',
        }

    def write_zookeeper_properties(self, connect: str) -> None:
        """Write the options for commands that talk to ZooKeeper themselves."""
        options = {"zookeeper.connect": connect, **self.zookeeper_options(), **self.zookeeper_secrets()}
        write_properties(self.zookeeper_properties, options)

    def broker_options(self) -> dict[str, str]:
        """Return the brokers' options that have no secrets."""
        return {
            "security.inter.broker.protocol": PROTOCOL,
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": _MECHANISM,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:{ADMINISTRATOR};User:{_BROKER}",
        }

    def visitor_options(self) -> dict[str, str]:
        """Return the options of a client without a user, which the console takes."""
        return {
            "security.protocol": PROTOCOL,
            "sasl.mechanism": _MECHANISM,
            "ssl.truststore.location": str(self.authority),
        }

    def broker_secrets(self, listeners: Sequence[str]) -> Mapping[str, str]:
        """Return the brokers' options with secrets; they belong in files, not on a visible command line."""
        passwords = self._passwords()
        users = {ADMINISTRATOR: passwords.administrator, _BROKER: passwords.broker}
        known = " ".join(f'user_{name}="{password}"' for name, password in users.items())
        login = _login(_BROKER, passwords.broker, known)
        return {f"listener.name.{listener.lower()}.plain.sasl.jaas.config": login for listener in listeners}

    def _write_client_files(self, folder: Path, bootstrap_servers: str, authority: str) -> None:
        password = self._passwords().administrator
        common = {"bootstrap.servers": bootstrap_servers, "security.protocol": PROTOCOL, "sasl.mechanism": _MECHANISM}
        write_properties(
            folder / self.client_properties.name,
            {
                **common,
                "sasl.jaas.config": _login(ADMINISTRATOR, password),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": authority,
            },
        )
        write_properties(
            folder / self.librdkafka_properties.name,
            {
                **common,
                "sasl.username": ADMINISTRATOR,
                "sasl.password": password,
                "ssl.ca.location": authority,
            },
        )

    def _write_passwords(self, passwords: _Passwords) -> None:
        write_private(self._passwords_file, msgspec.json.encode(passwords))

    def _passwords(self) -> _Passwords:
        try:
            return msgspec.json.decode(self._passwords_file.read_bytes(), type=_Passwords)
        except (OSError, msgspec.MsgspecError) as error:
            raise ClusterError(
                f"Cannot read {self._passwords_file}: {error}. Remove {self.folder} to create everything again."
            ) from error


def _login(username: str, password: str, users: str = "") -> str:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return f'{module} required username="{username}" password="{password}" {users}'.rstrip() + ";"
