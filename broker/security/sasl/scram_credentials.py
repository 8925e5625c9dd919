"""The SCRAM credentials of users. They are in ZooKeeper below /config/users, beside the quotas of the same users.

Every login needs them, so they are kept in memory. Without ZooKeeper, a broker continues with what it read last. The
secret from which credentials of unknown users are invented is in a node of its own. The first broker creates it.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import structlog

from ottla.broker.cluster import znodes
from ottla.broker.cluster.configs import Configs
from ottla.broker.cluster.operations import NodeExistsError
from ottla.broker.security.sasl.invented_credentials import SECRET_BYTES, CredentialStyle
from ottla.protocol.entity_names import desanitized
from ottla.protocol.scram import ScramCredential, ScramMechanism

if TYPE_CHECKING:
    from ottla.broker.cluster.zookeeper import ZooKeeper

log = structlog.get_logger(__name__)

__all__ = ["ScramCredential", "ScramCredentials", "credentials_in"]

_USERS: Final = "users"


def credentials_in(config: Mapping[str, str], user: str) -> dict[str, ScramCredential]:
    """Return the credentials among a user's options, by mechanism, without unreadable ones."""
    found = {}
    for mechanism in ScramMechanism:
        text = config.get(mechanism.label)
        if text is None:
            continue
        try:
            found[mechanism.label] = ScramCredential.parse(text)
        except ValueError as error:
            log.error("scram_credential_unreadable", user=user, mechanism=mechanism.label, reason=str(error))
    return found


class ScramCredentials:
    """The credentials that passwords are checked against. Any thread may ask, and never has to wait."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._configs = Configs(zookeeper)
        # Held while reading from ZooKeeper, so that an older reading does not replace a newer one.
        self._reading = threading.Lock()
        # By user, then by mechanism. The inner mappings are never changed, only replaced.
        self._by_user: dict[str, Mapping[str, ScramCredential]] = {}
        # The usual style of these credentials, by mechanism.
        self._styles: dict[str, CredentialStyle] = {}
        # What credentials of unknown users are made of; that of the cluster, once it is read.
        self.secret = secrets.token_bytes(SECRET_BYTES)

    def style(self, mechanism: str) -> CredentialStyle:
        """Return what most credentials for a mechanism look like."""
        return self._styles.get(mechanism, CredentialStyle())

    def get(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return the credential of a user for a mechanism such as `SCRAM-SHA-256`; None if there is none."""
        return self._by_user.get(user, {}).get(mechanism)

    def start(self) -> None:
        """Read the credentials of all users."""
        with self._reading:
            self.secret = self._read_secret()
            self._by_user = self._read_all()
            self._note_styles()

    def _read_secret(self) -> bytes:
        """Return the secret of the cluster; create it if no broker has done so."""
        path = znodes.LOGIN_SECRET
        while (node := self._zookeeper.read_or_none(path)) is None:
            self._zookeeper.ensure_path(znodes.OTTLA)
            try:
                self._zookeeper.create(path, secrets.token_bytes(SECRET_BYTES))
            except NodeExistsError:
                continue
        return node.data

    def _note_styles(self) -> None:
        by_user = self._by_user.values()
        for mechanism in ScramMechanism:
            known = [found[mechanism.label] for found in by_user if mechanism.label in found]
            self._styles[mechanism.label] = CredentialStyle.usual(known)

    def _read_all(self) -> dict[str, Mapping[str, ScramCredential]]:
        return {
            desanitized(name): found
            for name, config in self._configs.read_all(_USERS, skip_malformed=True).items()
            if (found := _credentials(name, config))
        }

    def entity_changed(self, entity_type: str, name: str) -> None:
        """Read the credentials of a user again."""
        if entity_type != _USERS or "/" in name:
            return
        with self._reading:
            try:
                found = _credentials(name, self._configs.read(_USERS, name))
            except znodes.MalformedNodeError as error:
                # One malformed node locks out only its own user.
                log.error("config_unreadable", reason=str(error))
                found = {}
            if found:
                self._by_user[desanitized(name)] = found
            else:
                self._by_user.pop(desanitized(name), None)
            self._note_styles()

    def session_renewed(self) -> None:
        """Read everything, because notes of changes may have come and gone meanwhile."""
        self.start()


def _credentials(name: str, config: Mapping[str, str]) -> dict[str, ScramCredential]:
    return {} if name == znodes.DEFAULT_ENTITY else credentials_in(config, desanitized(name))
