"""How far an authentication has come: steps in their order, and repetitions in their time."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from tests.kit.clock import FakeClock

from ottla.broker.config import BrokerConfig, ConfigError
from ottla.broker.security.sasl.authentication import Authentication, NotAuthenticatedError
from ottla.broker.security.sasl.invented_credentials import CredentialStyle
from ottla.broker.security.sasl.sasl_listener import SaslListener
from ottla.broker.security.sasl.scram import TokenLogin
from ottla.broker.security.session import ANONYMOUS, Session
from ottla.client.net.security import sasl
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.scram import ScramCredential, ScramMechanism, salted_password

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
NO_USERS: Any = SimpleNamespace(
    get=lambda mechanism, user: None, secret=b"secret", style=lambda _mechanism: CredentialStyle()
)
FREE_APIS = {Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE}
RIGHT = b"\0alice\0secret"


def listener(credentials: Any = NO_USERS, tokens: Any = None, **options: str) -> SaslListener:
    """A SASL listener with PLAIN and SCRAM."""
    config = BrokerConfig.of(
        {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "ottla.sasl.plain.allow.without.tls": "true",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                f'{MODULE} required username="broker" password="b" user_alice="secret" user_bob="secret";'
            ),
            **{key if "." in key else key.replace("_", "."): value for key, value in options.items()},
        }
    )
    return SaslListener("SASL_PLAINTEXT", lambda: config, credentials, tokens)


def authentication(clock: FakeClock[float] | None = None, **options: str) -> tuple[Authentication, Session]:
    """A new one, with the session that it changes."""
    session = Session("SASL_PLAINTEXT", "127.0.0.1")
    clock = clock or FakeClock(1000.0)
    return Authentication(listener(**options), session, clock, clock), session


def test_before_it_is_done_only_its_own_steps_are_admitted() -> None:
    """All other APIs close the connection, in every state before the last one."""
    begun, _ = authentication()
    for step in (lambda: None, lambda: begun.handshake("PLAIN", 1)):
        step()
        for api in Api:
            if api in FREE_APIS:
                begun.check(api)
            else:
                with pytest.raises(NotAuthenticatedError):
                    begun.check(api)
    assert begun.step(RIGHT).error is ErrorCode.NONE
    for api in Api:
        begun.check(api)


def test_the_principal_is_known_at_the_end_and_not_before() -> None:
    """Whoever asks in between is nobody."""
    begun, session = authentication()
    admitted: list[str] = []
    begun.on_done = lambda: admitted.append(session.principal)
    begun.handshake("PLAIN", 1)
    assert session.principal == ANONYMOUS
    step = begun.step(RIGHT)
    assert (step.error, step.token, step.lifetime_ms) == (ErrorCode.NONE, b"", 0)
    assert session.principal == "User:alice"
    assert admitted == ["User:alice"]


def test_a_mechanism_that_the_listener_lacks_is_not_taken() -> None:
    """The client is told which there are."""
    begun, _ = authentication()
    assert begun.handshake("GSSAPI", 1) is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert begun.mechanisms == ("PLAIN", "SCRAM-SHA-256")


def test_steps_out_of_order_are_illegal() -> None:
    """A token before the handshake, a second handshake, and both after the end."""
    begun, _ = authentication()
    assert begun.step(RIGHT).error is ErrorCode.ILLEGAL_SASL_STATE
    assert begun.handshake("PLAIN", 1) is ErrorCode.NONE
    assert begun.handshake("PLAIN", 1) is ErrorCode.ILLEGAL_SASL_STATE
    assert begun.step(RIGHT).error is ErrorCode.NONE
    assert begun.handshake("PLAIN", 1) is ErrorCode.ILLEGAL_SASL_STATE
    assert begun.step(RIGHT).error is ErrorCode.ILLEGAL_SASL_STATE


def test_raw_tokens_follow_a_handshake_of_version_0_only() -> None:
    """Until the exchange is over."""
    begun, _ = authentication()
    begun.handshake("PLAIN", 0)
    assert begun.expects_raw_token
    begun.step(RIGHT)
    assert not begun.expects_raw_token


def test_a_failure_does_not_say_whether_the_user_is_there() -> None:
    """Nor does it repeat what was sent."""
    said = set()
    for token in (b"\0alice\0planted", b"\0mallory\0planted"):
        begun, session = authentication()
        begun.handshake("PLAIN", 1)
        step = begun.step(token)
        assert step.error is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert session.principal == ANONYMOUS
        said.add(step.message)
    assert said == {"Authentication failed: Invalid username or password"}


def test_an_authentication_lasts_as_long_as_configured() -> None:
    """The client is told, and closed out when it does not repeat it in time."""
    clock = FakeClock(1000.0)
    begun, _ = authentication(clock, connections_max_reauth_ms="60000")
    begun.handshake("PLAIN", 1)
    assert begun.step(RIGHT).lifetime_ms == 60_000
    clock.now += 60
    begun.check(Api.PRODUCE)
    clock.now += 0.001
    with pytest.raises(NotAuthenticatedError):
        begun.check(Api.PRODUCE)
    begun.check(Api.SASL_HANDSHAKE)


def test_an_authentication_is_repeated_on_the_same_connection() -> None:
    """Requests in between are served as before."""
    clock = FakeClock(1000.0)
    begun, session = authentication(clock, connections_max_reauth_ms="60000")
    begun.handshake("PLAIN", 1)
    begun.step(RIGHT)
    for _ in range(3):
        clock.now += 50
        assert begun.handshake("PLAIN", 1) is ErrorCode.NONE
        begun.check(Api.PRODUCE)
        assert begun.step(RIGHT).lifetime_ms == 60_000
    assert session.principal == "User:alice"


def test_a_repetition_cannot_change_the_user_or_the_mechanism() -> None:
    """Else what was begun as one would be finished as another."""
    begun, session = authentication(connections_max_reauth_ms="60000")
    begun.handshake("PLAIN", 1)
    begun.step(RIGHT)
    begun.handshake("PLAIN", 1)
    assert begun.step(b"\0bob\0secret").error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert session.principal == "User:alice"


def test_an_exchange_has_few_rounds() -> None:
    """However often a client sends."""
    begun, _ = authentication()
    begun.handshake("SCRAM-SHA-256", 1)
    assert begun.step(b"n,,n=user,r=x").error is ErrorCode.NONE
    assert begun.step(b"again").error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert begun.step(b"again").error is ErrorCode.ILLEGAL_SASL_STATE


def test_failures_of_one_peer_are_logged_once_in_a_while(capsys: pytest.CaptureFixture[str]) -> None:
    """And all are counted."""
    busy = listener()
    for _ in range(100):
        begun = Authentication(busy, Session("SASL_PLAINTEXT", "10.0.0.1"))
        begun.handshake("PLAIN", 1)
        begun.step(b"\0alice\0planted")
    assert busy.failures == 100
    said = capsys.readouterr().out
    assert said.count("authentication_failed") <= 1
    assert "planted" not in said


def test_scram_asks_for_what_zookeeper_has() -> None:
    """By mechanism and user."""
    asked = []

    def get(mechanism: str, user: str) -> ScramCredential | None:
        asked.append((mechanism, user))
        return None

    users = SimpleNamespace(get=get, secret=NO_USERS.secret, style=NO_USERS.style)
    begun = Authentication(listener(users), Session("SASL_PLAINTEXT", "127.0.0.1"))
    begun.handshake("SCRAM-SHA-256", 1)
    begun.step(b"n,,n=alice,r=x")
    assert asked == [("SCRAM-SHA-256", "alice")]


@pytest.mark.parametrize(
    "jaas",
    [
        "",
        "nonsense",
        f"{MODULE} required user_alice=planted",
        "x.y.JndiLoginModule required a=planted;",
        f"{SCRAM} required a=planted;",
    ],
)
def test_a_login_that_cannot_be_read_stops_the_start(jaas: str) -> None:
    """The message names the option, and nothing of what is in it."""
    with pytest.raises(ConfigError) as refused:
        listener(**{"listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas})
    assert "planted" not in str(refused.value)


TOKEN_SALT = b"some salt"


def token_authentication(expires_ms: int, clock: FakeClock[float]) -> tuple[Authentication, Session]:
    """A login at a listener that knows one delegation token of alice."""
    kind = ScramMechanism.SCRAM_SHA_256
    salted = salted_password(kind, "hmac", TOKEN_SALT, 4096)
    login = TokenLogin("alice", ScramCredential.derived(kind, salted, TOKEN_SALT, 4096), expires_ms)
    tokens: Any = SimpleNamespace(login=lambda mechanism, token_id: login if token_id == "token" else None)
    session = Session("SASL_PLAINTEXT", "127.0.0.1")
    return Authentication(listener(tokens=tokens), session, clock, clock), session


def logged_in(begun: Authentication, user: str = "token", password: str = "hmac", *, by_token: bool = True) -> Any:
    """Go through SCRAM; return the last answer."""
    client = sasl.scram("SCRAM-SHA-256", user, password, by_token=by_token)
    assert begun.handshake("SCRAM-SHA-256", 1) is ErrorCode.NONE
    first = begun.step(next(client))
    return begun.step(client.send(first.token))


def test_a_login_with_a_token_is_one_of_its_owner_until_it_expires() -> None:
    """The client is told when, and closed out then unless it has a longer one."""
    clock = FakeClock(1000.0)
    begun, session = token_authentication(1_060_000, clock)
    answer = logged_in(begun)
    assert (answer.error, answer.lifetime_ms) == (ErrorCode.NONE, 60_000)
    assert (session.principal, session.by_token) == ("User:alice", True)
    clock.now += 60
    begun.check(Api.PRODUCE)
    clock.now += 0.001
    with pytest.raises(NotAuthenticatedError):
        begun.check(Api.PRODUCE)


def test_an_expired_token_logs_nobody_in() -> None:
    """Although the controller has not deleted it yet."""
    begun, session = token_authentication(999_999, FakeClock(1000.0))
    answer = logged_in(begun)
    assert (answer.error, session.principal) == (ErrorCode.SASL_AUTHENTICATION_FAILED, ANONYMOUS)


class Issuer:
    """Somebody who signs tokens, and publishes the key."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "jwks.json"
        self.rotate("first")

    def rotate(self, key_id: str) -> None:
        """Sign with a new key."""
        self.key, self.key_id = ec.generate_private_key(ec.SECP256R1()), key_id
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key()))
        self.path.write_text(json.dumps({"keys": [{**public, "kid": key_id, "use": "sig", "alg": "ES256"}]}))

    def token(self, **changes: Any) -> str:
        """A token that is good, with some claims changed; None takes one away."""
        claims = {"sub": "alice", "iss": "https://issuer", "aud": "ottla", "exp": int(time.time()) + 600, **changes}
        claims = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(claims, self.key, "ES256", headers={"kid": self.key_id})


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    """An issuer with one key."""
    return Issuer(tmp_path)


def bearer_listener(issuer: Issuer) -> SaslListener:
    """A listener that takes the issuer's tokens."""
    return listener(
        sasl_enabled_mechanisms="OAUTHBEARER",
        sasl_mechanism_inter_broker_protocol="OAUTHBEARER",
        sasl_oauthbearer_jwks_endpoint_url=issuer.path.as_uri(),
        sasl_oauthbearer_expected_issuer="https://issuer",
        sasl_oauthbearer_expected_audience="ottla,other",
        sasl_oauthbearer_clock_skew_seconds="5",
    )


def shown(to: SaslListener, token: str, user: str = "") -> tuple[Authentication, Session, Any]:
    """Show a token, and return what became of it."""
    session = Session("SASL_PLAINTEXT", "127.0.0.1")
    begun = Authentication(to, session)
    begun.handshake("OAUTHBEARER", 1)
    header = f"n,a={user}," if user else "n,,"
    return begun, session, begun.step(f"{header}\x01auth=Bearer {token}\x01\x01".encode())


def test_a_signed_token_says_who_and_for_how_long(issuer: Issuer) -> None:
    """The authentication ends when the token does."""
    to = bearer_listener(issuer)
    for user in ("", "alice"):
        _, session, step = shown(to, issuer.token(), user)
        assert step.error is ErrorCode.NONE
        assert 500_000 < step.lifetime_ms <= 600_000
        assert session.principal == "User:alice"


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": 1},
        {"exp": None},
        {"nbf": 1 << 40},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"iss": "https://somebody-else"},
        {"aud": "another-service"},
        {"aud": None},
        {"scope": {"a": 1}},
    ],
)
def test_a_token_that_says_something_else_is_refused(issuer: Issuer, changes: dict[str, Any]) -> None:
    """First in the mechanism's own words; then, when the client has answered, in Kafka's."""
    begun, session, step = shown(bearer_listener(issuer), issuer.token(**changes))
    assert (step.error, step.token) == (ErrorCode.NONE, b'{"status":"invalid_token"}')
    assert begun.step(b"\x01").error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert session.principal == ANONYMOUS


def test_tokens_of_others_are_refused(issuer: Issuer, tmp_path: Path) -> None:
    """Signed by another key, by none, or with the public key as if it were a secret."""
    (tmp_path / "other").mkdir()
    other = Issuer(tmp_path / "other")
    claims = {"sub": "alice", "iss": "https://issuer", "aud": "ottla", "exp": int(time.time()) + 600}
    shared = jwt.encode(claims, "x" * 64, "HS256", headers={"kid": "first"})
    unsigned = jwt.encode(claims, "", "none", headers={"kid": "first"})
    for token in (other.token(), shared, unsigned, "a.b.c", "garbage"):
        begun, _, step = shown(bearer_listener(issuer), token)
        assert step.token == b'{"status":"invalid_token"}'
        assert not begun.is_done


def test_a_token_cannot_be_used_to_act_for_another(issuer: Issuer) -> None:
    """The user is whom the token names."""
    _, session, step = shown(bearer_listener(issuer), issuer.token(), "admin")
    assert step.error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert session.principal == ANONYMOUS


def test_new_keys_are_taken_from_the_file(issuer: Issuer) -> None:
    """And a broken file leaves those that are known."""
    to = bearer_listener(issuer)
    old = issuer.token()
    issuer.rotate("second")
    assert shown(to, issuer.token())[2].error is ErrorCode.NONE
    assert shown(to, old)[2].token == b'{"status":"invalid_token"}'
    issuer.path.write_text("{")
    assert shown(to, issuer.token())[0].is_done


@pytest.mark.parametrize(
    "url", ["http://issuer/keys", "http://169.254.169.254/", "file://other-host/keys", "ftp://127.0.0.1/x", "/no/such"]
)
def test_keys_come_from_local_files_or_by_https(issuer: Issuer, url: str) -> None:
    """A broker with any other setting does not start."""
    with pytest.raises(ConfigError):
        listener(
            sasl_enabled_mechanisms="OAUTHBEARER",
            sasl_mechanism_inter_broker_protocol="OAUTHBEARER",
            sasl_oauthbearer_jwks_endpoint_url=url,
        )
