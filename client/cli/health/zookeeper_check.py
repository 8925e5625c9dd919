"""Whether ZooKeeper serves. `srvr` is the only command that it answers by default."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from ottla.client.cli.health.findings import Finding, Status
from ottla.client.errors import KafkaConfigurationError
from ottla.client.net.settings import HostPort, parse_address

CONNECT: Final = "zookeeper.connect"
_PORT: Final = 2181
_TIMEOUT_S: Final = 3.0
_ANSWER_BYTES_MAX: Final = 64 * 1024
_START: Final = "bin/zkServer.sh start"
_START_LOCAL: Final = "ottla up --detach"


class Answer(Enum):
    """What a ZooKeeper server answers, if it does."""

    SERVES = "serves"
    NO_QUORUM = "is running but does not serve: the ensemble has no quorum"
    REFUSED = "nothing listens there"
    NOT_ZOOKEEPER = "is not ZooKeeper"
    SILENT = "listens, but does not answer"
    UNSEEN = "cannot be reached from this host"


class Asked(NamedTuple):
    """A server and its answer."""

    address: HostPort
    answer: Answer
    mode: str = ""

    def __str__(self) -> str:
        return f"{self.address} {self.answer.value}{f' as {self.mode}' if self.mode else ''}"


def servers(connect: str) -> list[HostPort]:
    """Return the servers of a connect string, which may end with a path."""
    found = []
    for entry in connect.partition("/")[0].split(","):
        with contextlib.suppress(KafkaConfigurationError):
            text = entry.strip()
            found.append(parse_address(text if ":" in text else f"{text}:{_PORT}"))
    return found


async def check_zookeeper(connect: str, *, is_local: bool = False) -> Finding:
    """Ask all servers; `is_local` says that `ottla up` started them."""
    asked = await asyncio.gather(*map(ask, servers(connect)))
    return zookeeper_finding(connect, asked, is_local=is_local)


async def ask(address: HostPort) -> Asked:
    """Ask one server for its state, in the clear or else with TLS."""
    asked = await _ask(address, None)
    if asked.answer is not Answer.NOT_ZOOKEEPER:
        return asked
    with_tls = await _ask(address, _unchecked_tls())
    return with_tls if with_tls.answer is Answer.SERVES else asked


async def _ask(address: HostPort, tls: ssl.SSLContext | None) -> Asked:
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(*address, ssl=tls)
    except ConnectionRefusedError:
        return Asked(address, Answer.REFUSED)
    except (TimeoutError, OSError):
        return Asked(address, Answer.UNSEEN)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            # The newline is for other kinds of servers, which may wait for one.
            writer.write(b"srvr\n")
            said = await reader.read(_ANSWER_BYTES_MAX)
    except TimeoutError:
        return Asked(address, Answer.SILENT)
    except OSError:
        return Asked(address, Answer.NOT_ZOOKEEPER)
    finally:
        writer.close()
    if b"not currently serving" in said:
        return Asked(address, Answer.NO_QUORUM)
    if mode := re.search(rb"^Mode: (\w+)$", said, re.MULTILINE):
        return Asked(address, Answer.SERVES, mode[1].decode())
    # A server that does not allow the command is running too.
    return Asked(address, Answer.SERVES if b"not in the whitelist" in said else Answer.NOT_ZOOKEEPER)


def _unchecked_tls() -> ssl.SSLContext:
    """Return a context for a question without secrets. Whether brokers trust the server is not asked here."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def zookeeper_finding(connect: str, asked: Sequence[Asked], *, is_local: bool = False) -> Finding:
    """Judge an ensemble; it serves as long as a majority of its servers does."""
    check, found = "ZooKeeper", "; ".join(map(str, asked))
    if not asked:
        advice = "The value has no valid address. In server.properties of each broker:"
        return Finding(Status.BROKEN, check, f"{CONNECT}={connect}", advice, f"{CONNECT}=HOST:{_PORT}")
    serving, unseen = _those(asked, Answer.SERVES), _those(asked, Answer.UNSEEN)
    if len(serving) == len(asked):
        return Finding(Status.OK, check, found)
    refused, strange = _those(asked, Answer.REFUSED), _those(asked, Answer.NOT_ZOOKEEPER)
    if strange:
        advice = f"Something else is at {_listed(strange)}. In server.properties of each broker:"
        return Finding(Status.BROKEN, check, found, advice, f"{CONNECT}=HOST:{_PORT}")
    if 2 * len(serving) > len(asked):
        advice = f"A majority serves, but one more failure may be too many. On the host of {_listed(refused + unseen)}:"
        return Finding(Status.WARNING, check, found, advice, _START)
    if len(serving) + len(unseen) == len(asked):
        advice = f"This is no problem if brokers can reach it. On the host of a broker, check {unseen[0]}:"
        change = f"echo srvr | nc {unseen[0].host} {unseen[0].port}"
        return Finding(Status.WARNING, check, found, advice, change)
    advice = "Without it topics cannot be created, and no broker takes over from one that dies. "
    if is_local:
        return Finding(Status.BROKEN, check, found, f"{advice}Start it again:", _START_LOCAL)
    down = [each.address for each in asked if each.answer is not Answer.SERVES]
    return Finding(Status.BROKEN, check, found, f"{advice}On the host of {_listed(down)}:", _START)


def unknown_zookeeper() -> Finding:
    """Return the finding for brokers that do not describe their options: they read them from ZooKeeper."""
    advice = "Brokers read options from ZooKeeper, which may not answer. Give its address to find out:"
    found = f"the brokers do not tell their {CONNECT}"
    return Finding(Status.WARNING, "ZooKeeper", found, advice, f"ottla doctor --zookeeper HOST:{_PORT}")


def _those(asked: Iterable[Asked], answer: Answer) -> list[HostPort]:
    return [each.address for each in asked if each.answer is answer]


def _listed(addresses: Iterable[HostPort]) -> str:
    return ", ".join(map(str, addresses))
