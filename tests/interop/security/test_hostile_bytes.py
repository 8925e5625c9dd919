"""Bytes that no client sends, at the doors of a live broker: they get nowhere, and cost nothing that stays."""

from __future__ import annotations

import os
import random
import socket
import ssl
import struct
import uuid
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import pytest
from tests.interop.security.clients import OwnClient
from tests.interop.security.secure_broker import SecureBroker
from tests.kit.waiting import until

from ottla.protocol.api import Api
from ottla.protocol.frame import frame
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.requests import encode_request

SEED: Final = 10
ATTACKS: Final = 150
DEADLINE_S: Final = 60.0
# How long a stranger listens for an answer before it goes.
LISTENS_S: Final = 0.02
# What a broker's memory does by itself; what is announced and never sent would be far above.
RSS_GROWTH_MAX: Final = 64 * 1024 * 1024
DESCRIPTORS_GROWTH_MAX: Final = 8
OPENINGS: Final = tuple(
    frame(encode_request(api, version, 1, "stranger", message))
    for api, version, message in (
        (Api.API_VERSIONS, 3, ApiVersionsRequest(client_software_name="x", client_software_version="1")),
        (Api.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN")),
        (Api.SASL_HANDSHAKE, 0, SaslHandshakeRequest(mechanism="SCRAM-SHA-256")),
        (Api.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"\0alice\0guess")),
        (Api.METADATA, 9, MetadataRequest(topics=None)),
    )
)


@pytest.mark.parametrize("listener", ["SSL", "MUTUAL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_strangers_leave_nothing_behind(listener: str, secure_broker: SecureBroker) -> None:
    """The broker answers afterwards, with about the memory and the descriptors of before."""
    client = OwnClient()
    client.exchange(secure_broker.access(listener), "hostile", uuid.uuid4().hex.encode())
    rss, descriptors = resident_bytes(secure_broker.pid), open_descriptors(secure_broker.pid)
    chance = random.Random(f"{SEED} {listener}")

    for _ in range(ATTACKS):
        knock(secure_broker, listener, chance)

    client.exchange(secure_broker.access(listener), "hostile", uuid.uuid4().hex.encode())
    until(lambda: open_descriptors(secure_broker.pid) <= descriptors + DESCRIPTORS_GROWTH_MAX, "connections are gone")
    assert resident_bytes(secure_broker.pid) - rss < RSS_GROWTH_MAX
    assert "Traceback" not in secure_broker.output()


def knock(broker: SecureBroker, listener: str, chance: random.Random) -> None:
    """Send something hostile in one connection: below TLS, or within it where there is any."""
    address = (broker.host, broker.ports[listener])
    with suppress(OSError), closing(socket.create_connection(address, DEADLINE_S)) as raw:
        has_tls = listener != "SASL_PLAINTEXT"
        if has_tls and chance.random() < 0.3:
            context = ssl.create_default_context(cafile=str(broker.certificates.truststore))
            with closing(context.wrap_socket(raw, server_hostname=broker.host)) as wrapped:
                say(wrapped, frames(chance))
        else:
            say(raw, mutated(hello(broker, listener), chance) if has_tls else frames(chance))


def say(client: socket.socket, data: bytes) -> None:
    """Send, and listen for a moment."""
    client.settimeout(LISTENS_S)
    client.sendall(data)
    with suppress(TimeoutError):
        client.recv(4096)


def frames(chance: random.Random) -> bytes:
    """A few requests of a stranger, some of them changed, cut, or with a size that is not theirs."""
    pieces = []
    for opening in chance.choices(OPENINGS, k=chance.randint(1, 4)):
        piece = opening if chance.random() < 0.3 else mutated(opening, chance)
        if chance.random() < 0.3:
            piece = struct.pack(">i", chance.choice((-1, 0, 2**31 - 1, 65_536, 65_537, 7))) + piece[4:]
        pieces.append(piece)
    return b"".join(pieces)


def hello(broker: SecureBroker, listener: str) -> bytes:
    """The first words of a client with TLS."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=str(broker.certificates.truststore))
    talk = context.wrap_bio(incoming, outgoing, server_hostname=listener.lower().replace("_", "-"))
    with suppress(ssl.SSLWantReadError):
        talk.do_handshake()
    return outgoing.read()


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Change some bytes, cut the end off, or add to it."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    end = chance.randrange(len(changed)) if chance.random() < 0.3 else len(changed)
    return bytes(changed[:end]) + (chance.randbytes(2000) if chance.random() < 0.2 else b"")


def resident_bytes(pid: int) -> int:
    """The memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_descriptors(pid: int) -> int:
    """The files and sockets of a process."""
    return len(os.listdir(f"/proc/{pid}/fd"))
