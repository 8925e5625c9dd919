"""A cluster whose every listener is SASL_SSL, with ACLs: what its brokers need, and who may do what.

Brokers log in to each other as one super user. Tests are another one. The clients of a workload have no more rights
than they need: to read and write topics, in transactions as well, and to be members of groups.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path

from tests.broker.security.certificates import Certificates
from tests.faults.access import MECHANISM, Access

from ottla.client.admin.security_results import ScramCredentialUpsertion
from ottla.client.cli.access.offline_users import store
from ottla.protocol.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

PROTOCOL = "SASL_SSL"
_STORE_TIMEOUT_S = 60.0
_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
_RIGHTS = (
    (ResourceType.TOPIC, AclOperation.READ),
    (ResourceType.TOPIC, AclOperation.WRITE),
    (ResourceType.GROUP, AclOperation.READ),
    (ResourceType.TRANSACTIONAL_ID, AclOperation.WRITE),
)


class Protection:
    """Certificates for some addresses, and three users."""

    def __init__(self, folder: Path, addresses: Sequence[str]) -> None:
        folder.mkdir(parents=True)
        self._certificates = Certificates(folder, broker_names=tuple(dict.fromkeys(addresses)))
        self._brokers, self.administrator, self.clients = map(self._user, ("broker", "administrator", "clients"))

    def broker_options(self) -> list[str]:
        """The options of every broker."""
        who = f'username="{self._brokers.username}" password="{self._brokers.password}"'
        options = {
            **self._certificates.options(),
            "sasl.enabled.mechanisms": MECHANISM,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            f"listener.name.{PROTOCOL.lower()}.{MECHANISM.lower()}.sasl.jaas.config": f"{_LOGIN} required {who};",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:{self._brokers.username};User:{self.administrator.username}",
        }
        return [f"{name}={value}" for name, value in options.items()]

    def create_users(self, zookeeper: str) -> None:
        """Write who there is to ZooKeeper; brokers that do not find themselves there cannot talk to each other."""
        for user in (self._brokers, self.administrator, self.clients):
            store(zookeeper, [ScramCredentialUpsertion(user.username, user.password)], _STORE_TIMEOUT_S)

    def rights(self) -> CreateAclsRequest:
        """What lets the clients do their work."""
        return CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=resource,
                    resource_name="*",
                    resource_pattern_type=PatternType.LITERAL,
                    principal=f"User:{self.clients.username}",
                    host="*",
                    operation=operation,
                    permission_type=AclPermissionType.ALLOW,
                )
                for resource, operation in _RIGHTS
            ]
        )

    @staticmethod
    def question() -> DescribeAclsRequest:
        """Ask a broker for all ACLs that it knows."""
        return DescribeAclsRequest(
            resource_type_filter=ResourceType.ANY,
            resource_name_filter=None,
            pattern_type_filter=PatternType.ANY,
            principal_filter=None,
            host_filter=None,
            operation=AclOperation.ANY,
            permission_type=AclPermissionType.ANY,
        )

    @staticmethod
    def is_known(answer: DescribeAclsResponse) -> bool:
        """Whether a broker knows the rights of the clients."""
        return sum(len(resource.acls) for resource in answer.resources) == len(_RIGHTS)

    def _user(self, name: str) -> Access:
        return Access(str(self._certificates.truststore), name, secrets.token_hex(8))
