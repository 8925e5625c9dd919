"""Delegation tokens through Admin, and logins with them, on a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.client.token_broker import TokenBroker
from tests.kit.broker_process import topic_name

from ottla.client.admin.results import NewTopic
from ottla.client.admin.security_results import AclBinding, AclOperation, ResourceType
from ottla.client.errors import (
    DelegationTokenAuthorizationFailedError,
    DelegationTokenNotFoundError,
    DelegationTokenRequestNotAllowedError,
    KafkaConfigurationError,
    SaslAuthenticationFailedError,
)
from ottla.sync import Admin, Consumer, Producer

LIFETIME_MS = 3_600_000


@pytest.fixture
def admin(token_broker: TokenBroker) -> Iterator[Admin]:
    """The administrator, who logs in with a password."""
    with Admin(**token_broker.options()) as made:
        yield made


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_token_logs_in_as_its_owner(token_broker: TokenBroker, admin: Admin, mechanism: str) -> None:
    """With the owner's rights, and no others."""
    topic = topic_name()
    admin.create_topics([NewTopic(topic)])
    rights = (AclOperation.WRITE, AclOperation.READ)
    admin.create_acls([AclBinding("User:alice", each, ResourceType.TOPIC, topic) for each in rights])
    with Admin(**token_broker.options("alice")) as alice:
        token = alice.create_delegation_token()
    login = token_broker.token_options(token, mechanism)
    with Producer(**login) as producer:
        assert producer.send_and_wait(topic, b"by token").offset == 0
    with Consumer(topic, **login, auto_offset_reset="earliest") as consumer:
        assert consumer.getone().value == b"by token"
    with Admin(**login) as by_token:
        refused = by_token.create_topics([NewTopic(topic_name())], raise_errors=False)
    assert "TopicAuthorizationFailed" in type(refused[0].error).__name__


def test_a_token_is_described_renewed_and_ended(token_broker: TokenBroker, admin: Admin) -> None:
    """And no longer logs in then."""
    token = admin.create_delegation_token(renewers=["User:alice"], max_lifetime_ms=LIFETIME_MS)
    assert (token.owner, token.requester, token.renewers) == ("User:admin", "User:admin", ("User:alice",))
    assert token.max_timestamp - token.issue_timestamp == LIFETIME_MS
    assert token in admin.describe_delegation_tokens()
    assert token in admin.describe_delegation_tokens(["User:alice"])
    assert token not in admin.describe_delegation_tokens(["User:bob"])
    assert admin.describe_delegation_tokens([]) == ()
    with Admin(**token_broker.options("alice")) as alice:
        assert token in alice.describe_delegation_tokens()
        alice.renew_delegation_token(token.hmac, period_ms=1_000_000)
        alice.expire_delegation_token(token.hmac)
    assert token.token_id not in {each.token_id for each in admin.describe_delegation_tokens()}
    with pytest.raises(DelegationTokenNotFoundError):
        admin.renew_delegation_token(token.hmac)
    with pytest.raises(SaslAuthenticationFailedError), Admin(**token_broker.token_options(token)) as by_token:
        by_token.list_topics()


def test_tokens_of_others_need_a_right(token_broker: TokenBroker, admin: Admin) -> None:
    """CREATE_TOKENS on the user; the requester sees what it has made, and may not renew it."""
    with Admin(**token_broker.options("bob")) as bob:
        with pytest.raises(DelegationTokenAuthorizationFailedError):
            bob.create_delegation_token(owner="User:alice")
        admin.create_acls([AclBinding("User:bob", AclOperation.CREATE_TOKENS, ResourceType.USER, "User:alice")])
        token = bob.create_delegation_token(owner="User:alice")
        assert (token.owner, token.requester) == ("User:alice", "User:bob")
        assert token in bob.describe_delegation_tokens()
        with pytest.raises(Exception, match="neither owns"):
            bob.renew_delegation_token(token.hmac)


def test_a_token_gives_no_tokens(token_broker: TokenBroker, admin: Admin) -> None:
    """Otherwise nobody could end what a leaked one has made; the same holds for all four requests."""
    token = admin.create_delegation_token()
    with Admin(**token_broker.token_options(token)) as by_token:
        for ask in (
            by_token.create_delegation_token,
            by_token.describe_delegation_tokens,
            lambda: by_token.renew_delegation_token(token.hmac),
            lambda: by_token.expire_delegation_token(token.hmac),
        ):
            with pytest.raises(DelegationTokenRequestNotAllowedError):
                ask()


def test_options_that_cannot_work_are_refused(token_broker: TokenBroker, admin: Admin) -> None:
    """Before anything is sent."""
    token = admin.create_delegation_token()
    with pytest.raises(KafkaConfigurationError, match="SCRAM"):
        Admin(**token_broker.token_options(token, "PLAIN"))
    with pytest.raises(KafkaConfigurationError, match="User:name"):
        admin.create_delegation_token(renewers=["alice"])
    with pytest.raises(KafkaConfigurationError, match="base64"):
        admin.renew_delegation_token("not base64")


def test_a_file_for_javas_clients_logs_in_with_a_token(token_broker: TokenBroker, admin: Admin) -> None:
    """`tokenauth="true"` in its login."""
    path = token_broker.folder / "token.properties"
    path.write_text(token_broker.token_properties(admin.create_delegation_token()))
    with Admin.from_config(path) as by_token:
        assert by_token.describe_cluster().brokers
