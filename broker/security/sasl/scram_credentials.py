"""The SCRAM credentials of users: in ZooKeeper below /config/users, beside the quotas of the same users.

Authentication asks for each login, so what was read is kept: a broker without ZooKeeper goes on with what it read last.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import structlog

from ottla.broker.cluster import znodes
from ottla.broker.cluster.configs import Configs
from ottla.protocol.entity_names import desanitized
from ottla.protocol.scram import ScramCredential, ScramMechanism

if TYPE_CHECKING:
    from ottla.broker.cluster.zookeeper import ZooKeeper

log = structlog.get_logger(__name__)

__all__ = ["ScramCredential", "ScramCredentials", "credentials_in"]

_USERS: Final = "users"


def credentials_in(config: Mapping[str, str], user: str) -> dict[str, ScramCredential]:
    """Return the credentials among what is set for a user, by mechanism; what cannot be read is left out."""
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
    """What each user's password is checked against. Any thread may ask, and none of those that do waits."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._configs = Configs(zookeeper)
        # Held by those who read from ZooKeeper, so that what was read first is not taken for the news.
        self._reading = threading.Lock()
        # By user, then by mechanism. The inner ones never change: they are replaced.
        self._by_user: dict[str, Mapping[str, ScramCredential]] = {}

    def get(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return the credential of a user for a mechanism such as `SCRAM-SHA-256`; None if there is none."""
        return self._by_user.get(user, {}).get(mechanism)

    def start(self) -> None:
        """Read what is set for all users."""
        with self._reading:
            self._by_user = self._read_all()

    def _read_all(self) -> dict[str, Mapping[str, ScramCredential]]:
        return {
            desanitized(name): found
            for name, config in self._configs.read_all(_USERS, skip_malformed=True).items()
            if (found := _credentials(name, config))
        }

    def entity_changed(self, entity_type: str, name: str) -> None:
        """Read anew what is set for a user."""
        if entity_type != _USERS or "/" in name:
            return
        with self._reading:
            try:
                found = _credentials(name, self._configs.read(_USERS, name))
            except znodes.MalformedNodeError as error:
                # One bad node locks out its own user alone.
                log.error("config_unreadable", reason=str(error))
                found = {}
            if found:
                self._by_user[desanitized(name)] = found
            else:
                self._by_user.pop(desanitized(name), None)

    def session_renewed(self) -> None:
        """Read everything: notes of changes may have come and gone meanwhile."""
        self.start()


def _credentials(name: str, config: Mapping[str, str]) -> dict[str, ScramCredential]:
    return {} if name == znodes.DEFAULT_ENTITY else credentials_in(config, desanitized(name))
