"""Authentication over real sockets: what strangers get, which is next to nothing, and how clients come in."""

from __future__ import annotations

import socket
import struct
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.network.serving import Served, receive_frame, send_frame, serving_securely
from tests.kit.examples import examples
from tests.kit.services import services_of

from ottla.broker.common.timings import RequestMetrics
from ottla.broker.config import BrokerConfig
from ottla.broker.handlers.table import HANDLERS
from ottla.broker.network import limits
from ottla.broker.requests.dispatch import Dispatcher
from ottla.broker.requests.request import AnyRequest
from ottla.broker.security.listener_security import ListenerSecurity
from ottla.broker.security.sasl.invented_credentials import CredentialStyle
from ottla.broker.security.sasl.sasl_listener import SaslListener
from ottla.client.net.blocking_connection import BlockingConnection
from ottla.client.net.security import login, sasl
from ottla.client.net.security.login import SaslLogin
from ottla.protocol.api import Api
from ottla.protocol.codec import encode
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Message
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.messages.headers import RequestHeader
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.requests import decode_response
from ottla.protocol.scram import ScramCredential, ScramMechanism, salted_password

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
FREE = (Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE)
TIMEOUT_MS = 60_000
ASKED = DescribeClusterRequest(include_cluster_authorized_operations=False)
RIGHT = b"\0alice\0secret"


class SaslServed:
    """A network with SASL, what reached its handlers, and how to connect to it."""

    def __init__(self, served: Served, listener: SaslListener, handled: list[Api]) -> None:
        self.served = served
        self.listener = listener
        self.handled = handled

    def connection(self, login: SaslLogin | None) -> BlockingConnection:
        """A connection of our own client."""
        return BlockingConnection(
            "127.0.0.1",
            self.served.port,
            client_id="test",
            connect_timeout_ms=TIMEOUT_MS,
            request_timeout_ms=TIMEOUT_MS,
            login=login,
        )


def credential(mechanism: str, user: str) -> ScramCredential | None:
    """What ZooKeeper would have: one user."""
    if user != "alice":
        return None
    kind = ScramMechanism.of(mechanism)
    return ScramCredential.derived(kind, salted_password(kind, "secret", b"salt" * 5, 4096), b"salt" * 5, 4096)


@contextmanager
def serving_sasl(**options: str) -> Iterator[SaslServed]:
    """Serve with SASL in the clear; handlers answer with the principal, as the id of a cluster."""
    config = BrokerConfig.of(
        {
            "broker.id": "1",
            "log.dirs": "/nowhere",
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "ottla.sasl.plain.allow.without.tls": "true",
            "sasl.jaas.config": f'{MODULE} required username="b" password="b" user_alice="secret" user_bob="secret";',
            **{key.replace("_", "."): value for key, value in options.items()},
        }
    )
    handled: list[Api] = []

    def answer(request: AnyRequest) -> Message:
        handled.append(request.api)
        return DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=0,
            error_message=None,
            cluster_id=request.session.principal,
            controller_id=1,
            brokers=[],
            cluster_authorized_operations=0,
        )

    handlers = {api: entry if api in FREE else entry._replace(handle=answer) for api, entry in HANDLERS.items()}
    users: Any = SimpleNamespace(get=credential, secret=b"secret", style=lambda _mechanism: CredentialStyle())
    listener = SaslListener("SASL_PLAINTEXT", lambda: config, users)
    dispatcher = Dispatcher(handlers, services_of(config).for_handlers(), lambda: config, RequestMetrics())
    with serving_securely(dispatcher.dispatch, config, {"SASL_PLAINTEXT": ListenerSecurity(None, listener)}) as served:
        yield SaslServed(served, listener, handled)


@pytest.fixture(scope="module")
def served() -> Iterator[SaslServed]:
    """One network for the tests that change nothing in it."""
    with serving_sasl() as made:
        yield made


def framed(api: Api, version: int, body: bytes, correlation_id: int = 7) -> bytes:
    """A request as it is sent."""
    header = RequestHeader(
        request_api_key=api, request_api_version=version, correlation_id=correlation_id, client_id="test"
    )
    whole = encode(header, api.request_header_version(version)) + body
    return len(whole).to_bytes(4) + whole


def asked(client: socket.socket, api: Api, version: int, message: Message) -> Any:
    """Send a request, and return the response."""
    client.sendall(framed(api, version, encode(message, version)))
    answer = receive_frame(client)
    assert answer is not None
    return decode_response(api, version, answer)[1]


def is_closed(client: socket.socket) -> bool:
    """Wait for the next byte, and return whether the connection ended instead."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def who_am_i(connection: BlockingConnection) -> str:
    """Ask for the principal."""
    return str(connection.request(Api.DESCRIBE_CLUSTER, 0, ASKED).cluster_id)


@pytest.mark.parametrize("api", list(Api), ids=lambda api: api.label)
def test_strangers_get_no_answer_but_from_three_apis(served: SaslServed, api: Api) -> None:
    """Whatever the version, the connection is closed, and no handler has heard of it."""
    handled = served.handled.copy()
    for version in range(api.versions.first, api.versions.last + 1):
        with served.served.connect() as client:
            if api in FREE:
                continue
            client.sendall(framed(api, version, bytes(64)))
            assert is_closed(client)
    assert served.handled == handled


def test_what_is_sent_behind_a_wrong_request_does_not_take_effect(served: SaslServed) -> None:
    """Nor what is sent behind a login that fails, all in one go."""
    handshake = framed(Api.SASL_HANDSHAKE, 1, encode(SaslHandshakeRequest(mechanism="PLAIN"), 1))
    wrong = framed(Api.SASL_AUTHENTICATE, 1, encode(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 1))
    right = framed(Api.SASL_AUTHENTICATE, 1, encode(SaslAuthenticateRequest(auth_bytes=RIGHT), 1))
    produce = framed(Api.PRODUCE, 9, bytes(64))
    for sent in (produce + handshake + right + produce, handshake + wrong + handshake + right + produce):
        with served.served.connect() as client:
            client.sendall(sent)
            while client.recv(65536):
                pass
    assert Api.PRODUCE not in served.handled


def test_strangers_may_ask_for_versions(served: SaslServed) -> None:
    """Before and after they have chosen a mechanism; the answer says nothing about topics."""
    with served.served.connect() as client:
        first = asked(client, Api.API_VERSIONS, 0, ApiVersionsRequest())
        handshake = asked(client, Api.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
        assert handshake.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        assert asked(client, Api.API_VERSIONS, 0, ApiVersionsRequest()) == first


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_client_with_the_right_password_is_served(served: SaslServed, mechanism: str) -> None:
    """As the user that it is, with requests of any size from then on."""

    def begin() -> sasl.SaslExchange:
        if mechanism == "PLAIN":
            return sasl.plain("alice", "secret")
        return sasl.scram(mechanism, "alice", "secret")

    connection = served.connection(SaslLogin(mechanism, begin))
    try:
        assert who_am_i(connection) == "User:alice"
        large = connection.request_encoded(Api.DESCRIBE_CLUSTER, 0, bytes(1_000_000))
        assert large.cluster_id == "User:alice"
    finally:
        connection.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_client_with_a_wrong_password_is_told_and_closed(mechanism: str) -> None:
    """After the pause that is configured, without holding up others."""
    with serving_sasl(connection_failed_authentication_delay_ms="300", num_io_threads="1") as served:
        begin = (
            (lambda: sasl.plain("alice", "planted"))
            if mechanism == "PLAIN"
            else (lambda: sasl.scram(mechanism, "alice", "planted"))
        )
        refused = served.connection(SaslLogin(mechanism, begin))
        started = time.monotonic()
        with pytest.raises(KafkaError) as error:
            refused.connect()
        assert time.monotonic() - started >= 0.25, "timers may be a little early"
        assert error.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "planted" not in str(error.value)
        assert served.listener.failures == 1


def test_a_mechanism_that_is_not_offered_is_named_with_those_that_are(served: SaslServed) -> None:
    """And the connection is closed."""
    connection = served.connection(SaslLogin("GSSAPI", lambda: sasl.plain("a", "b")))
    with pytest.raises(KafkaError, match="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512") as error:
        connection.connect()
    assert error.value.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM


def test_tokens_without_requests_around_them_follow_version_0(served: SaslServed) -> None:
    """And requests follow them."""
    with served.served.connect() as client:
        assert asked(client, Api.SASL_HANDSHAKE, 0, SaslHandshakeRequest(mechanism="PLAIN")).error_code == 0
        send_frame(client, RIGHT)
        assert receive_frame(client) == b""
        assert asked(client, Api.DESCRIBE_CLUSTER, 0, ASKED).cluster_id == "User:alice"
    with served.served.connect() as client:
        asked(client, Api.SASL_HANDSHAKE, 0, SaslHandshakeRequest(mechanism="PLAIN"))
        send_frame(client, b"\0alice\0wrong")
        assert is_closed(client), "there is no way to say why"


def test_an_authentication_is_not_begun_twice(served: SaslServed) -> None:
    """On a connection that is authenticated for good, that is an error, and the connection goes on."""
    with served.served.connect() as client:
        asked(client, Api.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
        assert asked(client, Api.SASL_AUTHENTICATE, 1, SaslAuthenticateRequest(auth_bytes=RIGHT)).error_code == 0
        again = asked(client, Api.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
        assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
        token = asked(client, Api.SASL_AUTHENTICATE, 1, SaslAuthenticateRequest(auth_bytes=RIGHT))
        assert token.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert asked(client, Api.DESCRIBE_CLUSTER, 0, ASKED).cluster_id == "User:alice"


def test_a_client_repeats_its_login_before_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own does it by itself, on the same connection: here as early as can be."""
    monkeypatch.setattr(login, "_LIFETIME_SHARE", 0.0)
    with serving_sasl(connections_max_reauth_ms="60000") as served:
        connection = served.connection(
            SaslLogin("SCRAM-SHA-256", lambda: sasl.scram("SCRAM-SHA-256", "alice", "secret"))
        )
        try:
            assert [who_am_i(connection) for _ in range(3)] == ["User:alice"] * 3
            (only,) = served.served.on_loop(served.served.network.connections)
            assert only.requests >= 12, "three requests for each login, and one for the question"
        finally:
            connection.close()
        assert served.listener.successes >= 3


def test_strangers_send_small_requests_only(served: SaslServed) -> None:
    """A size of more than 64 KiB is refused before a byte of it is taken."""
    for size in (64 * 1024 + 1, 100 * 1024 * 1024, 2**31 - 1):
        with served.served.connect() as client:
            client.sendall(struct.pack(">i", size))
            assert is_closed(client)


def test_the_smaller_of_two_limits_counts() -> None:
    """Where an option says less than we would."""
    with serving_sasl(sasl_server_max_receive_size="1000") as served, served.served.connect() as client:
        client.sendall(struct.pack(">i", 1001))
        assert is_closed(client)


def test_authenticating_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for those who have asked for something."""
    monkeypatch.setattr(limits, "SETUP_SECONDS", 0.0)
    with serving_sasl() as served, served.served.connect() as client:
        assert asked(client, Api.API_VERSIONS, 0, ApiVersionsRequest()).error_code == 0
        assert is_closed(client)


HOSTILE = st.one_of(
    st.binary(max_size=2000),
    st.binary(max_size=300).map(lambda body: len(body).to_bytes(4) + body),
    st.tuples(st.sampled_from(list(Api)), st.integers(-1, 20), st.binary(max_size=300)).map(
        lambda made: (len(made[2]) + 10).to_bytes(4) + struct.pack(">hhih", made[0], made[1], 1, -1) + made[2]
    ),
    st.binary(max_size=300).map(
        lambda token: (
            framed(Api.SASL_HANDSHAKE, 1, encode(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1))
            + framed(Api.SASL_AUTHENTICATE, 1, encode(SaslAuthenticateRequest(auth_bytes=token), 1))
        )
    ),
)


@examples(100)
@given(st.lists(HOSTILE, min_size=1, max_size=4))
def test_hostile_bytes_get_nobody_in(served: SaslServed, pieces: list[bytes]) -> None:
    """They end in a closed connection or in silence, and others are served meanwhile."""
    with served.served.connect() as client:
        for piece in pieces:
            try:
                client.sendall(piece)
            except ConnectionError:
                break
    assert served.handled.count(Api.PRODUCE) == 0


def test_strangers_cost_bounded_memory(served: SaslServed) -> None:
    """A hundred that each announce as much as they may, and send half of it."""
    clients = []
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(100):
            client = served.served.connect()
            clients.append(client)
            client.sendall(struct.pack(">i", 64 * 1024) + bytes(32 * 1024))
        served.served.on_loop(lambda: None)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        for client in clients:
            client.close()
    assert peak - before < 100 * 200 * 1024


def test_listeners_without_sasl_say_so() -> None:
    """Both requests are an error in the client's state."""
    config = BrokerConfig.of({"broker.id": "1", "log.dirs": "/nowhere"})
    dispatcher = Dispatcher(HANDLERS, services_of(config).for_handlers(), lambda: config, RequestMetrics())
    with serving_securely(dispatcher.dispatch, config, {}) as served, served.connect() as client:
        handshake = asked(client, Api.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
        assert handshake.error_code == ErrorCode.ILLEGAL_SASL_STATE
        token = asked(client, Api.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b""))
        assert token.error_code == ErrorCode.ILLEGAL_SASL_STATE
