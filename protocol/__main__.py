"""A command that shows messages of the wire: `python -m ottla.protocol decode|recode`.

It reads lines from standard input, with fields separated by tabs:

    request|response  api key  api name  version  hex of the body without its header

`decode` prints each line as JSON. `recode` prints the line with its body decoded and encoded again. In place of the hex
it prints `unsupported` if we do not have that API or version, and `error: ...` if the body does not decode. With
`--frame` the hex is a whole frame as captured from a socket, with its header, and with or without its size.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ottla.protocol.api import Api
from ottla.protocol.codec import decode, encode
from ottla.protocol.errors import DecodeError, ProtocolError
from ottla.protocol.inspection import viewed
from ottla.protocol.requests import decode_request, decode_response, encode_request, encode_response

EXAMPLES = """examples:
  printf 'request\\t18\\tApiVersions\\t3\\t0b6c696272646b61666b6107322e31312e3000\\n' | python -m ottla.protocol decode
  python -m ottla.protocol decode --frame < captured.tsv | jq .body
  python -m ottla.protocol recode < bodies.tsv | diff - bodies.tsv
"""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of input; `api` is None if we do not have the API in that version."""

    kind: str
    key: int
    name: str
    version: int
    body: bytes
    api: Api | None


def parse_line(text: str) -> Line:
    """Read one line; raise DecodeError if it does not have the form above."""
    fields = text.split("\t")
    if len(fields) != 5 or fields[0] not in ("request", "response"):
        raise DecodeError("a line is: request|response, api key, name, version, hex, separated by tabs")
    kind, key_text, name, version_text, hex_text = fields
    try:
        key, version, body = int(key_text), int(version_text), bytes.fromhex(hex_text)
    except ValueError as error:
        raise DecodeError(str(error)) from error
    api = Api(key) if key in Api.__members__.values() else None
    return Line(kind, key, name, version, body, api if api is not None and version in api.versions else None)


def decode_line(line: Line, framed: bool) -> dict[str, Any]:
    """Return what `decode` prints for a line."""
    shown: dict[str, Any] = {"kind": line.kind, "api": line.name, "key": line.key, "version": line.version}
    if line.api is None:
        return shown | {"error": "unsupported"}
    if not framed:
        return shown | {"body": viewed(decode(_message_class(line), line.version, line.body), line.version)}
    header, message = _decode_frame(line)
    return shown | {"header": viewed(header, _header_version(line)), "body": viewed(message, line.version)}


def recode_line(line: Line, framed: bool) -> str:
    """Return what `recode` prints in place of the hex."""
    if line.api is None:
        return "unsupported"
    if not framed:
        return encode(decode(_message_class(line), line.version, line.body), line.version).hex()
    header, message = _decode_frame(line)
    if line.kind == "request":
        parts = encode_request(line.api, line.version, header.correlation_id, header.client_id, message)
    else:
        parts = encode_response(line.api, line.version, header.correlation_id, message)
    body = b"".join(parts)
    return (len(body).to_bytes(4) + body if _has_size(line.body) else body).hex()


def _message_class(line: Line) -> Any:
    assert line.api is not None
    return line.api.request if line.kind == "request" else line.api.response


def _header_version(line: Line) -> int:
    assert line.api is not None
    if line.kind == "request":
        return line.api.request_header_version(line.version)
    return line.api.response_header_version(line.version)


def _has_size(frame: bytes) -> bool:
    """Whether the frame starts with its size. An API key or a correlation id hardly ever equals the size by chance."""
    return len(frame) >= 4 and int.from_bytes(frame[:4]) == len(frame) - 4


def _decode_frame(line: Line) -> tuple[Any, Any]:
    assert line.api is not None
    frame = line.body[4:] if _has_size(line.body) else line.body
    if line.kind == "response":
        return decode_response(line.api, line.version, frame)
    header, message = decode_request(frame)
    if (header.request_api_key, header.request_api_version) != (line.key, line.version):
        raise DecodeError(
            f"the frame is a request of API {header.request_api_key} version {header.request_api_version}, "
            f"the line says {line.key} version {line.version}"
        )
    return header, message


def answers(lines: Iterable[str], command: str, framed: bool) -> Iterator[str]:
    """Return one line of output for each line of input that is not blank."""
    for text in lines:
        text = text.rstrip("\r\n")
        if not text:
            continue
        prefix = "\t".join(text.split("\t")[:4])
        try:
            line = parse_line(text)
            if command == "decode":
                yield json.dumps(decode_line(line, framed), ensure_ascii=False)
            else:
                yield f"{prefix}\t{recode_line(line, framed)}"
        except ProtocolError as error:
            message = " ".join(str(error).split())
            yield (
                json.dumps({"error": message, "line": prefix}) if command == "decode" else f"{prefix}\terror: {message}"
            )


def main(arguments: list[str] | None = None) -> int:
    """Run the tool."""
    parser = argparse.ArgumentParser(
        prog="python -m ottla.protocol",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=("decode", "recode"), help="print JSON, or encode the line again")
    parser.add_argument("--frame", action="store_true", help="the hex is a whole frame, with its header")
    options = parser.parse_args(arguments)
    try:
        for answer in answers(sys.stdin, options.command, options.frame):
            print(answer)
    except BrokenPipeError:
        sys.stderr.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
