"""Delegation tokens in a real ZooKeeper: as Kafka writes them, shared by all brokers, and ended in time."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from tests.broker.sessions import NOW_MS, Connect
from tests.kit.clock import FakeClock
from tests.kit.waiting import until

from ottla.broker.cluster.zookeeper import ZooKeeper
from ottla.broker.config import BrokerConfig
from ottla.broker.security.tokens.delegation_tokens import DelegationTokens
from ottla.protocol.errors import ErrorCode, KafkaError

ALICE, BOB, EVE = "User:alice", "User:b,o b", "User:eve"
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
SECRET = "top secret"


@contextmanager
def tokens_of(
    *zookeepers: ZooKeeper, clock: FakeClock[int] | None = None, is_controller: bool = False, **options: str
) -> Iterator[list[DelegationTokens]]:
    """Start the tokens of a broker for each session."""
    given = {"delegation.token.secret.key": SECRET, **{name.replace("_", "."): text for name, text in options.items()}}
    config = BrokerConfig.of({name: text for name, text in given.items() if text})
    now = clock or FakeClock(NOW_MS)
    made = [DelegationTokens(each, config, is_controller=lambda: is_controller, clock=now) for each in zookeepers]
    for each in made:
        each.start()
    try:
        yield made
    finally:
        for each in made:
            each.close()


def test_a_token_stands_where_kafka_looks_for_it(connect: Connect) -> None:
    """Its node has all but the HMAC, with encoded principals; a note has its id."""
    zookeeper = connect()
    with tokens_of(zookeeper) as (tokens,):
        token = tokens.create(ALICE, BOB, [BOB], -1)
    assert json.loads(zookeeper.read(f"/delegation_token/tokens/{token.token_id}").data) == {
        "version": 3,
        "owner": "User%3Aalice",
        "tokenRequester": "User%3Ab%2Co%20b",
        "renewers": ["User%3Ab%2Co%20b"],
        "issueTimestamp": NOW_MS,
        "maxTimestamp": NOW_MS + 7 * DAY_MS,
        "expiryTimestamp": NOW_MS + DAY_MS,
        "tokenId": token.token_id,
    }
    assert zookeeper.read("/delegation_token/token_changes/token_change_0000000000").data == token.token_id.encode()
    assert token.hmac == hmac.new(SECRET.encode(), token.token_id.encode(), hashlib.sha512).digest()
    assert len(base64.urlsafe_b64decode(token.token_id + "==")) == 16


def test_all_brokers_know_a_token_and_its_end(connect: Connect) -> None:
    """By notes, or by reading at the start; a login needs no ZooKeeper."""
    with tokens_of(connect(), connect()) as (here, there):
        token = here.create(ALICE, ALICE, [BOB], -1)
        until(lambda: list(there) == [token], "the other broker has the token")
        with tokens_of(connect()) as (late,):
            assert list(late) == [token]
        login, other = here.login("SCRAM-SHA-256", token.token_id), there.login("SCRAM-SHA-256", token.token_id)
        assert login == other
        assert login is not None
        assert (login.user, login.expires_ms) == ("alice", token.expiry_ms)

        renewed = there.renew(BOB, token.hmac, 2 * HOUR_MS)
        assert renewed == replace(token, expiry_ms=NOW_MS + 2 * HOUR_MS)
        until(lambda: list(here) == [renewed], "the first broker has heard of it")
        assert there.expire(ALICE, token.hmac, -1).expiry_ms == NOW_MS
        until(lambda: not list(here), "the token is gone")
        assert here.login("SCRAM-SHA-256", token.token_id) is None


@pytest.mark.parametrize(
    ("wanted_ms", "max_ms", "expiry_ms"),
    [(-1, 7 * DAY_MS, DAY_MS), (0, 7 * DAY_MS, DAY_MS), (HOUR_MS, HOUR_MS, HOUR_MS), (99 * DAY_MS, 7 * DAY_MS, DAY_MS)],
)
def test_a_lifetime_is_bounded(connect: Connect, wanted_ms: int, max_ms: int, expiry_ms: int) -> None:
    """By the option, and the first expiry by the lifetime."""
    with tokens_of(connect()) as (tokens,):
        token = tokens.create(ALICE, ALICE, [], wanted_ms)
    assert (token.max_ms - NOW_MS, token.expiry_ms - NOW_MS) == (max_ms, expiry_ms)


def test_only_owner_and_renewers_change_a_token(connect: Connect) -> None:
    """Not those who asked for it, nor those who guess; with Kafka's error codes."""
    with tokens_of(connect()) as (tokens,):
        token = tokens.create(ALICE, EVE, [BOB], -1)
        for change in (tokens.renew, tokens.expire):
            with pytest.raises(KafkaError) as refused:
                change(EVE, token.hmac, 1)
            assert refused.value.code is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
            with pytest.raises(KafkaError) as refused:
                change(ALICE, token.hmac[:-1], 1)
            assert refused.value.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert list(tokens) == [token]


def test_renewing_ends_with_the_lifetime(connect: Connect) -> None:
    """An expired token cannot be renewed, but it can be deleted."""
    clock = FakeClock(NOW_MS)
    with tokens_of(connect(), clock=clock) as (tokens,):
        token = tokens.create(ALICE, ALICE, [], 2 * DAY_MS)
        clock.now += DAY_MS
        assert tokens.renew(ALICE, token.hmac, 5 * DAY_MS).expiry_ms == token.max_ms
        assert tokens.expire(ALICE, token.hmac, HOUR_MS).expiry_ms == clock() + HOUR_MS
        clock.now += HOUR_MS + 1
        for change in (tokens.renew, tokens.expire):
            with pytest.raises(KafkaError) as refused:
                change(ALICE, token.hmac, 1)
            assert refused.value.code is ErrorCode.DELEGATION_TOKEN_EXPIRED
        tokens.expire(ALICE, token.hmac, -1)
        assert list(tokens) == []


def test_the_controller_deletes_what_has_expired(connect: Connect) -> None:
    """And nothing else."""
    clock, zookeeper = FakeClock(NOW_MS), connect()
    with tokens_of(zookeeper, clock=clock) as (tokens,):
        tokens.create(ALICE, ALICE, [], HOUR_MS)
        lasting = tokens.create(ALICE, ALICE, [], 3 * HOUR_MS)
        clock.now += 2 * HOUR_MS
        with tokens_of(zookeeper, clock=clock, is_controller=True, delegation_token_expiry_check_interval_ms="10") as (
            controller,
        ):
            until(lambda: list(controller) == [lasting], "the expired token is deleted")
        until(lambda: list(tokens) == [lasting], "the others hear of it")


def test_tokens_of_earlier_versions_are_read_and_unreadable_ones_left_out(connect: Connect) -> None:
    """Before version 3 the requester was the owner."""
    zookeeper = connect()
    times = '"issueTimestamp":1,"maxTimestamp":9,"expiryTimestamp":5'
    nodes = {
        "old": f'{{"version":1,"owner":"User%3Aalice","renewers":[],{times},"tokenId":"old"}}',
        "newer": f'{{"version":4,"owner":"User%3Aalice","renewers":[],{times},"tokenId":"newer"}}',
        "moved": f'{{"version":1,"owner":"User%3Aalice","renewers":[],{times},"tokenId":"old"}}',
        "torn": "{",
    }
    zookeeper.ensure_path("/delegation_token/tokens")
    for name, text in nodes.items():
        zookeeper.create(f"/delegation_token/tokens/{name}", text.encode())
    with tokens_of(zookeeper) as (tokens,):
        (found,) = tokens
    assert (found.token_id, found.owner, found.requester) == ("old", ALICE, ALICE)


def test_hostile_notes_change_nothing(connect: Connect) -> None:
    """Whatever they name."""
    zookeeper = connect()
    with tokens_of(zookeeper) as (tokens,):
        token = tokens.create(ALICE, ALICE, [], -1)
        for data in (b"", b"..", b"a/b", b"\xff\x00", b"x" * 10_000, b"nobody"):
            zookeeper.create_sequential("/delegation_token/token_changes/token_change_", data)
        second = tokens.create(ALICE, ALICE, [], -1)
        assert {each.token_id for each in tokens} == {token.token_id, second.token_id}


def test_a_user_has_a_bounded_number_of_tokens(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """All brokers keep them in memory; renewers are bounded by the size of the node."""
    monkeypatch.setattr("ottla.broker.security.tokens.delegation_tokens._TOKENS_PER_OWNER_MAX", 2)
    with tokens_of(connect()) as (tokens,):
        for _ in range(2):
            tokens.create(ALICE, ALICE, [], -1)
        with pytest.raises(KafkaError, match="end some of them first"):
            tokens.create(ALICE, EVE, [], -1)
        with pytest.raises(KafkaError, match="too many renewers"):
            tokens.create(BOB, BOB, [f"User:{number}" for number in range(10_000)], -1)


def test_no_id_looks_like_an_option(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """Base64 of random bytes may start with a dash; commands would not take such an id."""
    drawn = iter([uuid.UUID(bytes=b"\xf8" + bytes(15)), uuid.UUID(bytes=bytes(16))])
    monkeypatch.setattr("ottla.broker.security.tokens.delegation_tokens.uuid.uuid4", lambda: next(drawn))
    with tokens_of(connect()) as (tokens,):
        assert tokens.create(ALICE, ALICE, [], -1).token_id == "A" * 22


def test_without_a_key_there_are_no_tokens(connect: Connect) -> None:
    """All is refused, and nothing is written."""
    zookeeper = connect()
    with tokens_of(zookeeper, delegation_token_secret_key="") as (tokens,):
        assert not tokens.is_enabled
        acts: list[Callable[[], object]] = [
            lambda: tokens.create(ALICE, ALICE, [], -1),
            lambda: tokens.renew(ALICE, b"", -1),
            lambda: tokens.expire(ALICE, b"", -1),
        ]
        for act in acts:
            with pytest.raises(KafkaError) as refused:
                act()
            assert refused.value.code is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert zookeeper.exists("/delegation_token") is None


def test_the_older_name_of_the_key_counts(connect: Connect) -> None:
    """As in Kafka."""
    zookeeper = connect()
    with tokens_of(zookeeper) as (first,):
        token = first.create(ALICE, ALICE, [], -1)
        with tokens_of(zookeeper, delegation_token_secret_key="", delegation_token_master_key=SECRET) as (second,):
            assert list(second) == [token]
