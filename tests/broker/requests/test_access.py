"""Every API, every resource that it touches: refused without the right and under a DENY, served with the right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.broker.groups.coordinating import answered, coordinating_broker, stable_member
from tests.broker.handlers.data_path import Broker, topic_id
from tests.broker.handlers.small_cluster import FakeCluster, every_version
from tests.broker.requests.access_samples import NAMES, SAMPLES

from ottla.broker.config import BrokerConfig
from ottla.broker.handlers.table import HANDLERS
from ottla.broker.requests.access import (
    ACCESS,
    CLUSTER,
    DELEGATION_TOKEN,
    DESCRIBE,
    GROUP,
    OPEN,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
)
from ottla.broker.requests.error_answers import error_answer
from ottla.broker.security.acls.acl import WILDCARD, AclEntry, ResourcePattern
from ottla.broker.security.acls.acl_snapshot import AclSnapshot
from ottla.broker.security.acls.authorizer import AclAuthorizer
from ottla.broker.security.session import ANONYMOUS
from ottla.broker.security.tokens.delegation_token import DelegationToken
from ottla.protocol.acls import AclOperation, AclPermissionType, ResourceType
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.plain_values import error_codes, message_of

ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
CODES = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
# What is left out, or told as nothing, instead of an error: each has a test of its own below.
SILENT = {
    (Api.METADATA, CLUSTER),
    (Api.DESCRIBE_CLUSTER, CLUSTER),
    (Api.LIST_GROUPS, GROUP),
    (Api.LIST_TRANSACTIONS, TRANSACTIONAL_ID),
    (Api.DESCRIBE_TRANSACTIONS, TOPIC),
    (Api.DESCRIBE_DELEGATION_TOKEN, DELEGATION_TOKEN),
    (Api.DESCRIBE_DELEGATION_TOKEN, USER),
}
# Followers are told about their partitions.
OTHER_CODES = {(Api.FETCH, CLUSTER): ErrorCode.TOPIC_AUTHORIZATION_FAILED}

Right = tuple[AclPermissionType, AclOperation, ResourceType]

PAIRS = [(api, kind) for api in HANDLERS for kind in ACCESS[api].needed]
LOUD = [pair for pair in PAIRS if pair not in SILENT]


# Made by carol for bob; it concerns nobody else.
TOKEN = DelegationToken("token-1", "User:bob", "User:carol", ("User:dave",), 1, 9, 5, b"hmac")


class OneToken:
    """Tokens of which there is one, in memory."""

    is_enabled = True

    def __iter__(self) -> Iterator[DelegationToken]:
        return iter([TOKEN])

    def create(self, *_wanted: object) -> DelegationToken:
        """Return the one."""
        return TOKEN


class NoController:
    """Refuses all work."""

    def submit(self, _work: object, finish: Any) -> None:
        """Answer that somebody else is controller."""
        finish(KafkaError(ErrorCode.NOT_CONTROLLER))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with a topic, a group of each protocol, and rights as tests set them."""
    services = {"cluster": FakeCluster(lambda: BrokerConfig.of({})), "controller": NoController()}
    with coordinating_broker(tmp_path_factory.mktemp("broker"), services) as broker:
        stable_member(broker)
        acls: Any = SimpleNamespace(snapshot=AclSnapshot(), change=lambda *_args, **_fields: None)
        broker.services.security.acls = acls
        broker.services.security.tokens = cast(Any, OneToken())
        broker.has_sasl = True
        joined = message_of(
            Api.CONSUMER_GROUP_HEARTBEAT.request,
            {
                "group_id": "new-readers",
                "member_id": "m",
                "rebalance_timeout_ms": 1000,
                "subscribed_topic_names": ["t"],
                "topic_partitions": [],
            },
            1,
        )
        assert answered(broker.ask(Api.CONSUMER_GROUP_HEARTBEAT, 1, joined)).error_code == 0
        yield broker


def grant(broker: Broker, rights: Iterable[Right]) -> None:
    """Let these rights be all that there are, each at the name that the samples have."""
    acls: dict[ResourcePattern, set[AclEntry]] = {}
    for permission, operation, kind in rights:
        entry = AclEntry(ANONYMOUS, WILDCARD, operation, permission)
        name = NAMES[kind] if kind is not GROUP else WILDCARD
        acls.setdefault(ResourcePattern(kind, name), set()).add(entry)
    snapshot = AclSnapshot({pattern: frozenset(entries) for pattern, entries in acls.items()})
    broker.services.security.authorizer = AclAuthorizer([], allow_if_no_acl=False, snapshot=snapshot)


def rights(api: Api, *, but: ResourceType | None = None) -> list[Right]:
    """All rights that a row names, except those for one kind."""
    return [(ALLOW, operation, kind) for kind, operation in ACCESS[api].needed.items() if kind is not but]


def codes(broker: Broker, api: Api, kind: ResourceType, version: int) -> set[int]:
    """Ask, and return the error codes in the answer; none where the answer waits for something."""
    body = message_of(api.request, SAMPLES[api, kind], version)
    try:
        answer = broker.ask(api, version, body)
    except KafkaError as error:
        # As the exchange answers what a handler raises.
        answer = error_answer(api, version, body, error.code, "")
    if isinstance(answer, list):
        answer = answer[0] if answer else None
    return set() if answer is None else error_codes(answer)


def has_code(api: Api, kind: ResourceType, version: int) -> bool:
    """Whether a version can say why, and knows the resource at all."""
    if api is Api.DESCRIBE_LOG_DIRS:
        return version >= 3
    if kind is TRANSACTIONAL_ID and api is Api.PRODUCE:
        return version >= 3
    if api is Api.CREATE_DELEGATION_TOKEN:
        return version >= 3
    if api is Api.ADD_PARTITIONS_TO_TXN:
        return (version >= 4) == (kind is CLUSTER)
    return not (kind is TRANSACTIONAL_ID and api is Api.FIND_COORDINATOR and version < 1)


def test_every_api_has_a_row_and_every_resource_in_it_a_sample() -> None:
    """What is new comes into the table of rights first; only what comes before authentication is open."""
    assert HANDLERS.keys() == ACCESS.keys()
    assert [pair for pair in PAIRS if pair not in SAMPLES] == []
    assert {api for api in HANDLERS if ACCESS[api] == OPEN} <= {
        Api.API_VERSIONS,
        Api.SASL_HANDSHAKE,
        Api.SASL_AUTHENTICATE,
    }


@pytest.mark.parametrize(("api", "kind"), LOUD, ids=lambda each: each.name)
def test_who_has_no_right_is_refused(broker: Broker, api: Api, kind: ResourceType) -> None:
    """In every version, though all other rights are there."""
    grant(broker, rights(api, but=kind))
    code = OTHER_CODES.get((api, kind), CODES[kind])
    for version in every_version(api):
        assert code in codes(broker, api, kind, version) or not has_code(api, kind, version)


@pytest.mark.parametrize(("api", "kind"), LOUD, ids=lambda each: each.name)
def test_who_is_denied_is_refused_whatever_else_is_allowed(broker: Broker, api: Api, kind: ResourceType) -> None:
    """A DENY of the one operation, or of all, beside an ALLOW of everything."""
    code = OTHER_CODES.get((api, kind), CODES[kind])
    version = max(each for each in every_version(api) if has_code(api, kind, each))
    has_other_way = kind is CLUSTER and ACCESS[api].or_cluster is not None
    for denied in (AclOperation.ALL, *(() if has_other_way else (ACCESS[api].needed[kind],))):
        grant(broker, [*((ALLOW, AclOperation.ALL, each) for each in ACCESS[api].needed), (DENY, denied, kind)])
        assert code in codes(broker, api, kind, version)


@pytest.mark.parametrize(("api", "kind"), LOUD, ids=lambda each: each.name)
def test_who_has_the_rights_of_the_row_is_served(broker: Broker, api: Api, kind: ResourceType) -> None:
    """Those alone, in every version: no handler needs more than the table says."""
    grant(broker, rights(api))
    for version in every_version(api):
        if has_code(api, kind, version):
            assert codes(broker, api, kind, version).isdisjoint(CODES.values())


@pytest.mark.parametrize(
    "api", [api for api in HANDLERS if ACCESS[api].or_cluster is not None], ids=lambda api: api.name
)
def test_a_right_on_the_cluster_may_stand_for_all_topics(broker: Broker, api: Api) -> None:
    """Where the row says so."""
    instead = ACCESS[api].or_cluster
    assert instead is not None
    grant(broker, [(ALLOW, instead, CLUSTER)])
    (kind,) = ACCESS[api].needed
    assert codes(broker, api, kind, HANDLERS[api].versions.last).isdisjoint(CODES.values())


def test_who_may_write_somewhere_may_have_a_producer_id(broker: Broker) -> None:
    """Without a right on the cluster."""
    grant(broker, [(ALLOW, AclOperation.WRITE, TOPIC)])
    assert codes(broker, Api.INIT_PRODUCER_ID, CLUSTER, 5) == {0}


def ask(broker: Broker, api: Api, version: int, **values: Any) -> Any:
    """Ask with plain values."""
    return answered(broker.ask(api, version, message_of(api.request, values, version)))


def test_operations_are_told_to_those_who_may_describe(broker: Broker) -> None:
    """Of the cluster nothing to others; of topics and groups what holds for each."""
    grant(broker, [(ALLOW, AclOperation.READ, TOPIC), (ALLOW, AclOperation.READ, GROUP)])
    topics = {"topics": [{"name": "t"}], "include_topic_authorized_operations": True}
    found = ask(broker, Api.METADATA, 10, **topics, include_cluster_authorized_operations=True)
    assert found.cluster_authorized_operations == 0
    assert found.topics[0].topic_authorized_operations == 1 << 3 | 1 << 8
    assert (
        ask(broker, Api.DESCRIBE_CLUSTER, 1, **SAMPLES[Api.DESCRIBE_CLUSTER, CLUSTER]).cluster_authorized_operations
        == 0
    )
    described = ask(broker, Api.DESCRIBE_GROUPS, 5, groups=["readers"], include_authorized_operations=True)
    assert described.groups[0].authorized_operations == 1 << 3 | 1 << 8
    grant(broker, [(ALLOW, AclOperation.ALTER, CLUSTER)])
    for api, version in ((Api.METADATA, 10), (Api.DESCRIBE_CLUSTER, 1)):
        found = ask(broker, api, version, **SAMPLES[api, CLUSTER])
        assert found.cluster_authorized_operations == 1 << 7 | 1 << 8
    described = ask(broker, Api.DESCRIBE_GROUPS, 5, groups=["readers"])
    assert described.groups[0].authorized_operations == -(2**31)


def test_what_one_may_not_describe_is_not_listed(broker: Broker) -> None:
    """Neither topics nor groups, and offsets only of topics that one may describe."""
    grant(broker, [])
    assert ask(broker, Api.METADATA, 12, topics=None).topics == []
    assert ask(broker, Api.LIST_GROUPS, 5).groups == []
    everything = {"groups": [{"group_id": "readers", "topics": None}]}
    grant(broker, rights(Api.OFFSET_COMMIT))
    assert codes(broker, Api.OFFSET_COMMIT, TOPIC, 9)
    grant(broker, [(ALLOW, AclOperation.DESCRIBE, GROUP)])
    listed = {group.group_id for group in ask(broker, Api.LIST_GROUPS, 5).groups}
    # Other tests have groups of their own here.
    assert {group for group in listed if not group.startswith("by-expression-")} == {"readers", "new-readers"}
    assert ask(broker, Api.OFFSET_FETCH, 9, **everything).groups[0].topics == []
    grant(broker, [(ALLOW, AclOperation.DESCRIBE, TOPIC)])
    assert [topic.name for topic in ask(broker, Api.METADATA, 12, topics=None).topics] == ["t"]


def test_a_topic_that_one_may_not_describe_looks_like_any_other_that_is_not_there(broker: Broker) -> None:
    """The answer is the same for a name that exists and for one that does not, and no id gives its name away."""
    grant(broker, [])
    named = ask(broker, Api.METADATA, 12, topics=[{"name": "t"}, {"name": "nowhere"}])
    assert [(topic.error_code, topic.partitions) for topic in named.topics] == [(29, []), (29, [])]
    by_id = ask(broker, Api.METADATA, 12, topics=[{"name": None, "topic_id": topic_id("t")}])
    assert [(topic.name, topic.error_code) for topic in by_id.topics] == [(None, 29)]
    deleted = ask(broker, Api.DELETE_TOPICS, 6, topics=[{"name": None, "topic_id": topic_id("t")}])
    assert [(topic.name, topic.error_code) for topic in deleted.responses] == [(None, 29)]
    grant(broker, [(ALLOW, AclOperation.DESCRIBE, TOPIC)])
    deleted = ask(broker, Api.DELETE_TOPICS, 6, topics=[{"name": None, "topic_id": topic_id("t")}])
    assert [(topic.name, topic.error_code) for topic in deleted.responses] == [("t", 29)]


@pytest.mark.parametrize("pattern", ["t", ".*", "(t|nowhere)"])
def test_an_expression_tells_nothing_about_topics_that_one_may_not_describe(broker: Broker, pattern: str) -> None:
    """Neither id nor partitions, though the group may be joined; and all of it to those who may."""
    wanted = {
        "group_id": f"by-expression-{pattern}",
        "member_id": "m",
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_regex": pattern,
        "topic_partitions": [],
    }
    grant(broker, [(ALLOW, AclOperation.READ, GROUP)])
    joined = ask(broker, Api.CONSUMER_GROUP_HEARTBEAT, 1, **wanted)
    assert (joined.error_code, joined.assignment.topic_partitions) == (0, [])
    wanted["member_epoch"] = joined.member_epoch
    grant(broker, [(ALLOW, AclOperation.READ, GROUP), (ALLOW, AclOperation.DESCRIBE, TOPIC)])
    told = ask(broker, Api.CONSUMER_GROUP_HEARTBEAT, 1, **wanted)
    assert [(topic.topic_id, topic.partitions) for topic in told.assignment.topic_partitions] == [(topic_id("t"), [0])]
    wanted["member_epoch"] = told.member_epoch
    grant(broker, [(ALLOW, AclOperation.READ, GROUP), (ALLOW, AclOperation.ALL, TOPIC), (DENY, DESCRIBE, TOPIC)])
    revoked = ask(broker, Api.CONSUMER_GROUP_HEARTBEAT, 1, **wanted)
    assert revoked.assignment.topic_partitions == []


def test_a_missing_topic_is_created_for_those_who_may_create_it(broker: Broker) -> None:
    """Describing it is not enough."""
    entry = AclEntry(ANONYMOUS, WILDCARD, AclOperation.DESCRIBE, ALLOW)
    wanted = {"topics": [{"name": "fresh"}], "allow_auto_topic_creation": True}
    for operations, code in (((), 29), ((AclOperation.CREATE,), 5)):
        more = frozenset(entry._replace(operation=operation) for operation in operations)
        snapshot = AclSnapshot({ResourcePattern(TOPIC, "fresh"): more | {entry}})
        broker.services.security.authorizer = AclAuthorizer([], allow_if_no_acl=False, snapshot=snapshot)
        assert ask(broker, Api.METADATA, 12, **wanted).topics[0].error_code == code


def test_options_of_a_new_topic_are_told_to_those_who_may_describe_them(broker: Broker) -> None:
    """Others learn that it was created."""
    sample = SAMPLES[Api.CREATE_TOPICS, TOPIC]
    grant(broker, [(ALLOW, AclOperation.CREATE, TOPIC)])
    (made,) = ask(broker, Api.CREATE_TOPICS, 7, **sample).topics
    assert (made.error_code, made.topic_config_error_code, made.num_partitions, made.configs) == (0, 29, -1, None)
    grant(broker, [(ALLOW, AclOperation.CREATE, TOPIC), (ALLOW, AclOperation.DESCRIBE_CONFIGS, TOPIC)])
    (made,) = ask(broker, Api.CREATE_TOPICS, 7, **sample).topics
    assert (made.topic_config_error_code, made.num_partitions) == (0, 1)
    assert made.configs


def test_rights_are_looked_at_in_every_fetch_of_a_session(broker: Broker) -> None:
    """A topic that was read before is refused as soon as the right is gone, though nothing is new in it."""
    grant(broker, rights(Api.FETCH))
    sample = dict(SAMPLES[Api.FETCH, TOPIC])
    first = ask(broker, Api.FETCH, 17, **sample | {"session_epoch": 0})
    assert error_codes(first) == {0}
    grant(broker, [])
    again = {"session_id": first.session_id, "max_wait_ms": 0}
    second = ask(broker, Api.FETCH, 17, **again, session_epoch=1)
    assert second.responses[0].partitions[0].error_code == 29
    grant(broker, rights(Api.FETCH))
    assert 29 not in error_codes(ask(broker, Api.FETCH, 17, **again, session_epoch=2))


@pytest.mark.parametrize(
    ("right", "count"),
    [
        (None, 0),
        ((ALLOW, AclOperation.DESCRIBE, DELEGATION_TOKEN), 1),
        ((ALLOW, AclOperation.DESCRIBE_TOKENS, USER), 1),
        ((ALLOW, AclOperation.CREATE_TOKENS, USER), 0),
        ((ALLOW, AclOperation.DESCRIBE_TOKENS, DELEGATION_TOKEN), 0),
    ],
)
def test_tokens_of_others_are_shown_with_a_right_on_the_token_or_on_its_owner(
    broker: Broker, right: Right | None, count: int
) -> None:
    """Without one they are left out."""
    grant(broker, [] if right is None else [right])
    for version in every_version(Api.DESCRIBE_DELEGATION_TOKEN):
        found = ask(broker, Api.DESCRIBE_DELEGATION_TOKEN, version, owners=None)
        assert (found.error_code, len(found.tokens)) == (0, count)


def test_everybody_may_create_tokens_for_themselves(broker: Broker) -> None:
    """No right is needed, in any version."""
    grant(broker, [])
    for version in every_version(Api.CREATE_DELEGATION_TOKEN):
        assert ask(broker, Api.CREATE_DELEGATION_TOKEN, version, renewers=[], max_lifetime_ms=-1).error_code == 0
