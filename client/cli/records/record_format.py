"""How `topic consume` prints a record: by a format as in kcat, or as JSON.

    %t topic   %p partition   %o offset   %T timestamp   %k key   %K its length   %s or %v value   %S its length
    %h headers as name=value,...   %% a percent sign   \\n \\t \\r \\\\ as usual

A null has the length -1, and is printed as nothing or as the text of `--null`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ottla.client.cli.terminal.errors import CommandError

if TYPE_CHECKING:
    from ottla.client.cli.records.reading import ReadRecord
    from ottla.protocol.record import Record

ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\", "0": b"\0"}
_Part = Callable[["ReadRecord", bytes], bytes]


def _length(data: bytes | None) -> bytes:
    return b"-1" if data is None else str(len(data)).encode()


def _headers(read: ReadRecord, null: bytes) -> bytes:
    return b",".join(key.encode() + b"=" + (null if value is None else value) for key, value in read.record.headers)


_FIELDS: Final[dict[str, _Part]] = {
    "t": lambda read, null: read.partition.topic.encode(),
    "p": lambda read, null: str(read.partition.partition).encode(),
    "o": lambda read, null: str(read.record.offset).encode(),
    "T": lambda read, null: str(read.record.timestamp).encode(),
    "k": lambda read, null: null if read.record.key is None else read.record.key,
    "K": lambda read, null: _length(read.record.key),
    "s": lambda read, null: null if read.record.value is None else read.record.value,
    "S": lambda read, null: _length(read.record.value),
    "h": _headers,
}
_FIELDS["v"] = _FIELDS["s"]


def compiled(text: str, null: str = "") -> Callable[[ReadRecord], bytes]:
    """Return a function that prints a record by a format; CommandError if the format is not valid."""
    parts: list[bytes | _Part] = []
    characters = iter(text)
    for character in characters:
        if character not in "%\\":
            parts.append(character.encode())
            continue
        following = next(characters, "")
        if character == "%" and following == "%":
            parts.append(b"%")
        elif character == "%" and following in _FIELDS:
            parts.append(_FIELDS[following])
        elif character == "\\" and following in ESCAPES:
            parts.append(ESCAPES[following])
        else:
            known = "%t %p %o %T %k %K %s %S %h" if character == "%" else "\\n \\t \\r \\0 \\\\"
            raise CommandError(f"the format has {character}{following}; known are {known}", 2)
    written_null = null.encode()

    def write(read: ReadRecord) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(read, written_null) for part in parts)

    return write


def unescaped(text: str) -> str:
    """Return text with \\t and the other escapes replaced, for what users cannot type; other backslashes stay."""
    for name, character in ESCAPES.items():
        if name != "\\":
            text = text.replace(f"\\{name}", character.decode())
    return text


def as_json(read: ReadRecord) -> dict[str, Any]:
    """Return a record and its position as JSON types."""
    return {"topic": read.partition.topic, "partition": read.partition.partition, **record_json(read.record)}


def record_json(record: Record) -> dict[str, Any]:
    """Return a record as JSON types; bytes that are not UTF-8 become {"base64": ...}."""
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[key, _text(value)] for key, value in record.headers],
    }


def _text(data: bytes | None) -> Any:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data or b"").decode()}
