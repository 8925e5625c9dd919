"""What the tests of the command line share."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.kit.broker_process import BrokerProcess
from tests.kit.java_tools import kafka_tools, run_tool

from ottla.client.cli.main import main

__all__ = ["kafka_tools", "run_tool"]


class Printed(NamedTuple):
    """What a command has left behind."""

    code: int
    out: str
    err: str

    @property
    def items(self) -> list[dict[str, Any]]:
        """The lines of its output as JSON."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def rows(self) -> list[list[str]]:
        """The lines of its output as cells, without the headings."""
        return [line.split() for line in self.out.splitlines()[1:]]


Ottla = Callable[..., Printed]
# The exit code after Ctrl-C.
INTERRUPTED = 130


@contextmanager
def producing_from_a_pipe(bootstrap: str, topic: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `ottla topic produce` as a process whose input stays open; it is gone at the end of the block."""
    command = [sys.executable, "-m", "ottla.client.cli", "topic", "produce", topic, "-b", bootstrap, *options]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0) as process:
        try:
            yield process
        finally:
            process.kill()


class _Input:
    """Standard input of a script: bytes, and no terminal."""

    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)

    def isatty(self) -> bool:
        return False


@pytest.fixture(autouse=True)
def config_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home for profiles and clusters, so that those of whoever runs the tests are neither used nor changed."""
    home = tmp_path / "config"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("OTTLA_DIR", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    monkeypatch.delenv("OTTLA_PROFILE", raising=False)
    monkeypatch.delenv("OTTLA_COMMAND_CONFIG", raising=False)
    monkeypatch.delenv("OTTLA_SCHEMA_REGISTRY", raising=False)
    return home


@pytest.fixture
def ottla(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Ottla:
    """Return a function that runs a command line against the shared broker."""

    def run_command(*arguments: str, stdin: bytes = b"", bootstrap: str | None = broker.bootstrap) -> Printed:
        if bootstrap is None:
            monkeypatch.delenv("OTTLA_BOOTSTRAP_SERVERS", raising=False)
        else:
            monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", bootstrap)
        monkeypatch.setattr(sys, "argv", ["ottla", *arguments])
        monkeypatch.setattr(sys, "stdin", _Input(stdin))
        capfdbinary.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        sys.stdout.flush()
        printed = capfdbinary.readouterr()
        assert isinstance(ended.value.code, int)
        return Printed(ended.value.code, printed.out.decode(), printed.err.decode())

    return run_command
