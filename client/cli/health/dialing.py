"""What is behind an address, as seen from this host: a Kafka broker, something else, or nothing."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import ssl
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ottla.client.errors import KafkaConnectionError, KafkaError
from ottla.client.net.asyncio_connection import AsyncioConnection
from ottla.client.net.settings import ClientSettings, HostPort
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest

_FIRST_BYTES_MAX: Final = 64
# The server has accepted a connection before, so it answers quickly.
_QUESTION_TIMEOUT_S: Final = 1.0
# The first version that names the cluster.
_METADATA_VERSION_MIN: Final = 2


class DialVerdict(StrEnum):
    """What an address turned out to be."""

    KAFKA = "speaks Kafka"
    UNKNOWN_NAME = "the name does not resolve here"
    REFUSED = "nothing listens there"
    SILENT = "no answer: a firewall, or a host that is down"
    TLS = "speaks TLS, and we speak plaintext"
    PLAINTEXT = "speaks plaintext, and we speak TLS"
    SASL = "requires SASL, and we do not authenticate"
    ZOOKEEPER = "is ZooKeeper, not a broker"
    HTTP = "speaks HTTP, not Kafka"
    PASSWORD = "rejects this user and password"  # noqa: S105 - a message
    MECHANISM = "does not offer this SASL mechanism"
    UNTRUSTED = "has a certificate of an authority that we do not trust"
    EXPIRED = "has a certificate that is expired or not yet valid"
    OTHER_NAME = "has a certificate for another name"
    CLIENT_CERTIFICATE = "requires a client certificate"
    FAILED = "refuses this client"


# A request, the start of the response, and the server that sends it. A broker closes the connection instead.
_QUESTIONS: Final = (
    (b"srvr", b"Zookeeper version", DialVerdict.ZOOKEEPER),
    (b"GET / HTTP/1.0\r\n\r\n", b"HTTP/", DialVerdict.HTTP),
)


# OpenSSL's codes for problems of a certificate other than its signature.
_CERTIFICATES: Final = {
    9: DialVerdict.EXPIRED,
    10: DialVerdict.EXPIRED,
    62: DialVerdict.OTHER_NAME,
    64: DialVerdict.OTHER_NAME,
}
_AUTHENTICATION: Final = {
    ErrorCode.SASL_AUTHENTICATION_FAILED: DialVerdict.PASSWORD,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: DialVerdict.MECHANISM,
}


@dataclass(frozen=True, slots=True)
class Dialed:
    """The result of connecting to an address."""

    address: HostPort
    verdict: DialVerdict
    detail: str = ""
    cluster_id: str | None = None

    @property
    def is_broker(self) -> bool:
        """Whether clients can use the address."""
        return self.verdict is DialVerdict.KAFKA


async def dial(address: HostPort, settings: ClientSettings) -> Dialed:
    """Resolve, connect, and request versions and metadata; if that fails, find out what is there instead."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(settings.connect_timeout_ms / 1000):
            await loop.getaddrinfo(*address)
            _, writer = await asyncio.open_connection(*address)
            await _close(writer)
    except ConnectionRefusedError:
        return Dialed(address, DialVerdict.REFUSED)
    except TimeoutError:
        return Dialed(address, DialVerdict.SILENT)
    except OSError as error:
        is_name = isinstance(error, socket.gaierror)
        return Dialed(
            address, DialVerdict.UNKNOWN_NAME if is_name else DialVerdict.SILENT, error.strerror or str(error)
        )
    try:
        connection = await AsyncioConnection.open(*address, settings)
    except KafkaError as error:
        return Dialed(address, await _told_apart(address, settings, error), error.detail)
    try:
        return Dialed(address, DialVerdict.KAFKA, cluster_id=await _cluster_id(connection, settings))
    except KafkaError as error:
        # A broker answers ApiVersions without authentication, but closes the connection at any other request.
        is_hangup = isinstance(error, KafkaConnectionError) and not settings.uses_sasl
        return Dialed(address, DialVerdict.SASL if is_hangup else DialVerdict.FAILED, error.detail)
    finally:
        await connection.close()


async def _cluster_id(connection: AsyncioConnection, settings: ClientSettings) -> str | None:
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    timeout_ms = settings.connect_timeout_ms
    answer = await connection.request(Api.METADATA, request, version_min=_METADATA_VERSION_MIN, timeout_ms=timeout_ms)
    return str(answer.cluster_id) if answer.cluster_id else None


async def _told_apart(address: HostPort, settings: ClientSettings, error: KafkaError) -> DialVerdict:
    """Return what is at the address if it is not what the settings expect."""
    if not isinstance(error, KafkaConnectionError):
        return _AUTHENTICATION.get(error.code, DialVerdict.FAILED)
    if settings.uses_tls:
        if isinstance(error.__cause__, ssl.SSLCertVerificationError):
            return _CERTIFICATES.get(error.__cause__.verify_code, DialVerdict.UNTRUSTED)
        if isinstance(error.__cause__, ssl.SSLError) and "CERTIFICATE_REQUIRED" in (error.__cause__.reason or ""):
            return DialVerdict.CLIENT_CERTIFICATE
        plain = dataclasses.replace(settings, security_protocol="PLAINTEXT")
        return DialVerdict.PLAINTEXT if await _offers_versions(address, plain) else DialVerdict.FAILED
    if await _speaks_tls(address):
        return DialVerdict.TLS
    answers = await asyncio.gather(*(_first_bytes(address, question) for question, _, _ in _QUESTIONS))
    for (_, expected, verdict), answer in zip(_QUESTIONS, answers, strict=True):
        if answer.startswith(expected):
            return verdict
    return DialVerdict.FAILED


async def _offers_versions(address: HostPort, settings: ClientSettings) -> bool:
    try:
        connection = await AsyncioConnection.open(*address, settings)
    except KafkaError:
        return False
    await connection.close()
    return True


async def _speaks_tls(address: HostPort) -> bool:
    """Whether a TLS handshake works. The certificate is not checked, because we send no data."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(_QUESTION_TIMEOUT_S):
            _, writer = await asyncio.open_connection(*address, ssl=context)
    except ssl.SSLError as error:
        # A server that requires a client certificate speaks TLS too.
        return "ALERT" in (error.reason or "")
    except (OSError, TimeoutError):
        return False
    await _close(writer)
    return True


async def _first_bytes(address: HostPort, question: bytes) -> bytes:
    try:
        async with asyncio.timeout(_QUESTION_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(*address)
            try:
                writer.write(question)
                return await reader.read(_FIRST_BYTES_MAX)
            finally:
                await _close(writer)
    except (OSError, TimeoutError):
        return b""


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
