"""Running Apache Kafka's own command-line tools, all of them in one Java process that a worker starts once."""

from __future__ import annotations

import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.kit.kafka_process import kafka_command, kafka_or_skip

TOOL_SECONDS_MAX = 120
SOURCE = Path(__file__).with_name("KafkaTools.java")
_NUMBER = struct.Struct(">i")

RunTool = Callable[..., str]


class ToolResult(NamedTuple):
    """How a tool ended, and what it wrote."""

    status: int
    output: str
    errors: str


class KafkaTools:
    """The process. It is started when it is first needed, and again after a tool that did not end in time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, main_class: str, arguments: Sequence[str], standard_input: str = "") -> ToolResult:
        """Run one tool to its end; TimeoutError where that takes too long."""
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        texts = [_text(each) for each in (main_class, *arguments)]
        # Ends the process rather than this thread: a read from a pipe has no time limit.
        limit = threading.Timer(TOOL_SECONDS_MAX, process.kill)
        limit.start()
        try:
            process.stdin.write(b"".join((_NUMBER.pack(len(texts)), *texts, _text(standard_input))))
            process.stdin.flush()
            (status,) = _NUMBER.unpack(self._read(_NUMBER.size))
            return ToolResult(status, self._read_text(), self._read_text())
        except (BrokenPipeError, EOFError) as error:
            code = self.close()
            raise TimeoutError(
                f"{main_class} {arguments} ended the process of the tools, or was ended: {code}"
            ) from error
        finally:
            limit.cancel()

    def close(self) -> int | None:
        """End the process; return its exit code."""
        ended, self._process = self._process, None
        if ended is None:
            return None
        ended.kill()
        with ended:
            return ended.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        command = kafka_command(str(SOURCE))
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def _read_text(self) -> str:
        (length,) = _NUMBER.unpack(self._read(_NUMBER.size))
        return self._read(length).decode(errors="replace")

    def _read(self, length: int) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        data = self._process.stdout.read(length)
        if len(data) < length:
            raise EOFError
        return data


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _NUMBER.pack(len(encoded)) + encoded


@pytest.fixture(scope="session")
def kafka_tools() -> Iterator[KafkaTools]:
    """The process of the tools."""
    kafka_or_skip()
    tools = KafkaTools()
    yield tools
    tools.close()


@pytest.fixture(scope="session")
def run_tool(kafka_tools: KafkaTools) -> RunTool:
    """Run a tool of Kafka and return what it writes; it must succeed."""

    def run(main_class: str, *arguments: str, standard_input: str = "") -> str:
        result = kafka_tools.run(main_class, arguments, standard_input)
        assert result.status == 0, result.output + result.errors
        return result.output

    return run
