"""Spark's own connector for Kafka, beside which ours is tried: found in a cache folder, or fetched with Maven.

The folder is spark-kafka below $OTTLA_CACHE, and that is ~/.cache/ottla by default. Each jar is fetched by its
coordinates, without what its POM names: Spark itself has all else.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.kit.apache_kafka import TEST_SECONDS_MAX, UnavailableError

COORDINATES: Final = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)


def spark_kafka_jars(seconds_max: float = TEST_SECONDS_MAX) -> list[Path]:
    """Return the jars for `spark.jars`; UnavailableError where they are not to be had."""
    folder = Path(os.environ.get("OTTLA_CACHE") or Path.home() / ".cache" / "ottla") / "spark-kafka"
    wanted = [folder / "{1}-{2}.jar".format(*coordinate.split(":")) for coordinate in COORDINATES]
    if all(jar.is_file() for jar in wanted):
        return wanted
    maven = shutil.which("mvn")
    if maven is None:
        raise UnavailableError(f"Spark's connector for Kafka is not in {folder}: install Maven, which fetches it")
    deadline = time.monotonic() + seconds_max
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for coordinate, jar in zip(COORDINATES, wanted, strict=True):
                if not jar.is_file():
                    _fetch(maven, coordinate, jar, deadline)
    except OSError as error:
        raise UnavailableError(f"cannot fetch Spark's connector for Kafka: {error}") from error
    return wanted


def _fetch(maven: str, coordinate: str, jar: Path, deadline: float) -> None:
    """Fetch one jar beside its place, and move it there when it is whole."""
    with tempfile.TemporaryDirectory(dir=jar.parent, prefix=".fetch-") as folder:
        options = ["--batch-mode", "--quiet", "-Dstyle.color=never"]
        command = [maven, *options, "dependency:copy", f"-Dartifact={coordinate}", f"-DoutputDirectory={folder}"]
        seconds = max(1.0, deadline - time.monotonic())
        try:
            done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(f"Maven has not fetched {coordinate} in {seconds:.0f} s") from error
        fetched = Path(folder) / jar.name
        if done.returncode != 0 or not fetched.is_file():
            reason = done.stdout.partition("[ERROR] ")[2].partition("\n")[0] or done.stderr.strip()
            raise UnavailableError(f"Maven cannot fetch {coordinate}: {reason}")
        fetched.rename(jar)
