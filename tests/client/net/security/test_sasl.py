"""SASL, against the vectors of its RFCs, and on a connection."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.scripted_broker import HANGUP, Reply, scripted_broker
from tests.kit.coroutines import BOTH_LOOPS

from ottla.client.errors import SaslAuthenticationFailedError, UnsupportedSaslMechanismError
from ottla.client.net.asyncio_connection import AsyncioConnection
from ottla.client.net.security import sasl
from ottla.client.net.settings import ClientSettings
from ottla.protocol.api import Api
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeResponse

pytestmark = BOTH_LOOPS

NONCE = "rOprNGfwEbeRWgbNEkqO"
# RFC 7677, section 3.
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def exchange() -> sasl.SaslExchange:
    """The exchange of the RFC, up to the broker's first answer."""
    begun = sasl.scram("SCRAM-SHA-256", "user", "pencil", NONCE)
    assert next(begun) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    return begun


def test_scram_says_what_its_rfc_says() -> None:
    """And believes the broker that proves itself."""
    begun = exchange()

    assert begun.send(SERVER_FIRST) == CLIENT_FINAL
    with pytest.raises(StopIteration):
        begun.send(SERVER_FINAL)


@pytest.mark.parametrize(
    "answers",
    [
        [b"r=somebody-else,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"],
        [b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=99999999"],
        [b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1"],
        [b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4095"],
        [b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=" + b"9" * 5000],
        [b"r=rOprNGfwEbeRWgbNEkqOx,s=not base64,i=4096"],
        [b"\xff\xfe"],
        [SERVER_FIRST, b"e=invalid-proof"],
        [SERVER_FIRST, b"v=AAAA"],
        [SERVER_FIRST, b""],
    ],
)
def test_scram_refuses_a_broker_that_does_not_prove_itself(answers: list[bytes]) -> None:
    """With the error of wrong credentials."""
    begun = exchange()

    def speak() -> None:
        for answer in answers:
            begun.send(answer)

    with pytest.raises(SaslAuthenticationFailedError):
        speak()


def test_names_with_commas_and_equals_signs_are_escaped() -> None:
    """They would end the field."""
    assert next(sasl.scram("SCRAM-SHA-512", "a=b,c", "x", "n")) == b"n,,n=a=3Db=2Cc,r=n"


def test_plain_and_oauth_send_one_token() -> None:
    """OAUTHBEARER gets the reason when the broker does not like it."""
    assert next(sasl.plain("me", "secret")) == b"\0me\0secret"
    begun = sasl.oauth_bearer("token")
    assert next(begun) == b"n,,\x01auth=Bearer token\x01\x01"
    with pytest.raises(SaslAuthenticationFailedError, match="expired"):
        begun.send(b"expired")


async def secured(api: Api, version: int, request: Any) -> Reply:
    """A broker that lets `me` in with `secret`."""
    if api is Api.SASL_HANDSHAKE:
        known = request.mechanism == "PLAIN"
        return SaslHandshakeResponse(error_code=0 if known else 33, mechanisms=["PLAIN"])
    if api is Api.SASL_AUTHENTICATE:
        if request.auth_bytes == b"\0me\0secret":
            return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=1)
        return SaslAuthenticateResponse(error_code=58, error_message="no such user", auth_bytes=b"")
    return HeartbeatResponse(error_code=0) if api is Api.HEARTBEAT else HANGUP


def options(password: str, mechanism: Any = "PLAIN") -> ClientSettings:
    """Settings for that broker."""
    return ClientSettings(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="me",
        sasl_plain_password=password,
    )


async def test_a_connection_authenticates_before_anything_else() -> None:
    """When the broker's belief ends soon, new requests are to go to another connection."""
    async with scripted_broker(secured) as broker:
        connection = await AsyncioConnection.open(*broker.address, options("secret"))
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        assert (await connection.request(Api.HEARTBEAT, request)).error_code == 0
        while not connection.is_expiring:
            await connection.request(Api.HEARTBEAT, request)
        await connection.close()

    assert [api for api, _ in broker.requests[:3]] == [Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE, Api.HEARTBEAT]


async def test_wrong_credentials_and_mechanisms_are_told_apart() -> None:
    """Neither is retriable."""
    async with scripted_broker(secured) as broker:
        with pytest.raises(SaslAuthenticationFailedError, match="no such user"):
            await AsyncioConnection.open(*broker.address, options("wrong"))
        with pytest.raises(
            UnsupportedSaslMechanismError, match="SCRAM-SHA-256 is not offered; the broker offers PLAIN"
        ):
            await AsyncioConnection.open(*broker.address, options("secret", "SCRAM-SHA-256"))
