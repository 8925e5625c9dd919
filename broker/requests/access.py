"""The rights that every API needs: `ACCESS`, the one table of them, and the functions with which handlers check them.

A row names an operation for each kind of resource that the API touches. A handler names the resource that it is about
to touch. It never names the right:

    check(request, TOPIC, name)        raises KafkaError with the code for that kind of resource
    denied(request, TOPIC, names)      the names that must be left alone
    allows(request, CLUSTER)           returns False instead of raising

A row with a `guard` is for an API whose whole request is about one resource. The handler is then called only for
clients that have the right: `guarded` wraps it and returns the API's error response to everybody else.

A handler that does part of another API's work checks the rights of that API. For example, Metadata checks those of
CreateTopics before it creates a topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import wraps
from typing import Final

from msgspec import Struct

from ottla.broker.requests.error_answers import error_answer
from ottla.broker.requests.request import Answer, AnyRequest, Handler, Request, S
from ottla.broker.security.acls.authorizer import Authorizer
from ottla.broker.security.audit.audit import AuditSubject
from ottla.broker.security.session import Session
from ottla.protocol.acls import CLUSTER_NAME, AclOperation, ResourceType
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError

TOPIC: Final = ResourceType.TOPIC
GROUP: Final = ResourceType.GROUP
CLUSTER: Final = ResourceType.CLUSTER
TRANSACTIONAL_ID: Final = ResourceType.TRANSACTIONAL_ID
DELEGATION_TOKEN: Final = ResourceType.DELEGATION_TOKEN
USER: Final = ResourceType.USER

READ: Final = AclOperation.READ
WRITE: Final = AclOperation.WRITE
CREATE: Final = AclOperation.CREATE
DELETE: Final = AclOperation.DELETE
ALTER: Final = AclOperation.ALTER
DESCRIBE: Final = AclOperation.DESCRIBE
CLUSTER_ACTION: Final = AclOperation.CLUSTER_ACTION
DESCRIBE_CONFIGS: Final = AclOperation.DESCRIBE_CONFIGS
ALTER_CONFIGS: Final = AclOperation.ALTER_CONFIGS
IDEMPOTENT_WRITE: Final = AclOperation.IDEMPOTENT_WRITE
CREATE_TOKENS: Final = AclOperation.CREATE_TOKENS
DESCRIBE_TOKENS: Final = AclOperation.DESCRIBE_TOKENS

# Stands for authorized operations that the client did not ask for.
NOT_ASKED: Final = -(2**31)

_CODES: Final = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
_NONE: Final[frozenset[str]] = frozenset()


class Access(Struct, frozen=True, kw_only=True):
    """The operation that one API needs for each kind of resource; None for kinds that the API does not touch."""

    topic: AclOperation | None = None
    group: AclOperation | None = None
    transactional_id: AclOperation | None = None
    cluster: AclOperation | None = None
    delegation_token: AclOperation | None = None
    # The name is the whole principal: `User:alice`.
    user: AclOperation | None = None
    # Whether the API needs no ACL because it is for those who own the resource: the handler checks that.
    for_owner: bool = False
    # An operation on the cluster that replaces the one on each topic or group, or another one on the cluster.
    or_cluster: AclOperation | None = None
    # An operation on any topic that replaces the one on the cluster.
    or_any_topic: AclOperation | None = None
    # The kind of resource that the whole request is about.
    guard: ResourceType | None = None

    @property
    def needed(self) -> dict[ResourceType, AclOperation]:
        """The operation that is needed, by kind of resource."""
        rights = {
            TOPIC: self.topic,
            GROUP: self.group,
            CLUSTER: self.cluster,
            TRANSACTIONAL_ID: self.transactional_id,
            DELEGATION_TOKEN: self.delegation_token,
            USER: self.user,
        }
        return {kind: operation for kind, operation in rights.items() if operation is not None}


def _of_cluster(operation: AclOperation) -> Access:
    return Access(cluster=operation, guard=CLUSTER)


def _of_group(operation: AclOperation, *, topic: AclOperation | None = None) -> Access:
    return Access(group=operation, guard=GROUP, topic=topic)


OPEN: Final = Access()

ACCESS: Final[Mapping[Api, Access]] = {
    # For everybody, even before authentication
    Api.API_VERSIONS: OPEN,
    Api.SASL_HANDSHAKE: OPEN,
    Api.SASL_AUTHENTICATE: OPEN,
    # Records; only followers touch the cluster
    Api.PRODUCE: Access(topic=WRITE, transactional_id=WRITE),
    Api.FETCH: Access(topic=READ, cluster=CLUSTER_ACTION),
    Api.LIST_OFFSETS: Access(topic=DESCRIBE),
    Api.OFFSET_FOR_LEADER_EPOCH: Access(topic=DESCRIBE, or_cluster=CLUSTER_ACTION),
    Api.DELETE_RECORDS: Access(topic=DELETE),
    Api.DESCRIBE_PRODUCERS: Access(topic=READ),
    Api.MIRROR_APPEND: Access(cluster=CLUSTER_ACTION, or_cluster=ALTER, guard=CLUSTER),
    Api.INIT_PRODUCER_ID: Access(transactional_id=WRITE, cluster=IDEMPOTENT_WRITE, or_any_topic=WRITE),
    # The cluster; everybody may see its brokers, and DESCRIBE adds the authorized operations
    Api.METADATA: Access(topic=DESCRIBE, cluster=DESCRIBE),
    Api.DESCRIBE_CLUSTER: Access(cluster=DESCRIBE),
    Api.DESCRIBE_LOG_DIRS: _of_cluster(DESCRIBE),
    Api.ALTER_REPLICA_LOG_DIRS: _of_cluster(ALTER),
    # Topics and options; the options of brokers are the cluster's
    Api.CREATE_TOPICS: Access(topic=CREATE, or_cluster=CREATE),
    Api.DELETE_TOPICS: Access(topic=DELETE),
    Api.CREATE_PARTITIONS: Access(topic=ALTER),
    Api.DESCRIBE_CONFIGS: Access(topic=DESCRIBE_CONFIGS, cluster=DESCRIBE_CONFIGS),
    Api.ALTER_CONFIGS: Access(topic=ALTER_CONFIGS, cluster=ALTER_CONFIGS),
    Api.INCREMENTAL_ALTER_CONFIGS: Access(topic=ALTER_CONFIGS, cluster=ALTER_CONFIGS),
    # Groups and transactions
    Api.FIND_COORDINATOR: Access(group=DESCRIBE, transactional_id=DESCRIBE),
    Api.JOIN_GROUP: _of_group(READ),
    Api.SYNC_GROUP: _of_group(READ),
    Api.HEARTBEAT: _of_group(READ),
    Api.LEAVE_GROUP: _of_group(READ),
    Api.OFFSET_COMMIT: Access(group=READ, topic=READ),
    Api.OFFSET_FETCH: Access(group=DESCRIBE, topic=DESCRIBE),
    Api.OFFSET_DELETE: _of_group(DELETE, topic=READ),
    Api.DESCRIBE_GROUPS: Access(group=DESCRIBE),
    Api.LIST_GROUPS: Access(group=DESCRIBE, or_cluster=DESCRIBE),
    Api.DELETE_GROUPS: Access(group=DELETE),
    Api.CONSUMER_GROUP_HEARTBEAT: _of_group(READ, topic=DESCRIBE),
    Api.CONSUMER_GROUP_DESCRIBE: Access(group=DESCRIBE, topic=DESCRIBE),
    Api.ADD_PARTITIONS_TO_TXN: Access(transactional_id=WRITE, topic=WRITE, cluster=CLUSTER_ACTION),
    Api.ADD_OFFSETS_TO_TXN: Access(transactional_id=WRITE, group=READ),
    Api.END_TXN: Access(transactional_id=WRITE),
    Api.TXN_OFFSET_COMMIT: Access(transactional_id=WRITE, group=READ, topic=READ),
    Api.WRITE_TXN_MARKERS: Access(cluster=CLUSTER_ACTION, or_cluster=ALTER, guard=CLUSTER),
    Api.DESCRIBE_TRANSACTIONS: Access(transactional_id=DESCRIBE, topic=DESCRIBE),
    Api.LIST_TRANSACTIONS: Access(transactional_id=DESCRIBE),
    # Users, rights and quotas
    Api.DESCRIBE_ACLS: _of_cluster(DESCRIBE),
    Api.CREATE_ACLS: Access(cluster=ALTER),
    Api.DELETE_ACLS: Access(cluster=ALTER),
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: _of_cluster(DESCRIBE),
    Api.ALTER_USER_SCRAM_CREDENTIALS: Access(cluster=ALTER),
    Api.DESCRIBE_CLIENT_QUOTAS: _of_cluster(DESCRIBE_CONFIGS),
    Api.ALTER_CLIENT_QUOTAS: Access(cluster=ALTER_CONFIGS),
    # Delegation tokens; everybody may create tokens for themselves, and see those that concern them
    Api.CREATE_DELEGATION_TOKEN: Access(user=CREATE_TOKENS),
    Api.RENEW_DELEGATION_TOKEN: Access(for_owner=True),
    Api.EXPIRE_DELEGATION_TOKEN: Access(for_owner=True),
    Api.DESCRIBE_DELEGATION_TOKEN: Access(delegation_token=DESCRIBE, user=DESCRIBE_TOKENS),
    # From the controller
    Api.LEADER_AND_ISR: _of_cluster(CLUSTER_ACTION),
    Api.STOP_REPLICA: _of_cluster(CLUSTER_ACTION),
    Api.UPDATE_METADATA: _of_cluster(CLUSTER_ACTION),
    # To the controller
    Api.ALTER_PARTITION: _of_cluster(CLUSTER_ACTION),
    Api.ALLOCATE_PRODUCER_IDS: _of_cluster(CLUSTER_ACTION),
    Api.CONTROLLED_SHUTDOWN: _of_cluster(CLUSTER_ACTION),
    Api.ELECT_LEADERS: Access(cluster=ALTER),
    Api.ALTER_PARTITION_REASSIGNMENTS: _of_cluster(ALTER),
    Api.LIST_PARTITION_REASSIGNMENTS: _of_cluster(DESCRIBE),
    Api.UNDELETE_TOPICS: _of_cluster(ALTER),
}

# What brokers ask of each other, among other things.
OF_BROKERS: Final = frozenset(api for api, row in ACCESS.items() if CLUSTER_ACTION in (row.cluster, row.or_cluster))

# The same rights in one dictionary, for fast lookups.
_NEEDED: Final = {(api, kind): operation for api, row in ACCESS.items() for kind, operation in row.needed.items()}


def comes_from_broker(authorizer: Authorizer, session: Session, api: Api) -> bool:
    """Whether a request may be one of a broker: of such an API, from a client with a broker's right."""
    return api in OF_BROKERS and authorizer.allows(session, CLUSTER_ACTION, CLUSTER)


class StandingRight(Struct, frozen=True):
    """The right of a client that is asked for later as well, by what its request has set up. Any thread may ask."""

    _authorizer: Authorizer
    _session: Session
    _operation: AclOperation
    _kind: ResourceType

    @property
    def holder(self) -> object:
        """Whose right it is."""
        return self._session.principal, self._session.client_host

    @property
    def rules(self) -> object:
        """What the answers follow from: another object once they may have changed."""
        return self._authorizer.rules

    def denied(self, names: Iterable[str]) -> frozenset[str]:
        """Return the names for which the client has no right now."""
        return self._authorizer.denied(self._session, self._operation, self._kind, names)


def standing_right(request: AnyRequest, kind: ResourceType) -> StandingRight | None:
    """Return the right that the API needs for a kind of resource; None if everything is allowed."""
    if is_open(request):
        return None
    return StandingRight(request.services.security.authorizer, request.session, _NEEDED[request.api, kind], kind)


def is_open(request: AnyRequest) -> bool:
    """Whether everything is allowed, so that callers need not even collect the names of resources."""
    return request.services.security.authorizer.is_open


def allows(
    request: AnyRequest,
    kind: ResourceType,
    name: str = CLUSTER_NAME,
    *,
    as_api: Api | None = None,
    log_if_denied: bool = True,
) -> bool:
    """Whether the client may do with this resource what the API does."""
    authorizer, session = request.services.security.authorizer, request.session
    if authorizer.is_open:
        return True
    api = request.api if as_api is None else as_api
    operation = _NEEDED[api, kind]
    if authorizer.allows(session, operation, kind, name):
        return True
    row = ACCESS[api]
    has_other_way = row.or_cluster is not None and authorizer.allows(session, row.or_cluster, CLUSTER)
    if kind is CLUSTER and row.or_any_topic is not None:
        has_other_way = has_other_way or authorizer.allows_any(session, row.or_any_topic, TOPIC)
    if not has_other_way and log_if_denied:
        authorizer.note_refusals(AuditSubject(session, request.client_id), api.label, operation, kind, (name,))
    return has_other_way


def allows_any(request: AnyRequest, kind: ResourceType) -> bool:
    """Whether there is a resource of a kind with which the client may do what the API does."""
    authorizer = request.services.security.authorizer
    return authorizer.is_open or authorizer.allows_any(request.session, _NEEDED[request.api, kind], kind)


def check(request: AnyRequest, kind: ResourceType, name: str = CLUSTER_NAME, *, as_api: Api | None = None) -> None:
    """Raise KafkaError with the code for this kind of resource unless `allows` returns True."""
    if not allows(request, kind, name, as_api=as_api):
        raise KafkaError(_CODES[kind])


def denied(
    request: AnyRequest, kind: ResourceType, names: Iterable[str], *, log_if_denied: bool = True
) -> frozenset[str]:
    """Return the names for which `allows` returns False. Costs nothing if everything is allowed."""
    authorizer = request.services.security.authorizer
    if authorizer.is_open:
        return _NONE
    session, operation, instead = request.session, _NEEDED[request.api, kind], ACCESS[request.api].or_cluster
    refused = authorizer.denied(session, operation, kind, names)
    if refused and instead is not None and authorizer.allows(session, instead, CLUSTER):
        return _NONE
    if refused and log_if_denied:
        subject = AuditSubject(session, request.client_id)
        authorizer.note_refusals(subject, request.api.label, operation, kind, refused)
    return refused


def operations(request: AnyRequest, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
    """Return what the client may do with a resource, as a bit field."""
    return request.services.security.authorizer.operations(request.session, kind, name)


def cluster_operations(request: AnyRequest) -> int:
    """Return what the client may do with the cluster; 0 if it may not describe the cluster."""
    return operations(request, CLUSTER) if allows(request, CLUSTER) else 0


def guarded(api: Api, handle: Handler[S]) -> Handler[S]:
    """Return a handler that checks the right first, if the whole request is about one resource."""
    kind = ACCESS[api].guard
    if kind is None:
        return handle

    @wraps(handle)
    def guard(request: Request[S]) -> Answer:
        name = CLUSTER_NAME if kind is CLUSTER else request.body.group_id
        if allows(request, kind, name):
            return handle(request)
        code = _CODES[kind]
        return error_answer(api, request.version, request.body, code, code.description)

    return guard
