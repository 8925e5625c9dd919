"""How `topic produce` reads a record from a line: by a format, or as the JSON that `topic consume` prints.

    %k key   %s or %v value   %p partition   %T timestamp in milliseconds   %h headers as name=value,...
    %% a percent sign   \\t \\r \\0 \\\\ as usual; \\n only at the end, where the line ends

A field reaches to the text that follows it in the format; the last one reaches to the end of the line.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ottla.client.cli.records.record_format import ESCAPES
from ottla.client.cli.terminal.errors import CommandError

_LINE_SHOWN_MAX: Final = 60
# What brokers and `topic consume` write for a record without a timestamp.
_NO_TIMESTAMP: Final = -1


@dataclass(frozen=True, slots=True)
class InputRecord:
    """A record to write. What is None is chosen by the producer; a null value is a tombstone."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


Parse = Callable[[bytes], InputRecord]


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise CommandError(f"{name} is {text!r}, which is not a number") from None


def _headers(text: bytes) -> list[tuple[str, bytes | None]]:
    pairs = [part.partition(b"=") for part in text.split(b",") if part]
    return [(name.decode(errors="replace"), value) for name, _, value in pairs]


def _timestamp(timestamp_ms: int) -> int | None:
    if timestamp_ms == _NO_TIMESTAMP:
        return None
    if timestamp_ms < 0:
        raise CommandError(f"the timestamp {timestamp_ms} is before 1970")
    return timestamp_ms


_SETTERS: Final[dict[str, Callable[[InputRecord, bytes], InputRecord]]] = {
    "k": lambda record, text: replace(record, key=text),
    "s": lambda record, text: replace(record, value=text),
    "p": lambda record, text: replace(record, partition=_number("%p", text.decode(errors="replace"))),
    "T": lambda record, text: replace(record, timestamp_ms=_timestamp(_number("%T", text.decode(errors="replace")))),
    "h": lambda record, text: replace(record, headers=_headers(text)),
}
_SETTERS["v"] = _SETTERS["s"]


def by_format(text: str) -> Parse:
    """Return a function that reads a line by a format; CommandError if the format is not valid."""
    parts = _parts(text.removesuffix("\\n"))
    fields = [part for part in parts if isinstance(part, str)]
    if "v" not in fields and "s" not in fields:
        raise CommandError(f"-f {text!r} has no value: %v", 2)
    for first, second in itertools.pairwise(parts):
        if isinstance(first, str) and isinstance(second, str):
            raise CommandError(f"-f {text!r} has nothing between %{first} and %{second}: where does one end?", 2)

    def parse(line: bytes) -> InputRecord:
        record, rest = InputRecord(None), line
        pending: str | None = None
        for part in parts:
            if isinstance(part, str):
                pending = part
                continue
            before, found, rest = rest.partition(part)
            if not found or (pending is None and before):
                raise CommandError(f"a line does not have the format {text!r}: {_shown(line)}")
            record = record if pending is None else _SETTERS[pending](record, before)
            pending = None
        if pending is not None:
            return _SETTERS[pending](record, rest)
        if rest:
            raise CommandError(f"a line does not have the format {text!r}: {_shown(line)}")
        return record

    return parse


def _parts(text: str) -> list[str | bytes]:
    """Return the names of fields as texts, and what is between them as bytes."""
    parts: list[str | bytes] = []

    def add(literal: bytes) -> None:
        if parts and isinstance(parts[-1], bytes):
            parts[-1] += literal
        else:
            parts.append(literal)

    characters = iter(text)
    for character in characters:
        if character not in "%\\":
            add(character.encode())
            continue
        following = next(characters, "")
        if character == "%" and following == "%":
            add(b"%")
        elif character == "%" and following in _SETTERS:
            parts.append(following)
        elif character == "\\" and following in ESCAPES and following != "n":
            add(ESCAPES[following])
        else:
            known = "%k %v %p %T %h" if character == "%" else "\\t \\r \\0 \\\\, and \\n at the end"
            raise CommandError(f"the format has {character}{following}; known are {known}", 2)
    return parts


def from_json(*, keeps_partition: bool, keeps_json: bool = False) -> Parse:
    """Return a function that reads a JSON object: key, value, headers, timestamp, and the partition if it is kept.

    Texts are UTF-8, {"base64": ...} is any bytes, null is null. Any other JSON is written as JSON; with `keeps_json`,
    any value but null is. What else `topic consume` prints, the topic and the offset, does not count: records get new
    ones.
    """

    def parse(line: bytes) -> InputRecord:
        try:
            item = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CommandError(f"a line is not JSON ({error}): {_shown(line)}") from None
        if not isinstance(item, dict) or "value" not in item:
            raise CommandError(f'a line is not an object with a "value": {_shown(line)}')
        partition, timestamp = item.get("partition"), item.get("timestamp")
        if not all(each is None or type(each) is int for each in (partition, timestamp)):
            raise CommandError(f"partition and timestamp must be numbers: {_shown(line)}")
        return InputRecord(
            _json(item["value"]) if keeps_json and item["value"] is not None else _bytes(item["value"], line),
            _bytes(item.get("key"), line),
            partition if keeps_partition else None,
            None if timestamp is None else _timestamp(timestamp),
            _json_headers(item.get("headers"), line),
        )

    return parse


def _json_headers(headers: Any, line: bytes) -> list[tuple[str, bytes | None]]:
    pairs = list(headers.items()) if isinstance(headers, dict) else headers or []
    try:
        return [(str(name), _bytes(value, line)) for name, value in pairs]
    except (TypeError, ValueError):
        raise CommandError(f"headers are not pairs of name and value: {_shown(line)}") from None


def _bytes(value: Any, line: bytes) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    if isinstance(value, dict) and value.keys() == {"base64"}:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (TypeError, binascii.Error, ValueError):
            raise CommandError(f"this is not base64: {_shown(line)}") from None
    return _json(value)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")


def _shown(line: bytes) -> str:
    return repr(line[:_LINE_SHOWN_MAX].decode(errors="replace"))
