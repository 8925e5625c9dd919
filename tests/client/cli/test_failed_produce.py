"""What `ottla topic produce` prints when records are refused."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.client.cli.conftest import Ottla
from tests.kit.broker_process import BrokerProcess


@pytest.mark.parametrize("options", [(), ("-X", "linger.ms=0", "-X", "max.batch.size=64")])
def test_records_that_are_refused_are_told_once(
    ottla: Ottla, broker: BrokerProcess, topic: str, options: tuple[str, ...]
) -> None:
    """One error, the number of records that were written, and no word of futures that nobody asked about."""
    ottla("topic", "create", topic, "-p", "3", "-c", "max.message.bytes=200")
    lines = b"small\n" + b"\n".join([b"x" * 1000] * 20) + b"\nsmall\n"
    command = [sys.executable, "-X", "dev", "-m", "ottla.client.cli", "topic", "produce", topic, "-b", broker.bootstrap]
    ran = subprocess.run([*command, *options], input=lines, capture_output=True, timeout=120, check=False)
    said = ran.stderr.decode()
    assert ran.returncode == 1
    assert "never retrieved" not in said
    assert "Traceback" not in said
    assert said.count("MESSAGE_TOO_LARGE") == 1, said
