"""CreateAcls, DescribeAcls and DeleteAcls, version by version, over ACLs in a dictionary."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from tests.broker.handlers.small_cluster import SmallCluster, every_version

from ottla.broker.security.acls.acl import AclEntry, ResourcePattern
from ottla.broker.security.acls.acl_snapshot import AclSnapshot
from ottla.protocol.acls import AclOperation, AclPermissionType, ResourceType
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.plain_values import message_of

TOPIC, LITERAL, PREFIXED, ANY, MATCH = 2, 3, 4, 1, 2
READ, WRITE, ALLOW, DENY = 3, 4, 3, 2
VALID = {
    "resource_type": TOPIC,
    "resource_name": "t",
    "resource_pattern_type": LITERAL,
    "principal": "User:alice",
    "host": "*",
    "operation": READ,
    "permission_type": ALLOW,
}
EVERYTHING = {
    "resource_type_filter": ANY,
    "resource_name_filter": None,
    "pattern_type_filter": ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}
ALL_LITERAL = EVERYTHING | {"pattern_type_filter": LITERAL}


class Store:
    """ACLs without ZooKeeper, with how often they were written."""

    def __init__(self) -> None:
        self.snapshot = AclSnapshot()
        self.writes = 0
        self.error: KafkaError | None = None

    def change(
        self, pattern: ResourcePattern, *, added: Iterable[AclEntry] = (), removed: Iterable[AclEntry] = ()
    ) -> None:
        """Change the ACLs of a pattern."""
        if self.error is not None:
            raise self.error
        self.writes += 1
        entries = self.snapshot.acls.get(pattern, frozenset())
        self.snapshot = self.snapshot.replacing({pattern: (entries | frozenset(added)) - frozenset(removed)})


@pytest.fixture
def store() -> Store:
    """The ACLs of the cluster."""
    return Store()


@pytest.fixture
def cluster(store: Store) -> SmallCluster:
    """A cluster that has ACLs."""
    made = SmallCluster()
    security: Any = made.services.security
    security.acls = store
    return made


def ask(cluster: SmallCluster, api: Api, version: int, **values: Any) -> Any:
    """Ask with plain values."""
    return cluster.ask(api, version, message_of(api.request, values, version))


def create(cluster: SmallCluster, *creations: dict[str, Any], version: int = 3) -> list[int]:
    """Create ACLs; return the codes."""
    return [each.error_code for each in ask(cluster, Api.CREATE_ACLS, version, creations=creations).results]


@pytest.mark.parametrize("version", every_version(Api.CREATE_ACLS))
def test_an_acl_is_created_described_and_deleted(cluster: SmallCluster, store: Store, version: int) -> None:
    """All three tell the same of it."""
    assert create(cluster, VALID, version=version) == [0]
    pattern = ResourcePattern(ResourceType.TOPIC, "t")
    entry = AclEntry("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW)
    assert store.snapshot.acls == {pattern: {entry}}
    described = ask(cluster, Api.DESCRIBE_ACLS, version, **ALL_LITERAL)
    (resource,) = described.resources
    assert (described.error_code, described.error_message) == (0, None)
    assert (resource.resource_type, resource.resource_name, resource.pattern_type) == (TOPIC, "t", LITERAL)
    (found,) = resource.acls
    assert (found.principal, found.host, found.operation, found.permission_type) == ("User:alice", "*", READ, ALLOW)
    (result,) = ask(cluster, Api.DELETE_ACLS, version, filters=[ALL_LITERAL]).filter_results
    (deleted,) = result.matching_acls
    assert (result.error_code, deleted.error_code, deleted.resource_name, deleted.operation) == (0, 0, "t", READ)
    assert store.snapshot.acls == {}


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource_type": 0},
        {"resource_type": ANY},
        {"resource_type": 99},
        {"resource_pattern_type": ANY},
        {"resource_pattern_type": MATCH},
        {"resource_pattern_type": 9},
        {"operation": 0},
        {"operation": ANY},
        {"operation": 77},
        {"permission_type": ANY},
        {"permission_type": 0},
        {"resource_name": ""},
        {"resource_name": "a/b"},
        {"resource_name": ".."},
        {"resource_name": "line\nbreak"},
        {"resource_type": 4, "resource_name": "my-cluster"},
        {"principal": "alice"},
        {"principal": "User:"},
        {"principal": ""},
        {"host": ""},
    ],
    ids=str,
)
def test_what_cannot_be_an_acl_is_refused_and_the_rest_created(
    cluster: SmallCluster, store: Store, wrong: dict[str, Any]
) -> None:
    """Each with its own answer; a name never leads out of its folder."""
    assert create(cluster, VALID | wrong, VALID) == [ErrorCode.INVALID_REQUEST, 0]
    assert list(store.snapshot.acls) == [ResourcePattern(ResourceType.TOPIC, "t")]


def test_all_acls_of_one_resource_are_written_at_once(cluster: SmallCluster, store: Store) -> None:
    """Whatever the order of the request, and whichever filters mean them."""
    other = VALID | {"resource_name": "u"}
    create(cluster, VALID, other, VALID | {"principal": "User:bob"}, VALID | {"operation": WRITE})
    assert store.writes == 2
    by_name = [EVERYTHING | {"resource_name_filter": "t", "operation": operation} for operation in (READ, WRITE)]
    results = ask(cluster, Api.DELETE_ACLS, 3, filters=by_name).filter_results
    assert [len(result.matching_acls) for result in results] == [2, 1]
    assert store.writes == 3
    assert list(store.snapshot.acls) == [ResourcePattern(ResourceType.TOPIC, "u")]


def test_what_zookeeper_refuses_is_told_for_each_acl(cluster: SmallCluster, store: Store) -> None:
    """Created or deleted."""
    create(cluster, VALID)
    store.error = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "away")
    assert create(cluster, VALID) == [ErrorCode.REQUEST_TIMED_OUT]
    (result,) = ask(cluster, Api.DELETE_ACLS, 3, filters=[EVERYTHING]).filter_results
    assert [each.error_code for each in result.matching_acls] == [ErrorCode.REQUEST_TIMED_OUT]


@pytest.mark.parametrize(
    "wrong",
    [{"resource_type_filter": 0}, {"pattern_type_filter": 8}, {"operation": 0}, {"permission_type": -1}],
    ids=str,
)
def test_a_filter_with_codes_that_nobody_knows_is_refused(cluster: SmallCluster, wrong: dict[str, Any]) -> None:
    """Rather than taken for all."""
    create(cluster, VALID)
    assert ask(cluster, Api.DESCRIBE_ACLS, 3, **EVERYTHING | wrong).error_code == ErrorCode.INVALID_REQUEST
    (result,) = ask(cluster, Api.DELETE_ACLS, 3, filters=[EVERYTHING | wrong]).filter_results
    assert (result.error_code, result.matching_acls) == (ErrorCode.INVALID_REQUEST, [])


@pytest.mark.parametrize("version", every_version(Api.DELETE_ACLS))
def test_without_an_authorizer_there_are_no_acls(version: int) -> None:
    """Each API says so in its own way."""
    cluster = SmallCluster()
    disabled = ErrorCode.SECURITY_DISABLED
    assert create(cluster, VALID, VALID, version=version) == [disabled, disabled]
    assert ask(cluster, Api.DESCRIBE_ACLS, version, **ALL_LITERAL).error_code == disabled
    (result,) = ask(cluster, Api.DELETE_ACLS, version, filters=[ALL_LITERAL]).filter_results
    assert (result.error_code, result.matching_acls) == (disabled, [])
