"""Apache Kafka's own jars, for the tests in which it judges us: found in a cache folder, or fetched with Maven.

    scripts/apache-kafka [wire-oracle|libs|libs-4|streams]     fetch one set, print the folder that has it

The folder is $OTTLA_KAFKA_HOME, which may also be a Kafka that is installed already; by default kafka-3.9.1 below
$OTTLA_CACHE, and that by default ~/.cache/ottla. Its subfolder `libs` has all of Kafka, `wire-oracle` the few jars
that read and write messages, `libs-4` all of a Kafka of today, which has no ZooKeeper any more, and `streams` Kafka
Streams. Runs without the project's packages.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

KAFKA_VERSION = "3.9.1"
KAFKA_4_VERSION = "4.1.1"
JAVA_VERSION_MIN = 17
# A test waits less than pytest-timeout would; the script is for slow connections, too.
TEST_SECONDS_MAX = 180
SCRIPT_SECONDS_MAX = 1800


class UnavailableError(Exception):
    """Java, Maven or the jars are not to be had; the message says what to do."""


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars by their Maven coordinates, alone or with all that they depend on."""

    folder: str
    coordinates: tuple[str, ...]
    with_dependencies: bool

    def in_folder(self, folder: Path) -> list[Path]:
        """Return the jars, or nothing where the folder lacks one of those named."""
        named = [folder / "{1}-{2}.jar".format(*coordinate.split(":")) for coordinate in self.coordinates]
        if not all(jar.is_file() for jar in named):
            return []
        return sorted(folder.glob("*.jar")) if self.with_dependencies else named


LIBS = JarSet(
    "libs",
    (
        f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
        f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
        "org.slf4j:slf4j-reload4j:1.7.36",
    ),
    with_dependencies=True,
)
LIBS_4 = JarSet(
    "libs-4",
    (f"org.apache.kafka:kafka_2.13:{KAFKA_4_VERSION}", "org.slf4j:slf4j-simple:1.7.36"),
    with_dependencies=True,
)
STREAMS = JarSet(
    "streams",
    (f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}", "org.slf4j:slf4j-reload4j:1.7.36"),
    with_dependencies=True,
)
WIRE_ORACLE = JarSet(
    "wire-oracle",
    (
        f"org.apache.kafka:kafka-clients:{KAFKA_VERSION}",
        f"org.apache.kafka:kafka-group-coordinator:{KAFKA_VERSION}",
        f"org.apache.kafka:kafka-transaction-coordinator:{KAFKA_VERSION}",
        "com.fasterxml.jackson.core:jackson-annotations:2.16.2",
        "com.fasterxml.jackson.core:jackson-core:2.16.2",
        "com.fasterxml.jackson.core:jackson-databind:2.16.2",
        "org.slf4j:slf4j-api:1.7.36",
    ),
    with_dependencies=False,
)


def kafka_home() -> Path:
    """Return the folder that the sets of jars are in."""
    cache = Path(os.environ.get("OTTLA_CACHE") or Path.home() / ".cache" / "ottla")
    return Path(os.environ.get("OTTLA_KAFKA_HOME") or cache / f"kafka-{KAFKA_VERSION}")


def jars(wanted: JarSet, seconds_max: float = TEST_SECONDS_MAX) -> list[Path]:
    """Return the jars of a set, fetched where they are not there yet; any number of processes may ask at once."""
    home = kafka_home()
    if found := _found(wanted, home):
        return found
    maven = shutil.which("mvn")
    if maven is None or shutil.which("java") is None:
        raise UnavailableError(f"no jars of Kafka in {home}: install Maven and a JDK, then run scripts/apache-kafka")
    deadline = time.monotonic() + seconds_max
    try:
        home.mkdir(parents=True, exist_ok=True)
        with alone_in(home, deadline):
            if not _found(wanted, home):
                _fetch(wanted, home, maven, deadline)
    except OSError as error:
        raise UnavailableError(f"cannot fetch the jars of Kafka: {error}") from error
    return _found(wanted, home)


def java() -> str:
    """Return the path of a Java that runs source files."""
    wanted = UnavailableError(f"install a JDK of version {JAVA_VERSION_MIN} or later: java and javac")
    path = shutil.which("java")
    if path is None or shutil.which("javac") is None:
        raise wanted
    version = subprocess.run([path, "--version"], check=False, capture_output=True, text=True, timeout=60).stdout
    major = re.search(r"\d+", version)
    if major is None or int(major[0]) < JAVA_VERSION_MIN:
        raise wanted
    return path


def skip_or_fail(reason: UnavailableError) -> NoReturn:
    """Skip the test; under CI, where everything must be there, fail it."""
    import pytest

    if os.environ.get("CI"):
        pytest.fail(str(reason), pytrace=False)
    pytest.skip(str(reason))


def _found(wanted: JarSet, home: Path) -> list[Path]:
    return wanted.in_folder(home / LIBS.folder) or wanted.in_folder(home / wanted.folder)


@contextmanager
def alone_in(home: Path, deadline: float) -> Iterator[None]:
    """Let one process at a time add to the folder: Maven's own cache is not made for two writers either."""
    with (home / ".lock").open("w") as lock:
        _acquire(lock, deadline)
        yield


def _acquire(lock: IO[str], deadline: float) -> None:
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise UnavailableError(f"another process has held {lock.name} for too long") from error
            time.sleep(0.2)


def _fetch(wanted: JarSet, home: Path, maven: str, deadline: float) -> None:
    """Fetch into a folder of our own and give it its name at the end: a set is there whole or not at all."""
    target = home / wanted.folder
    if target.exists():
        raise UnavailableError(f"{target} lacks some of its jars: remove it, then run scripts/apache-kafka")
    with tempfile.TemporaryDirectory(dir=home, prefix=".fetch-") as name:
        folder = Path(name)
        (folder / "pom.xml").write_text(_pom(wanted))
        options = ["--batch-mode", "--quiet", "-Dstyle.color=never", "-DoutputDirectory=jars"]
        command = [maven, *options, "dependency:copy-dependencies"]
        seconds = max(1.0, deadline - time.monotonic())
        try:
            done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(f"Maven has not fetched the jars of Kafka in {seconds:.0f} s") from error
        if done.returncode != 0 or not wanted.in_folder(folder / "jars"):
            reason = done.stdout.partition("[ERROR] ")[2].partition("\n")[0] or done.stderr.strip()
            raise UnavailableError(f"Maven cannot fetch the jars of Kafka: {reason}")
        (folder / "jars").rename(target)


def _pom(wanted: JarSet) -> str:
    exclusions = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    dependencies = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>".format(
            *coordinate.split(":"), "" if wanted.with_dependencies else exclusions
        )
        for coordinate in wanted.coordinates
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>ottla</groupId><artifactId>{wanted.folder}</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def main() -> int:
    """Run the script."""
    sets = {jar_set.folder: jar_set for jar_set in (WIRE_ORACLE, LIBS, LIBS_4, STREAMS)}
    parser = argparse.ArgumentParser(
        prog="apache-kafka", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("set", choices=sets, nargs="?", default=LIBS.folder, help="which jars (default: all of Kafka)")
    try:
        found = jars(sets[parser.parse_args().set], SCRIPT_SECONDS_MAX)
    except UnavailableError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{found[0].parent}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
