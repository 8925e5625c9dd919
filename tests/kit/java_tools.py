"""Running Apache Kafka's own tools."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from tests.kit.kafka_process import kafka_command, kafka_or_skip

TOOL_SECONDS_MAX = 120

RunTool = Callable[..., str]


@pytest.fixture(scope="module")
def run_tool() -> RunTool:
    """Run a tool of Kafka and return what it writes; it must succeed."""
    kafka_or_skip()

    def run(main_class: str, *arguments: str, standard_input: str = "") -> str:
        done = subprocess.run(
            kafka_command(main_class, *arguments),
            check=False,
            input=standard_input,
            capture_output=True,
            text=True,
            timeout=TOOL_SECONDS_MAX,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
