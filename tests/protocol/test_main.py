"""The window on the wire: what `decode` and `recode` print."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest

from ottla.protocol.__main__ import EXAMPLES, main
from ottla.protocol.api import Api
from ottla.protocol.codec import encode
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.requests import encode_request, encode_response

METADATA = MetadataRequest(topics=[MetadataRequestTopic(name="orders")], allow_auto_topic_creation=False)
LINE = f"request\t3\tMetadata\t9\t{encode(METADATA, 9).hex()}"


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, *arguments: str) -> list[str]:
    """Run the tool on standard input and return the lines that it prints."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert main(list(arguments)) == 0
    return capsys.readouterr().out.splitlines()


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that runs the tool."""
    return lambda text, *arguments: run(monkeypatch, capsys, text, *arguments)


def test_decode_prints_one_json_object_a_line(tool: Any) -> None:
    """Fields by name, in the order of the wire."""
    (first, second) = map(json.loads, tool(f"{LINE}\n\n{LINE}\n", "decode"))

    assert first == second
    assert first["api"] == "Metadata"
    assert first["body"]["topics"] == [{"name": "orders"}]
    assert list(first["body"])[:2] == ["topics", "allow_auto_topic_creation"]


def test_recode_prints_the_same_line(tool: Any) -> None:
    """Decoding and encoding again changes nothing."""
    assert tool(LINE, "recode") == [LINE]


def test_recode_marks_what_we_do_not_have(tool: Any) -> None:
    """An unknown API and an unknown version of a known one."""
    lines = ["request\t3\tMetadata\t99\t00", "response\t999\tNever\t0\t00"]

    assert tool("\n".join(lines), "recode") == [line[:-2] + "unsupported" for line in lines]


@pytest.mark.parametrize(
    "line", ["request\t3\tMetadata\t9\t02", "request\t3\tMetadata\t9\tzz", "request\t3\tMetadata\tx\t00"]
)
def test_recode_says_why_a_line_does_not_decode(tool: Any, line: str) -> None:
    """The other fields are kept, the hex gives way to the reason."""
    (answer,) = tool(line, "recode")

    assert answer.startswith(line.rpartition("\t")[0] + "\terror: ")


def test_decode_reports_an_error_as_json_and_goes_on(tool: Any) -> None:
    """One bad line does not end the run."""
    bad, good = map(json.loads, tool(f"nonsense\n{LINE}", "decode"))

    assert "tabs" in bad["error"]
    assert good["api"] == "Metadata"


@pytest.mark.parametrize("with_size", [False, True])
def test_frames_are_taken_with_their_headers(tool: Any, with_size: bool) -> None:
    """As captured from a socket, with or without the size in front."""
    request = b"".join(encode_request(Api.METADATA, 9, 77, "me", METADATA))
    response = b"".join(encode_response(Api.METADATA, 9, 77, MetadataResponse(brokers=[], topics=[])))
    frames = [len(frame).to_bytes(4) + frame if with_size else frame for frame in (request, response)]
    lines = [
        f"{kind}\t3\tMetadata\t9\t{frame.hex()}" for kind, frame in zip(("request", "response"), frames, strict=True)
    ]

    decoded = [json.loads(line) for line in tool("\n".join(lines), "decode", "--frame")]

    assert decoded[0]["header"]["client_id"] == "me"
    assert [line["header"]["correlation_id"] for line in decoded] == [77, 77]
    assert tool("\n".join(lines), "recode", "--frame") == lines


def test_a_frame_must_be_what_its_line_says(tool: Any) -> None:
    """Otherwise the answer would be about another message."""
    frame = b"".join(encode_request(Api.METADATA, 9, 1, "me", METADATA))

    (answer,) = tool(f"request\t3\tMetadata\t8\t{frame.hex()}", "recode", "--frame")

    assert "the line says 3 version 8" in answer


def test_the_example_of_the_help_works(tool: Any) -> None:
    """What the help shows can be pasted."""
    line = EXAMPLES.split("printf '", 1)[1].split("\\n'", 1)[0].encode().decode("unicode_escape")

    (answer,) = map(json.loads, tool(line, "decode"))

    assert answer["body"]["client_software_name"] == "librdkafka"
