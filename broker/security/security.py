"""Authentication and authorization, put together for network and handlers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.security.acls.acl_store import AclStore
from ottla.broker.security.acls.authorizer import AclAuthorizer, Authorizer
from ottla.broker.security.audit.audit import Audit, to_log, to_nowhere
from ottla.broker.security.listener_security import Listeners
from ottla.broker.security.sasl.scram_credentials import ScramCredentials
from ottla.broker.security.tokens.delegation_tokens import DelegationTokens

if TYPE_CHECKING:
    from ottla.broker.cluster.zookeeper import ZooKeeper
    from ottla.broker.config import BrokerConfig


class Security:
    """The credentials and rights in ZooKeeper and the configuration."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        config: Callable[[], BrokerConfig],
        *,
        is_controller: Callable[[], bool] = lambda: False,
    ) -> None:
        self._zookeeper = zookeeper
        self._config = config
        # Who was refused, who logged in, and who changed what.
        self.audit = Audit(to_nowhere if config().ottla_audit == "off" else to_log)
        self.scram_credentials = ScramCredentials(zookeeper)
        self.tokens = DelegationTokens(zookeeper, config(), is_controller=is_controller)
        # How clients authenticate, and how this broker does at other brokers: as one of them, and as their controller.
        self.listeners = Listeners(config, self.scram_credentials, self.tokens, self.audit)
        self.connector = self.listeners.connector(config().inter_broker_listener.name)
        self.control_plane_connector = self.connector
        control_plane = config().control_plane_listener_name
        if control_plane:
            self.control_plane_connector = self.listeners.connector(control_plane.upper())
        # Who may do what. Without an authorizer, everybody may do everything, and there are no ACLs.
        self.authorizer = Authorizer()
        self.acls: AclStore | None = None
        options = config()
        if options.authorizer_class_name:
            by_acls = AclAuthorizer(
                options.super_users, allow_if_no_acl=options.allow_everyone_if_no_acl_found, audit=self.audit
            )
            self.authorizer, self.acls = by_acls, AclStore(zookeeper, by_acls.use)

    def start(self) -> None:
        """Read credentials and ACLs before any request is handled, and follow changes from then on."""
        self.scram_credentials.start()
        self.tokens.start()
        self.listeners.start()
        if self.acls is not None:
            self.acls.start()

    def entity_changed(self, entity_type: str, name: str) -> None:
        """Read the credentials of a user again."""
        self.scram_credentials.entity_changed(entity_type, name)

    def configure(self) -> None:
        """Apply options that changed while the broker runs."""
        self.listeners.configure()

    def session_expired(self) -> None:
        """Do nothing: what was read last stays in force."""

    def session_renewed(self) -> None:
        """Watch again in the new session, and read what was missed."""
        self.scram_credentials.session_renewed()
        self.tokens.session_renewed()
        if self.acls is not None:
            self.acls.session_renewed()

    def close(self) -> None:
        """Stop following changes."""
        self.listeners.close()
        self.tokens.close()
        if self.acls is not None:
            self.acls.close()
