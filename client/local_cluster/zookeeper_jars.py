"""The jars of the embedded ZooKeeper: which ones it needs, and where they are on this machine.

An installed ZooKeeper in $ZOOKEEPER_HOME comes first, then the folder that `ottla zookeeper install` fills, then the
ZooKeeper whose zkServer.sh is on the search path, then the jars of the package pyspark. pyspark is located without
importing it, which takes longer than starting ZooKeeper.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.client.local_cluster.errors import ZooKeeperNotFoundError
from ottla.client.local_cluster.java import package_folder

ZOOKEEPER_VERSION: Final = "3.9.5"

_WAYS_OUT: Final = "Run `ottla zookeeper install`, or use a running ZooKeeper with --zookeeper HOST:PORT."


@dataclass(frozen=True, slots=True)
class PinnedJar:
    """A jar by its Maven coordinates, and the only content that we accept for it."""

    group: str
    name: str
    version: str
    size_bytes: int
    sha256: str
    # Whether only a server with TLS and logins needs it.
    is_for_tls: bool = False

    @property
    def file_name(self) -> str:
        """The name of its file."""
        return f"{self.name}-{self.version}.jar"

    @property
    def repository_path(self) -> str:
        """Its place in a Maven repository."""
        return f"{self.group.replace('.', '/')}/{self.name}/{self.version}/{self.file_name}"


def _netty(name: str, size_bytes: int, sha256: str, version: str = "4.2.13.Final") -> PinnedJar:
    """ZooKeeper's own network code serves clients in the clear, without Netty."""
    return PinnedJar("io.netty", name, version, size_bytes, sha256, is_for_tls=True)


# The versions that pyspark 4.2 has. Without log4j-core, log4j-api writes plain lines to standard error. log4j-core and
# Netty together would double the start time.
_LOG4J: Final = "org.apache.logging.log4j"
JARS: Final = (
    PinnedJar(
        "org.apache.zookeeper",
        "zookeeper",
        ZOOKEEPER_VERSION,
        1_367_207,
        "936d025db1a85f085edea25048c3f5b3de5fc29329c371a10925e3b78b0b38a0",
    ),
    PinnedJar(
        "org.apache.zookeeper",
        "zookeeper-jute",
        ZOOKEEPER_VERSION,
        260_263,
        "abcbc7f9d6c493daa118da6fa3061a201e2c521217526e8535adfb56b629e52a",
    ),
    PinnedJar(
        "org.slf4j", "slf4j-api", "2.0.17", 69_908, "7b751d952061954d5abfed7181c1f645d336091b679891591d63329c622eb832"
    ),
    PinnedJar(
        _LOG4J,
        "log4j-slf4j2-impl",
        "2.25.4",
        30_211,
        "dd897abc5eb3a6d965426c7937b92dd43e67c82d9819bea5d19f311516c68be3",
    ),
    PinnedJar(
        _LOG4J, "log4j-api", "2.25.4", 351_127, "c4b642a7f047275215de117e0e3847eb2c7711d84a0aa7433e7b3c096daf341d"
    ),
    PinnedJar(
        "io.dropwizard.metrics",
        "metrics-core",
        "4.2.37",
        131_928,
        "3c70d19049d10f474ab803706b9c0677bcf5fd9e1afeb4f6c496f62e38b27678",
    ),
    PinnedJar(
        "org.xerial.snappy",
        "snappy-java",
        "1.1.10.8",
        2_445_419,
        "50485d06037fea3d6e40c968386feeca6338cc9872e25549593ff3eb352cefcc",
    ),
    PinnedJar(
        "commons-cli",
        "commons-cli",
        "1.11.0",
        110_167,
        "8f7f8605d68e15bf32db61ec94eac6fdafc51b1bdbe1e0e0802b57d23f387792",
    ),
    PinnedJar(
        "commons-io",
        "commons-io",
        "2.22.0",
        609_182,
        "2b9a7b1f726fb86216dbd2c8321eabe0221dbd5b1be81c18e1cb53811b104758",
    ),
    _netty("netty-buffer", 371_633, "39e9ab9ecaff178898a5eb37568096f1efd4f768a7bd162e0cde3eefa19137d5"),
    _netty("netty-codec-base", 152_909, "a0407d1e9b77e9807aabf367e06602475faab567bfcb8e07ff5bd22c24cd923e"),
    _netty("netty-common", 817_850, "cccffbdd68586b5473c67d6ac37145625e7abbfae304e7a512616576b0187697"),
    _netty("netty-handler", 583_738, "50efc30aeca2ef21311f2502389e500bfc168c311edb1ae04a2db4d6bb5d7f7f"),
    _netty("netty-resolver", 32_975, "2cd68d6a746aeb2ec92923fa168d250526d7ad3dbe1877e7bcbe6e8acdb2c193"),
    _netty(
        "netty-tcnative-classes",
        37_385,
        "010aef51acb868c65166f9024cd4caa529af06d36b94c6abe2cfa7f3b11ca66c",
        "2.0.76.Final",
    ),
    _netty("netty-transport", 549_604, "d9b2200bfe6e47c2dfa2f0952df6fbdfd42bf58bdd9007e9ac17c789274388c5"),
    _netty(
        "netty-transport-classes-epoll", 159_935, "2ed9cf6ca8bee3ae80501938e5fa0b7c20947d704222a774a60ae65d38e0285e"
    ),
    _netty(
        "netty-transport-native-unix-common",
        46_872,
        "052b8429276ac96bd1f1067ce963b4e57c627ca331071f4df2e63f759234f6b1",
    ),
)


def install_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder that `ottla zookeeper install` fills."""
    cache = Path(environment.get("OTTLA_CACHE") or Path.home() / ".cache" / "ottla")
    return cache / "zookeeper" / ZOOKEEPER_VERSION


def find_class_path(*, tls: bool = False, environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the class path of a ZooKeeper server: the first that is complete."""
    jars = [jar for jar in JARS if tls or not jar.is_for_tls]
    passed_over: list[str] = []
    if home := environment.get("ZOOKEEPER_HOME"):
        if found := _distribution(Path(home)):
            return found
        passed_over.append(f"ZOOKEEPER_HOME is {home}, but {Path(home) / 'lib'} has no ZooKeeper 3.5 or later.")
    installed = [install_folder(environment) / jar.file_name for jar in jars]
    if all(_has_size(path, jar.size_bytes) for path, jar in zip(installed, jars, strict=True)):
        return installed
    script = shutil.which("zkServer.sh", path=environment.get("PATH", os.defpath))
    if script and (found := _distribution(Path(script).resolve().parent.parent)):
        return found
    if package := package_folder("pyspark"):
        # Whatever the versions.
        found, missing = _by_name(package / "jars", [jar.name for jar in jars])
        if not missing:
            return found
        passed_over.append(f"{package / 'jars'} has no {', '.join(missing)}.")
    raise ZooKeeperNotFoundError(" ".join(["ZooKeeper is not installed.", *passed_over, _WAYS_OUT]))


def _distribution(home: Path) -> list[Path]:
    """Return all jars of an unpacked ZooKeeper, after its folder of settings for logging; empty if it has no server."""
    _, missing = _by_name(home / "lib", ["zookeeper", "zookeeper-jute"])
    return [] if missing else [home / "conf", *sorted((home / "lib").glob("*.jar"))]


def _by_name(folder: Path, names: list[str]) -> tuple[list[Path], list[str]]:
    """Return the jars with these names, in any version, and the names that have none."""
    first: dict[str, Path | None] = {name: next(_versions(folder, name), None) for name in names}
    return [jar for jar in first.values() if jar is not None], [name for name, jar in first.items() if jar is None]


def _versions(folder: Path, name: str) -> Iterator[Path]:
    yield from sorted(folder.glob(f"{name}-[0-9]*.jar"))


def _has_size(path: Path, size_bytes: int) -> bool:
    try:
        return path.stat().st_size == size_bytes
    except OSError:
        return False
