"""What a broker knows of who asks, and of what they may do: put together here, used by network and handlers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.security.acls.acl_store import AclStore
from ottla.broker.security.acls.authorizer import AclAuthorizer, Authorizer
from ottla.broker.security.listener_security import Listeners
from ottla.broker.security.sasl.scram_credentials import ScramCredentials

if TYPE_CHECKING:
    from ottla.broker.cluster.zookeeper import ZooKeeper
    from ottla.broker.config import BrokerConfig


class Security:
    """Credentials and rights, as far as ZooKeeper and the configuration have them."""

    def __init__(self, zookeeper: ZooKeeper, config: Callable[[], BrokerConfig]) -> None:
        self._zookeeper = zookeeper
        self._config = config
        self.scram_credentials = ScramCredentials(zookeeper)
        # How clients are let in, and how we are at other brokers: as one of them, and as their controller.
        self.listeners = Listeners(config, self.scram_credentials)
        self.connector = self.listeners.connector(config().inter_broker_listener.name)
        self.control_plane_connector = self.connector
        control_plane = config().control_plane_listener_name
        if control_plane:
            self.control_plane_connector = self.listeners.connector(control_plane.upper())
        # Who may do what; without an authorizer everybody everything, and there are no ACLs.
        self.authorizer = Authorizer()
        self.acls: AclStore | None = None
        options = config()
        if options.authorizer_class_name:
            by_acls = AclAuthorizer(options.super_users, allow_if_no_acl=options.allow_everyone_if_no_acl_found)
            self.authorizer, self.acls = by_acls, AclStore(zookeeper, by_acls.use)

    def start(self) -> None:
        """Read what is known before any request is handled, and hear of changes from then on."""
        self.scram_credentials.start()
        self.listeners.start()
        if self.acls is not None:
            self.acls.start()

    def entity_changed(self, entity_type: str, name: str) -> None:
        """Read anew what is set for a user."""
        self.scram_credentials.entity_changed(entity_type, name)

    def configure(self) -> None:
        """Take the options that changed while the broker runs."""
        self.listeners.configure()

    def session_expired(self) -> None:
        """Go on with what was read last."""

    def session_renewed(self) -> None:
        """Watch again in the new session, and read what was missed."""
        self.scram_credentials.session_renewed()
        if self.acls is not None:
            self.acls.session_renewed()

    def close(self) -> None:
        """Hear of no more changes."""
        self.listeners.close()
        if self.acls is not None:
            self.acls.close()
