"""Java's own producer, consumer and admin client, in one process that a module of tests starts once."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from tests.kit.apache_kafka import JarSet
from tests.kit.kafka_process import kafka_command
from tests.kit.waiting import until

SOURCE = Path(__file__).with_name("JavaClients.java")
CALL_SECONDS_MAX = 120


class JavaError(Exception):
    """What a client has thrown: the simple name of its class, and the message."""

    def __init__(self, name: str, message: str) -> None:
        self.name = name
        super().__init__(f"{name}: {message}")


class JavaClient:
    """One client; a method's name is what `JavaClients.java` calls it."""

    def __init__(self, call: Callable[..., list[str]], name: str) -> None:
        self._call = call
        self._name = name

    def do(self, what: str, *arguments: object) -> list[str]:
        """Make a call and return its results; JavaError where it fails."""
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


class JavaClients:
    """The process."""

    def __init__(self, log: Path, libs: JarSet) -> None:
        self._numbers = count()
        command = kafka_command(str(SOURCE), libs=libs)
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True, encoding="utf-8"
            )

    def close(self) -> None:
        """End the process, with whatever clients are left in it."""
        self._process.kill()
        with self._process:
            self._process.wait()

    @contextmanager
    def client(self, kind: str, bootstrap: str, **options: object) -> Iterator[JavaClient]:
        """Give a producer, consumer or admin client, closed in the end; options have `_` for `.`."""
        properties = {"bootstrap.servers": bootstrap} | {
            name.replace("_", "."): str(value) for name, value in options.items()
        }
        client = JavaClient(self._call, f"{kind}-{next(self._numbers)}")
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
            raise JavaError(*results)
        return results


@contextmanager
def thrown(name: str, words: str = "") -> Iterator[None]:
    """Expect an exception of a Java class, and some words in its message."""
    with pytest.raises(JavaError) as raised:
        yield
    assert raised.value.name == name, raised.value
    assert words in str(raised.value)
