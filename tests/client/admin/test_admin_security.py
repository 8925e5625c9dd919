"""Users, rights and quotas through Admin, on real brokers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from tests.kit.broker_process import BrokerProcess

from ottla.client.admin.security_requests import ANY_NAME
from ottla.client.admin.security_results import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    ScramMechanism,
)
from ottla.client.errors import KafkaError
from ottla.sync import Admin

SHA_256, SHA_512 = ScramMechanism


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    """A client of a broker without an authorizer."""
    with Admin(bootstrap_servers=broker.bootstrap) as made:
        yield made


@pytest.fixture
def rights(authorizing_broker: BrokerProcess) -> Iterator[Admin]:
    """A client of a broker that looks after rights."""
    with Admin(bootstrap_servers=authorizing_broker.bootstrap) as made:
        yield made


@pytest.fixture
def user() -> str:
    """A name that no other user has, and that no path can have as it is."""
    return f"user/{uuid.uuid4().hex}"


def test_passwords_are_set_described_and_deleted(admin: Admin, user: str) -> None:
    """Of one user for two mechanisms at once."""
    admin.alter_user_scram_credentials(
        [ScramCredentialUpsertion(user, "secret"), ScramCredentialUpsertion(user, "secret", SHA_256, 4096)]
    )
    (described,) = admin.describe_user_scram_credentials([user])
    assert described.to_dict() == {
        "user": user,
        "credentials": [
            {"mechanism": "SCRAM-SHA-256", "iterations": 4096},
            {"mechanism": "SCRAM-SHA-512", "iterations": 8192},
        ],
        "error": None,
    }

    admin.alter_user_scram_credentials([ScramCredentialDeletion(user, SHA_256)])
    assert user in {each.user for each in admin.describe_user_scram_credentials()}
    admin.alter_user_scram_credentials([ScramCredentialDeletion(user, SHA_512)])
    assert user not in {each.user for each in admin.describe_user_scram_credentials()}


def test_what_fails_for_one_user_is_raised_or_returned(admin: Admin, user: str) -> None:
    """As the caller wants it."""
    deletion = ScramCredentialDeletion(user, SHA_512)

    with pytest.raises(KafkaError, match="RESOURCE_NOT_FOUND"):
        admin.alter_user_scram_credentials([deletion])
    (outcome,) = admin.alter_user_scram_credentials([deletion], raise_errors=False)
    assert (outcome.user, outcome.error is not None) == (user, True)


def test_a_password_shows_nowhere() -> None:
    """Not even where the wish is printed."""
    assert "planted" not in repr(ScramCredentialUpsertion("alice", "planted", salt=b"planted"))


def test_quotas_are_set_described_and_removed(admin: Admin, user: str) -> None:
    """By name, by default and by any name."""
    own: dict[str, str | None] = {"user": user}
    both: dict[str, str | None] = {"user": user, "client-id": None}
    admin.alter_client_quotas([(own, {"producer_byte_rate": 1e9}), (both, {"request_percentage": 200.5})])

    assert {tuple(each.entity.items()): dict(each.quotas) for each in admin.describe_client_quotas(own)} == {
        tuple(own.items()): {"producer_byte_rate": 1e9},
        tuple(both.items()): {"request_percentage": 200.5},
    }
    assert len(admin.describe_client_quotas(own, strict=True)) == 1
    assert len(admin.describe_client_quotas({**own, "client-id": ANY_NAME})) == 1
    admin.alter_client_quotas([(own, {"producer_byte_rate": None}), (both, {"request_percentage": None})])
    assert admin.describe_client_quotas(own) == ()


def test_a_quota_that_cannot_be_is_refused(admin: Admin, user: str) -> None:
    """And a check changes nothing."""
    with pytest.raises(KafkaError, match="INVALID_REQUEST"):
        admin.alter_client_quotas([({"user": user}, {"producer_byte_rate": 0.5})])
    with pytest.raises(KafkaError, match="INVALID_REQUEST"):
        admin.describe_client_quotas({"user": None, "ip": None})
    admin.alter_client_quotas([({"user": user}, {"producer_byte_rate": 1.0})], validate_only=True)
    assert admin.describe_client_quotas({"user": user}) == ()


def test_rights_are_created_described_and_deleted(rights: Admin, user: str) -> None:
    """With filters that match by name, by prefix and whatever there is."""
    principal = f"User:{user}"
    literal = AclBinding(principal, AclOperation.READ, ResourceType.TOPIC, "orders")
    prefixed = AclBinding(
        principal,
        AclOperation.WRITE,
        ResourceType.TOPIC,
        "ord",
        PatternType.PREFIXED,
        AclPermissionType.DENY,
        "10.0.0.1",
    )
    cluster = AclBinding(principal, AclOperation.ALTER, ResourceType.CLUSTER)
    assert [each.error for each in rights.create_acls([literal, prefixed, cluster])] == [None] * 3

    assert set(rights.describe_acls(AclFilter(principal=principal))) == {literal, prefixed, cluster}
    assert {literal, prefixed, cluster} <= set(rights.describe_acls())
    matching = AclFilter(ResourceType.TOPIC, "orders", PatternType.MATCH, principal=principal)
    assert set(rights.describe_acls(matching)) == {literal, prefixed}
    (deleted,) = rights.delete_acls([AclFilter(principal=principal, permission_type=AclPermissionType.DENY)])
    assert [each.acl for each in deleted.acls] == [prefixed]
    assert set(rights.describe_acls(AclFilter(principal=principal))) == {literal, cluster}
    assert literal.to_dict()["operation"] == "read"


def test_a_broker_that_looks_after_no_rights_says_so(admin: Admin) -> None:
    """Nobody should believe in rights that do not count."""
    with pytest.raises(KafkaError, match="SECURITY_DISABLED"):
        admin.describe_acls()
    with pytest.raises(KafkaError, match="SECURITY_DISABLED"):
        admin.create_acls([AclBinding("User:u", AclOperation.READ, ResourceType.TOPIC, "t")])
