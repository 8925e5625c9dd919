"""AlterUserScramCredentials and DescribeUserScramCredentials."""

from __future__ import annotations

from typing import Any

from tests.broker.handlers.small_cluster import SmallCluster

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from ottla.protocol.scram import ScramCredential, ScramMechanism

SHA_256, SHA_512 = ScramMechanism


def setting(user: str, mechanism: int = SHA_256, **fields: Any) -> ScramCredentialUpsertion:
    """A credential as a client wants it to be."""
    wanted = {"iterations": 4096, "salt": b"salt", "salted_password": b"salted", **fields}
    return ScramCredentialUpsertion(name=user, mechanism=mechanism, **wanted)


def deleting(user: str, mechanism: int = SHA_256) -> ScramCredentialDeletion:
    """A credential that a client wants to be gone."""
    return ScramCredentialDeletion(name=user, mechanism=mechanism)


def alter(cluster: SmallCluster, *wanted: ScramCredentialUpsertion | ScramCredentialDeletion) -> dict[str, int]:
    """Ask for changes; return the codes by user."""
    body = AlterUserScramCredentialsRequest(
        upsertions=[each for each in wanted if isinstance(each, ScramCredentialUpsertion)],
        deletions=[each for each in wanted if isinstance(each, ScramCredentialDeletion)],
    )
    response = cluster.ask(Api.ALTER_USER_SCRAM_CREDENTIALS, 0, body)
    assert len({result.user for result in response.results}) == len(response.results)
    return {result.user: result.error_code for result in response.results}


def describe(cluster: SmallCluster, *users: str) -> dict[str, Any]:
    """Ask for users; return mechanisms with iterations, or the code."""
    body = DescribeUserScramCredentialsRequest(users=[UserName(name=user) for user in users] or None)
    response = cluster.ask(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, body)
    assert response.error_code == 0
    return {
        result.user: result.error_code or {each.mechanism: each.iterations for each in result.credential_infos}
        for result in response.results
    }


def test_what_is_derived_from_a_password_is_kept_beside_the_quotas_of_the_user() -> None:
    """Under the name as it stands in paths, in Kafka's text."""
    cluster = SmallCluster()
    cluster.zookeeper.entities = {"users": {"a%2Fb": {"producer_byte_rate": "1024"}}}

    assert alter(cluster, setting("a/b"), setting("a/b", SHA_512, iterations=16384)) == {"a/b": 0}

    kept = cluster.zookeeper.entities["users"]["a%2Fb"]
    assert kept["producer_byte_rate"] == "1024"
    assert ScramCredential.parse(kept["SCRAM-SHA-256"]) == ScramCredential.derived(SHA_256, b"salted", b"salt", 4096)
    assert ScramCredential.parse(kept["SCRAM-SHA-512"]) == ScramCredential.derived(SHA_512, b"salted", b"salt", 16384)


def test_credentials_are_deleted_one_by_one() -> None:
    """And one that is not there is not found."""
    cluster = SmallCluster()
    alter(cluster, setting("alice"), setting("alice", SHA_512))

    assert alter(cluster, deleting("alice"), deleting("bob")) == {"alice": 0, "bob": ErrorCode.RESOURCE_NOT_FOUND}

    assert describe(cluster) == {"alice": {SHA_512: 4096}}


def test_what_cannot_be_is_refused_for_its_user_alone() -> None:
    """Each for its reason."""
    codes = alter(
        SmallCluster(),
        setting(""),
        setting("few", iterations=4095),
        setting("many", iterations=16385),
        setting("unsalted", salt=b""),
        setting("empty", salted_password=b""),
        setting("unknown", 0),
        setting("later", 3),
        setting("twice"),
        deleting("twice"),
        setting("good"),
    )

    bad, unsupported = ErrorCode.UNACCEPTABLE_CREDENTIAL, ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert codes == {
        "": bad,
        "few": bad,
        "many": bad,
        "unsalted": bad,
        "empty": bad,
        "unknown": unsupported,
        "later": unsupported,
        "twice": ErrorCode.DUPLICATE_RESOURCE,
        "good": ErrorCode.NONE,
    }


def test_only_the_controller_changes_credentials() -> None:
    """Others say so, and change nothing."""
    cluster = SmallCluster()
    cluster.zookeeper.is_controller = False

    assert alter(cluster, setting("alice")) == {"alice": ErrorCode.NOT_CONTROLLER}
    assert cluster.zookeeper.entities == {}


def test_all_users_with_credentials_are_described_when_none_is_named() -> None:
    """Those with quotas alone, and the default, have none."""
    cluster = SmallCluster()
    alter(cluster, setting("alice"), setting("bob", SHA_512, iterations=8192))
    cluster.zookeeper.entities["users"] |= {
        "eve": {"producer_byte_rate": "1"},
        "<default>": {"SCRAM-SHA-256": "nonsense"},
        "broken": {"SCRAM-SHA-256": "nonsense"},
    }

    assert describe(cluster) == {"alice": {SHA_256: 4096}, "bob": {SHA_512: 8192}}


def test_users_that_are_named_are_answered_one_by_one() -> None:
    """Also those that are not there, or are named twice."""
    cluster = SmallCluster()
    alter(cluster, setting("alice"))

    assert describe(cluster, "alice", "bob", "eve", "eve", "") == {
        "alice": {SHA_256: 4096},
        "bob": ErrorCode.RESOURCE_NOT_FOUND,
        "eve": ErrorCode.DUPLICATE_RESOURCE,
        "": ErrorCode.RESOURCE_NOT_FOUND,
    }


def test_without_zookeeper_nothing_is_described() -> None:
    """The whole answer says why."""
    cluster = SmallCluster()
    cluster.zookeeper.refusals["users"] = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper is away")

    response = cluster.ask(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, DescribeUserScramCredentialsRequest(users=None))

    assert (response.error_code, response.results) == (ErrorCode.REQUEST_TIMED_OUT, [])
