"""The broker's side of the mechanisms: against their RFCs, our client's side, and clients that cheat."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.broker.security.sasl.plain import plain
from ottla.broker.security.sasl.sasl_exchange import AuthenticationFailedError, Proof, SaslExchange
from ottla.broker.security.sasl.scram import TokenLogin, scram
from ottla.client.net.security import sasl
from ottla.protocol.scram import ITERATIONS_DEFAULT, ScramCredential, ScramMechanism, salted_password

USERS = {"alice": "secret", "bob": "Passwort mit ümlaut"}
NONCE = "rOprNGfwEbeRWgbNEkqO"
# RFC 7677, section 3.
RFC_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
RFC_SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
RFC_SERVER_FIRST = f"r={NONCE}{RFC_SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
RFC_CLIENT_FINAL = f"c=biws,r={NONCE}{RFC_SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
RFC_SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def credential(password: str, mechanism: str = "SCRAM-SHA-256", salt: bytes = RFC_SALT) -> ScramCredential:
    """What the broker keeps of a password."""
    kind = ScramMechanism.of(mechanism)
    return ScramCredential.derived(kind, salted_password(kind, password, salt, 4096), salt, 4096)


def begun(exchange: SaslExchange) -> SaslExchange:
    """An exchange that waits for its first token."""
    assert next(exchange) == b""
    return exchange


def proof_of(exchange: SaslExchange, *tokens: bytes) -> Proof:
    """Send tokens to the end, and return who the client is."""
    begun(exchange)
    for token in tokens[:-1]:
        exchange.send(token)
    with pytest.raises(StopIteration) as end:
        exchange.send(tokens[-1])
    assert isinstance(end.value.value, Proof)
    return end.value.value


def conversation(client: Generator[bytes, bytes, None], server: SaslExchange) -> Proof:
    """Let both sides talk to the end."""
    begun(server)
    token = next(client)
    while True:
        try:
            answer = server.send(token)
        except StopIteration as end:
            proof: Proof = end.value
            with pytest.raises(StopIteration):
                client.send(proof.last_token)
            return proof
        token = client.send(answer)


@pytest.mark.parametrize("token", [b"\0alice\0secret", b"alice\0alice\0secret"])
def test_plain_knows_who_has_the_right_password(token: bytes) -> None:
    """With or without the user's own name as the one to act as."""
    assert proof_of(plain(USERS), token) == Proof("alice")


def test_plain_takes_names_and_passwords_in_any_script() -> None:
    """They are UTF-8."""
    assert conversation(sasl.plain("bob", USERS["bob"]), plain(USERS)) == Proof("bob")


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\0\0",
        b"\0alice\0",
        b"\0\0secret",
        b"\0alice\0wrong",
        b"\0mallory\0secret",
        b"\0mallory\0",
        b"bob\0alice\0secret",
        b"\0alice\0secret\0",
        b"alice\0secret",
        b"\xff\0alice\0secret",
    ],
)
def test_plain_refuses_all_others(token: bytes) -> None:
    """Among them those who have a password and want to be somebody else."""
    with pytest.raises(AuthenticationFailedError) as refused:
        begun(plain(USERS)).send(token)
    assert "secret" not in str(refused.value)


def test_scram_says_what_its_rfc_says() -> None:
    """And knows the user in the end."""
    exchange = begun(scram("SCRAM-SHA-256", {"user": credential("pencil")}.get, b"", RFC_SERVER_NONCE))
    assert exchange.send(f"n,,n=user,r={NONCE}".encode()) == RFC_SERVER_FIRST
    with pytest.raises(StopIteration) as end:
        exchange.send(RFC_CLIENT_FINAL)
    assert end.value.value == Proof("user", RFC_SERVER_FINAL)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", ["alice", "a,b=c", "ünal"])
def test_scram_agrees_with_our_client(mechanism: str, user: str) -> None:
    """Also on names that hold its own separators."""
    known = {user: credential("pencil", mechanism)}
    client = sasl.scram(mechanism, user, "pencil")
    assert conversation(client, scram(mechanism, known.get, b"")).user == user


def client_final(client_first: bytes, server_first: bytes, password: str, **changes: str) -> bytes:
    """What a client with a password answers, with some parts changed behind its back."""
    client = sasl.scram("SCRAM-SHA-256", "user", password, NONCE)
    assert next(client) == client_first
    fields = dict(part.split("=", 1) for part in client.send(server_first).decode().split(","))
    return ",".join(f"{name}={value}" for name, value in (fields | changes).items()).encode()


@pytest.mark.parametrize(
    "changes",
    [
        {"r": NONCE},
        {"r": NONCE + "of-an-earlier-exchange"},
        {"c": base64.b64encode(b"y,,").decode()},
        {"c": base64.b64encode(b"n,a=admin,").decode()},
        {"p": base64.b64encode(bytes(32)).decode()},
        {"p": base64.b64encode(bytes(31)).decode()},
        {"p": "AAAA"},
        {"p": "A"},
    ],
)
def test_scram_refuses_a_last_message_that_does_not_belong_to_the_first(changes: dict[str, str]) -> None:
    """A nonce of another exchange, another header, or no proof at all."""
    exchange = begun(scram("SCRAM-SHA-256", {"user": credential("pencil")}.get, b""))
    first = f"n,,n=user,r={NONCE}".encode()
    final = client_final(first, exchange.send(first), "pencil", **changes)
    with pytest.raises(AuthenticationFailedError):
        exchange.send(final)


def test_scram_lets_a_client_repeat_its_nonce() -> None:
    """As librdkafka did for years, in front of both, and signed that."""
    exchange = begun(scram("SCRAM-SHA-256", {"user": credential("pencil")}.get, b"", RFC_SERVER_NONCE))
    exchange.send(f"n,,n=user,r={NONCE}".encode())
    bare = f"c=biws,r={NONCE}{NONCE}{RFC_SERVER_NONCE}"
    message = b",".join([f"n=user,r={NONCE}".encode(), RFC_SERVER_FIRST, bare.encode()])
    iterations = credential("pencil").iterations
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", credential("pencil").salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(credential("pencil").stored_key, message, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    with pytest.raises(StopIteration) as end:
        exchange.send(f"{bare},p={proof}".encode())
    assert end.value.value.user == "user"


def test_scram_cannot_be_replayed() -> None:
    """The broker's part of the nonce is another one each time."""
    known = {"user": credential("pencil")}
    first = f"n,,n=user,r={NONCE}".encode()
    recorded = begun(scram("SCRAM-SHA-256", known.get, b""))
    final = client_final(first, recorded.send(first), "pencil")
    with pytest.raises(StopIteration):
        recorded.send(final)
    replayed = begun(scram("SCRAM-SHA-256", known.get, b""))
    replayed.send(first)
    with pytest.raises(AuthenticationFailedError):
        replayed.send(final)


def test_scram_refuses_to_act_for_another_user() -> None:
    """Who proves to be alice is alice."""
    known = {"alice": credential("pencil"), "admin": credential("pencil")}
    with pytest.raises(AuthenticationFailedError):
        begun(scram("SCRAM-SHA-256", known.get, b"")).send(f"n,a=admin,n=alice,r={NONCE}".encode())


def test_a_user_who_is_not_there_looks_like_one_with_another_password() -> None:
    """The salt is the same each time, on every broker with the same secret, and the end is the same error."""

    def attempt(user: str, known: dict[str, ScramCredential]) -> tuple[dict[str, str], str]:
        exchange = begun(scram("SCRAM-SHA-256", known.get, b"shared by brokers"))
        first = f"n,,n=user,r={NONCE}".encode()
        server_first = exchange.send(first.replace(b"n=user", f"n={user}".encode()))
        final = client_final(first, server_first, "wrong")
        with pytest.raises(AuthenticationFailedError) as refused:
            exchange.send(final)
        return dict(part.split("=", 1) for part in server_first.decode().split(",")), str(refused.value)

    known = {"user": credential("pencil", salt=hashlib.sha256(b"salt").digest())}
    present, said_of_present = attempt("user", known)
    absent, said_of_absent = attempt("mallory", known)
    again, _ = attempt("mallory", {})
    other, _ = attempt("trudy", known)
    assert said_of_present == said_of_absent
    assert present.keys() == absent.keys()
    assert absent["s"] == again["s"] != other["s"]
    assert int(absent["i"]) == ITERATIONS_DEFAULT


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"n,,",
        b"y,,n=user,r=x",
        b"p=tls-unique,,n=user,r=x",
        b"n,,n=,r=x",
        b"n,,n=user",
        b"n,,n=user,r=",
        b"n,,n=us=er,r=x",
        b"n,,m=ext,n=user,r=x",
        b"n,,n=user,r=x\xff",
        b"n,,n=us\0er,r=x",
    ],
)
def test_scram_refuses_first_messages_that_it_cannot_read(token: bytes) -> None:
    """With the error of wrong credentials."""
    with pytest.raises(AuthenticationFailedError):
        begun(scram("SCRAM-SHA-256", {"user": credential("pencil")}.get, b"")).send(token)


@examples(300)
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=3), st.sampled_from(["plain", "scram"]))
def test_whatever_strangers_send_is_an_answer_or_a_refusal(tokens: list[bytes], mechanism: str) -> None:
    """And never another exception, and never a user."""
    makers: dict[str, Any] = {
        "plain": lambda: plain(USERS),
        "scram": lambda: scram("SCRAM-SHA-256", {"user": credential("pencil")}.get, b""),
    }
    exchange = begun(makers[mechanism]())
    for token in tokens:
        try:
            exchange.send(token)
        except AuthenticationFailedError:
            return


TOKEN_LOGIN = TokenLogin("alice", credential("hmac"), 123)


def token_scram(users: dict[str, str] | None = None) -> SaslExchange:
    """The broker's side, for users and one token."""
    known = users or {}
    return scram(
        "SCRAM-SHA-256",
        lambda user: credential(known[user]) if user in known else None,
        b"secret",
        token_login={"token-1": TOKEN_LOGIN}.get,
    )


def test_scram_with_a_token_proves_its_owner() -> None:
    """Until the token expires."""
    client = sasl.scram("SCRAM-SHA-256", "token-1", "hmac", by_token=True)
    proof = conversation(client, token_scram())
    assert (proof.user, proof.expires_ms, proof.by_token) == ("alice", 123, True)


@pytest.mark.parametrize(
    ("user", "password", "by_token"),
    [
        pytest.param("token-1", "hmac", False, id="token as a user"),
        pytest.param("bob", "secret", True, id="user as a token"),
        pytest.param("token-1", "other", True, id="wrong hmac"),
        pytest.param("token-2", "hmac", True, id="unknown token"),
        pytest.param("alice", "hmac", True, id="owner instead of the token"),
    ],
)
def test_tokens_and_users_do_not_stand_for_each_other(user: str, password: str, by_token: bool) -> None:
    """The extension decides where the name is looked up, and nowhere else."""
    with pytest.raises(AuthenticationFailedError, match="invalid credentials"):
        conversation(sasl.scram("SCRAM-SHA-256", user, password, by_token=by_token), token_scram({"bob": "secret"}))


def test_other_extensions_are_ignored() -> None:
    """As Kafka does: only `tokenauth=true` counts."""
    exchange = begun(token_scram({"bob": "secret"}))
    assert exchange.send(b"n,,n=bob,r=abc,tokenauth=false,x=1").startswith(b"r=abc")
    exchange = begun(token_scram())
    assert base64.b64encode(RFC_SALT) in exchange.send(b"n,,n=token-1,r=abc,x=1,TokenAuth=TRUE")
