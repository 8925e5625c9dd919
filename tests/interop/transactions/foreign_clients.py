"""Clients in other languages: a process has some of them, and makes the calls that it reads from its standard input.

A call is a line with what to do, the name of the client, and arguments, with tabs between them. The answer is a line
with `ok` and results, or with `error`, the name of the error and its message.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from tests.kit.waiting import until

CALL_SECONDS_MAX = 120


class ForeignError(Exception):
    """An error of a client: its name, which is that of an exception or of an error code, and the message."""

    def __init__(self, name: str, message: str) -> None:
        self.name = name
        super().__init__(f"{name}: {message}")


class ForeignClient:
    """One client; a method's name is what its program calls it."""

    def __init__(self, call: Callable[..., list[str]], name: str) -> None:
        self._call = call
        self._name = name

    def do(self, what: str, *arguments: object) -> list[str]:
        """Make a call and return its results; ForeignError where it fails."""
        return self._call(what, self._name, *arguments)

    def number(self, what: str, *arguments: object) -> int:
        """Make a call whose result is one number."""
        (result,) = self.do(what, *arguments)
        return int(result)

    def receive(self, total: int) -> list[str]:
        """Return so many values, polling for as long as it takes; a consumer may return more."""
        values: list[str] = []
        until(
            lambda: len(values) >= total,
            lambda: f"{total} values, not {values}",
            meanwhile=lambda: values.extend(self.do("poll", 200)),
        )
        return values


class ForeignClients:
    """The process; its log has what it writes to standard error."""

    def __init__(self, log: Path, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._numbers = count()
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                encoding="utf-8",
                env={**os.environ, **(environment or {})},
            )

    def close(self) -> None:
        """End the process, with whatever clients are left in it."""
        self._process.kill()
        with self._process:
            self._process.wait()

    @contextmanager
    def client(self, kind: str, bootstrap: str, **options: object) -> Iterator[ForeignClient]:
        """Give a client of a kind that the program has, closed in the end; options have `_` for `.`."""
        properties = {"bootstrap.servers": bootstrap} | {
            name.replace("_", "."): str(value) for name, value in options.items()
        }
        client = ForeignClient(self._call, f"{kind}-{next(self._numbers)}")
        client.do(kind, *(f"{name}={value}" for name, value in properties.items()))
        try:
            yield client
        finally:
            client.do("close")

    def _call(self, *words: object) -> list[str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # Ends the process rather than this thread: a read from a pipe has no time limit.
        limit = threading.Timer(CALL_SECONDS_MAX, self._process.kill)
        limit.start()
        try:
            self._process.stdin.write("\t".join(map(str, words)) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline().rstrip("\n")
        finally:
            limit.cancel()
        assert answer, f"{words} ended the process, or was ended"
        outcome, *results = answer.split("\t")
        if outcome == "error":
            raise ForeignError(*results)
        return results


@contextmanager
def thrown(name: str, words: str = "") -> Iterator[None]:
    """Expect an error of this name, and some words in its message."""
    with pytest.raises(ForeignError) as raised:
        yield
    assert raised.value.name == name, raised.value
    assert words in str(raised.value)
