"""The embedded ZooKeeper: the real server, standalone, on the loopback interface."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from ottla.client.local_cluster.java import find_java, find_zookeeper_jars
from ottla.client.local_cluster.properties import write_properties

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


def prepare(folder: Path, host: str, port: int) -> None:
    """Create the folder and write the config for `command`."""
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    write_properties(
        folder / CONFIG_NAME,
        {
            "dataDir": str(data.absolute()),
            "clientPort": str(port),
            "clientPortAddress": host,
            "tickTime": str(TICK_MS),
            "minSessionTimeout": str(SESSION_MS_MIN),
            "maxSessionTimeout": str(SESSION_MS_MAX),
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            "snapCount": str(SNAPSHOT_TRANSACTIONS),
            "autopurge.snapRetainCount": "3",
            "autopurge.purgeInterval": "1",
        },
    )


def command(folder: Path, *, fsync: bool = True) -> list[str]:
    """Return the command line of a server; without `fsync`, its data may not survive a power failure."""
    class_path = os.pathsep.join(map(str, find_zookeeper_jars()))
    options = (*_JAVA_OPTIONS, *_LOG_OPTIONS, f"-Dzookeeper.forceSync={'yes' if fsync else 'no'}")
    return [str(find_java()), *options, "-cp", class_path, MAIN_CLASS, str(folder.absolute() / CONFIG_NAME)]


def is_serving(host: str, port: int, timeout_s: float = ANSWER_TIMEOUT_S) -> bool:
    """Send `srvr`: its answer has a mode only if the server accepts clients. `ruok` succeeds too early."""
    return b"\nMode: " in four_letter_word(host, port, b"srvr", timeout_s)


def four_letter_word(host: str, port: int, word: bytes, timeout_s: float = ANSWER_TIMEOUT_S) -> bytes:
    """Return the answer to one of ZooKeeper's four-letter words; empty if there is no answer."""
    answer = bytearray()
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            connection.sendall(word)
            while len(answer) < ANSWER_BYTES_MAX and (received := connection.recv(4096)):
                answer += received
    except OSError:
        return b""
    return bytes(answer)
