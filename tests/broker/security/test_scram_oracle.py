"""SCRAM beside an implementation of somebody else: each side of ours with the other side of theirs."""

from __future__ import annotations

import pytest
from scramp import ScramClient, ScramException, ScramMechanism

from ottla.broker.security.sasl.sasl_exchange import AuthenticationFailedError, Proof
from ottla.broker.security.sasl.scram import scram as broker_side
from ottla.client.errors import SaslAuthenticationFailedError
from ottla.client.net.security import sasl
from ottla.protocol.scram import ScramCredential

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
USERS = ("alice", "=,=", "Ottla Kafková")
ITERATIONS = 4096


def stored(mechanism: str, password: str) -> ScramCredential:
    """What scramp says that is kept of a password."""
    info = ScramMechanism(mechanism).make_auth_info(password, ITERATIONS)
    salt, stored_key, server_key, iterations = info
    return ScramCredential(salt=salt, stored_key=stored_key, server_key=server_key, iterations=iterations)


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_broker_understands_their_client(mechanism: str, user: str) -> None:
    """It takes the right password, and its own proof is believed."""
    credential = stored(mechanism, "secret")
    client = ScramClient([mechanism], user, "secret")
    server = broker_side(mechanism, {user: credential}.get, b"fake")
    next(server)
    client.set_server_first(server.send(client.get_client_first().encode()).decode())
    with pytest.raises(StopIteration) as ended:
        server.send(client.get_client_final().encode())
    proof: Proof = ended.value.value
    assert proof.user == user
    client.set_server_final(proof.last_token.decode())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_broker_refuses_their_client_with_another_password(mechanism: str) -> None:
    """A proof made of another password is none."""
    client = ScramClient([mechanism], "alice", "guess")
    server = broker_side(mechanism, {"alice": stored(mechanism, "secret")}.get, b"fake")
    next(server)
    client.set_server_first(server.send(client.get_client_first().encode()).decode())
    with pytest.raises(AuthenticationFailedError):
        server.send(client.get_client_final().encode())


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_their_server_understands_our_client(mechanism: str, user: str) -> None:
    """Our proof is right, and we believe theirs."""
    theirs = ScramMechanism(mechanism)
    server = theirs.make_server(lambda name: theirs.make_auth_info({user: "secret"}[name], ITERATIONS))
    client = sasl.scram(mechanism, user, "secret")
    server.set_client_first(next(client).decode())
    server.set_client_final(client.send(server.get_server_first().encode()).decode())
    with pytest.raises(StopIteration):
        client.send(server.get_server_final().encode())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_their_server_refuses_our_client_with_another_password(mechanism: str) -> None:
    """And what it says then is an error of ours."""
    theirs = ScramMechanism(mechanism)
    server = theirs.make_server(lambda _name: theirs.make_auth_info("secret", ITERATIONS))
    client = sasl.scram(mechanism, "alice", "guess")
    server.set_client_first(next(client).decode())
    with pytest.raises(ScramException):
        server.set_client_final(client.send(server.get_server_first().encode()).decode())
    with pytest.raises(SaslAuthenticationFailedError):
        client.send(server.get_server_final().encode())
