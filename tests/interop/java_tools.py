"""Running Apache Kafka's own tools."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest
from tests.apache_kafka import LIBS, UnavailableError, jars, java, skip_or_fail

TOOL_SECONDS_MAX = 120

RunTool = Callable[..., str]


@pytest.fixture(scope="module")
def run_tool() -> RunTool:
    """Run a tool of Kafka and return what it writes; it must succeed."""
    try:
        classpath = os.pathsep.join(map(str, jars(LIBS)))
        command = [java(), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-cp", classpath]
    except UnavailableError as reason:
        skip_or_fail(reason)

    def run(main_class: str, *arguments: str, standard_input: str = "") -> str:
        done = subprocess.run(
            [*command, main_class, *arguments],
            check=False,
            input=standard_input,
            capture_output=True,
            text=True,
            timeout=TOOL_SECONDS_MAX,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
