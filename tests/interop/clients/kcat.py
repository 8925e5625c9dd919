"""kcat, as a process. It takes no timestamps, and no headers of single records: records are sent in runs."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from itertools import groupby

from tests.interop.clients.record import CODECS, DEADLINE_S, SAFELY, ClientError, Producing, Received, Sent
from tests.kit.apache_kafka import UnavailableError

from ottla.protocol.errors import ErrorCode

# How records, keys and values are told apart on standard input; no test has these bytes in its records.
_RECORD_END, _KEY_END = "\x1e", "\x1f"
_CODES = {
    "Broker: Offset out of range": ErrorCode.OFFSET_OUT_OF_RANGE,
    "Broker: Message size too large": ErrorCode.MESSAGE_TOO_LARGE,
}


class Kcat:
    """The command `kcat`; keys and values must be text."""

    name = "kcat"
    codecs: tuple[str, ...] = CODECS

    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Sent], how: Producing = SAFELY, *, partition: int = 0
    ) -> list[int]:
        """Produce with one process for each run of records with the same headers; the offsets are not told."""
        assert all(record.timestamp_ms is None for record in records)
        options = {
            "acks": how.acks,
            "compression.type": how.codec,
            "enable.idempotence": str(how.idempotent).lower(),
            "linger.ms": how.linger_ms,
            "message.max.bytes": how.request_bytes_max,
            **dict(how.options),
        }
        arguments = ["-P", "-t", topic, "-p", str(partition), "-D", _RECORD_END, "-K", _KEY_END]
        for name, value in options.items():
            arguments += ["-X", f"{name}={value}"]
        for headers, run in groupby(records, lambda record: record.headers):
            added = [part for name, value in headers for part in ("-H", _header(name, value))]
            chunk = list(run)
            nulls = ["-Z"] if any(record.value is None for record in chunk) else []
            lines = b"".join(_line(record) for record in chunk)
            kcat(bootstrap, *arguments, *nulls, *added, standard_input=lines)
        return [-1] * len(records)

    def consume(self, bootstrap: str, topic: str, count: int, *, start: int = 0, partition: int = 0) -> list[Received]:
        """Consume with the JSON envelope."""
        arguments = ["-t", topic, "-p", str(partition), "-o", str(start), "-c", str(count)]
        options = ["-X", "auto.offset.reset=error", "-X", "fetch.max.bytes=20000000"]
        options += ["-X", "receive.message.max.bytes=21000000"]
        said = kcat(bootstrap, "-C", "-J", "-q", *arguments, *options)
        return [_received(line) for line in said.splitlines()]


def kcat(bootstrap: str, *arguments: str, standard_input: bytes = b"") -> str:
    """Run kcat and return what it writes; ClientError where it fails, UnavailableError where there is none."""
    return kcat_outputs(bootstrap, *arguments, standard_input=standard_input)[0]


def kcat_outputs(bootstrap: str, *arguments: str, standard_input: bytes = b"") -> tuple[str, str]:
    """Run kcat and return what it writes, and what it says about that."""
    done = subprocess.run(
        [kcat_path(), "-b", bootstrap, "-m", "60", *arguments],
        check=False,
        input=standard_input,
        capture_output=True,
        timeout=DEADLINE_S,
    )
    words = done.stderr.decode()
    if done.returncode != 0 or "% Delivery failed" in words:
        code = next((code for text, code in _CODES.items() if text in words), ErrorCode.UNKNOWN_SERVER_ERROR)
        raise ClientError(code, words)
    return done.stdout.decode(), words


def kcat_path() -> str:
    """Return the path of kcat; UnavailableError where it is not installed."""
    path = shutil.which("kcat")
    if path is None:
        raise UnavailableError("install kcat: run scripts/system-packages")
    return path


def _header(name: str, value: bytes | None) -> str:
    return name if value is None else f"{name}={value.decode()}"


def _line(record: Sent) -> bytes:
    key = b"" if record.key is None else record.key + _KEY_END.encode()
    return key + (record.value or b"") + _RECORD_END.encode()


def _received(line: str) -> Received:
    envelope = json.loads(line)
    names_and_values = envelope.get("headers") or []
    headers = tuple(
        (name, _encoded(value)) for name, value in zip(names_and_values[::2], names_and_values[1::2], strict=True)
    )
    return Received(
        envelope["offset"], envelope["ts"], _encoded(envelope["key"]), _encoded(envelope["payload"]), headers
    )


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
