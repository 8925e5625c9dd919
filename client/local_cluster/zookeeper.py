"""The embedded ZooKeeper: the real server, standalone, on the loopback interface."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ottla.client.local_cluster.java import find_java
from ottla.client.local_cluster.properties import write_properties
from ottla.client.local_cluster.zookeeper_jars import find_class_path

MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
CONFIG_NAME = "zoo.cfg"
# Sessions expire on a tick, so a short tick detects dead brokers early; the session limits stay wide.
TICK_MS = 500
SESSION_MS_MIN = 1_000
SESSION_MS_MAX = 60_000
SNAPSHOT_TRANSACTIONS = 10_000
# ZooKeeper preallocates this much of its transaction log; its default of 64 MiB is for busy ensembles.
PREALLOCATED_KIB = 64
ANSWER_BYTES_MAX = 64 * 1024
ANSWER_TIMEOUT_S = 2.0
# The server may never answer a request that arrives while it starts, so we repeat it soon.
READY_TIMEOUT_S = 0.25

_JAVA_OPTIONS = (
    "-Xmx128m",
    # The garbage collector with the least memory, and the compiler with the fastest start.
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
    f"-Dzookeeper.preAllocSize={PREALLOCATED_KIB}",
)
_LOG_PREFIX = "-Dorg.apache.logging.log4j.simplelog"
_LOG_OPTIONS = (
    "-Dlog4j.provider=org.apache.logging.log4j.simple.internal.SimpleProvider",
    f"{_LOG_PREFIX}.level=INFO",
    f"{_LOG_PREFIX}.showdatetime=true",
    f"{_LOG_PREFIX}.dateTimeFormat=yyyy-MM-dd HH:mm:ss,SSS",
    # This class logs a stack trace if it is asked before the data is loaded.
    f"{_LOG_PREFIX}.org.apache.zookeeper.server.ServerCnxn.level=OFF",
)


@dataclass(frozen=True, slots=True)
class ServerSecurity:
    """What a server with TLS and logins needs: files that only their owner can read.

    Everybody may connect, and read what ACLs do not hide. Those with a password may log in.
    """

    # The private key and its certificates, as PEM.
    keystore: Path
    # The users, in Java's syntax.
    login: Path

    def options(self, host: str, port: int) -> dict[str, str]:
        """Return the options of a server that serves clients at this port with TLS only."""
        return {
            "secureClientPort": str(port),
            "secureClientPortAddress": host,
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": str(self.keystore),
            "ssl.keyStore.type": "PEM",
            "ssl.clientAuth": "none",
            "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "4lw.commands.whitelist": "srvr",
        }


def login_file(users: Mapping[str, str]) -> str:
    """Return the text of a login file with these users and their passwords."""
    known = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    return f"Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required {known}; }};\n"


def prepare(folder: Path, host: str, port: int, security: ServerSecurity | None = None) -> None:
    """Create the folder and write the config for `command`."""
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    listening = {"clientPort": str(port), "clientPortAddress": host, "4lw.commands.whitelist": "*"}
    write_properties(
        folder / CONFIG_NAME,
        {
            "dataDir": str(data.absolute()),
            **(listening if security is None else security.options(host, port)),
            "tickTime": str(TICK_MS),
            "minSessionTimeout": str(SESSION_MS_MIN),
            "maxSessionTimeout": str(SESSION_MS_MAX),
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "snapCount": str(SNAPSHOT_TRANSACTIONS),
            "autopurge.snapRetainCount": "3",
            "autopurge.purgeInterval": "1",
        },
    )


def command(folder: Path, *, fsync: bool = True, security: ServerSecurity | None = None) -> list[str]:
    """Return the command line of a server; without `fsync`, its data may not survive a power failure."""
    options = [*_JAVA_OPTIONS, *_LOG_OPTIONS, f"-Dzookeeper.forceSync={'yes' if fsync else 'no'}"]
    if security is not None:
        options.append(f"-Djava.security.auth.login.config={security.login.absolute()}")
    class_path = os.pathsep.join(map(str, find_class_path(tls=security is not None)))
    return [str(find_java()), *options, "-cp", class_path, MAIN_CLASS, str(folder.absolute() / CONFIG_NAME)]


def is_serving(host: str, port: int, timeout_s: float = ANSWER_TIMEOUT_S) -> bool:
    """Send `srvr`: its answer has a mode only if the server accepts clients. `ruok` succeeds too early."""
    return b"\nMode: " in four_letter_word(host, port, b"srvr", timeout_s)


def four_letter_word(host: str, port: int, word: bytes, timeout_s: float = ANSWER_TIMEOUT_S) -> bytes:
    """Return the answer to one of ZooKeeper's four-letter words; empty if there is no answer."""
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            try:
                if answer := _asked(connection, word):
                    return answer
            except TimeoutError:
                return b""
            except OSError:
                pass
        # A server with TLS closes the connection.
        with (
            socket.create_connection((host, port), timeout_s) as connection,
            _unchecked_tls().wrap_socket(connection) as encrypted,
        ):
            return _asked(encrypted, word)
    except OSError:
        return b""


def _asked(connection: socket.socket, word: bytes) -> bytes:
    # Five bytes show a server with TLS that it does not understand us; it would wait after four.
    connection.sendall(word + b"\n")
    answer = bytearray()
    while len(answer) < ANSWER_BYTES_MAX and (received := connection.recv(4096)):
        answer += received
    return bytes(answer)


def _unchecked_tls() -> ssl.SSLContext:
    """Return a context for a question without secrets, which every server may answer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
