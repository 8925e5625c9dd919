"""How lines become records: by a format, and from JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.client.cli.records.input_format import InputRecord, by_format, from_json
from ottla.client.cli.records.offsets import reset_of, split_range
from ottla.client.cli.records.reading import ReadRecord
from ottla.client.cli.records.record_format import as_json, unescaped
from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.sizes import human_bytes, read_bytes
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.record import Record


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        (r"%v\n", b"a:b", InputRecord(b"a:b")),
        (r"%k\t%v", b"k\tv\tw", InputRecord(b"v\tw", b"k")),
        ("%k=%v;", b"k=v;", InputRecord(b"v", b"k")),
        ("%p/%T %h %k: %s", b"3/1000 a=1,a=2 k: v", InputRecord(b"v", b"k", 3, 1000, [("a", b"1"), ("a", b"2")])),
        ("%%%v", b"%v", InputRecord(b"v")),
        ("%T %v", b"-1 v", InputRecord(b"v")),
    ],
)
def test_a_line_is_read_by_a_format(text: str, line: bytes, expected: InputRecord) -> None:
    """A field reaches to the text behind it, the last one to the end."""
    assert by_format(text)(line) == expected


@pytest.mark.parametrize("text", ["", "%k", "%k%v", "%x%v", r"%v\nmore", "%v%", "%v\\"])
def test_a_format_that_cannot_be_read_is_refused(text: str) -> None:
    """With exit code 2, before anything is written."""
    with pytest.raises(CommandError) as refused:
        by_format(text)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(("text", "line"), [("%k:%v", b"none"), ("%v;", b"a;b"), ("%p %v", b"x v"), ("%T %v", b"-5 v")])
def test_a_line_that_does_not_fit_is_refused(text: str, line: bytes) -> None:
    """Nothing is guessed."""
    with pytest.raises(CommandError):
        by_format(text)(line)


@examples(200)
@given(
    st.none() | st.binary(max_size=5),
    st.none() | st.binary(max_size=5),
    st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3),
    st.integers(0, 2**40),
)
def test_what_consume_prints_is_what_produce_reads(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], timestamp: int
) -> None:
    """Any bytes, nulls, headers that repeat, and the partition."""
    line = json.dumps(as_json(ReadRecord(TopicPartition("t", 3), Record(7, timestamp, key, value, headers)))).encode()
    assert from_json(keeps_partition=True)(line) == InputRecord(value, key, 3, timestamp, headers)
    assert from_json(keeps_partition=False)(line).partition is None


def test_json_that_people_write_is_read() -> None:
    """Headers as an object; and a value that is JSON stays JSON."""
    read = from_json(keeps_partition=True)(b'{"value": {"total": 1.5}, "headers": {"a": "1"}, "timestamp": -1}')
    assert read == InputRecord(b'{"total":1.5}', headers=[("a", b"1")])


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"{",
        b'{"key": "k"}',
        b'{"value": {"base64": "?"}}',
        b'{"value": 1, "timestamp": -7}',
        b'{"value": 1, "partition": "1"}',
        b'{"value": 1, "headers": [1]}',
        b"[" * 100_000,
    ],
)
def test_other_json_is_refused(line: bytes) -> None:
    """With one sentence."""
    with pytest.raises(CommandError):
        from_json(keeps_partition=True)(line)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100", ("100", None)),
        ("100:200", ("100", "200")),
        (":200", ("start", "200")),
        ("100:", ("100", None)),
        ("-10:end", ("-10", "end")),
        ("@-2h", ("@-2h", None)),
        ("@-2h:@-1h", ("@-2h", "@-1h")),
        ("@-2h:end", ("@-2h", "end")),
        ("100:@-1h", ("100", "@-1h")),
        ("@2026-01-31T12:00:00", ("@2026-01-31T12:00:00", None)),
        ("@2026-01-31T12:00:00:@2026-01-31T13:00:00", ("@2026-01-31T12:00:00", "@2026-01-31T13:00:00")),
    ],
)
def test_ranges_are_split(text: str, expected: tuple[str, str | None]) -> None:
    """Also between times, which have colons themselves."""
    assert split_range(text) == expected


def test_a_group_starts_at_one_end_of_the_topic() -> None:
    """Its committed offsets say the rest."""
    assert [reset_of(text) for text in (None, "start", "end")] == ["earliest", "earliest", "latest"]
    with pytest.raises(CommandError, match="group seek"):
        reset_of("5")


def test_a_delimiter_may_be_a_tab() -> None:
    """As it is typed in a shell; other backslashes stay."""
    assert [unescaped(text) for text in (r"\t", ":", r"\d", r"a\nb")] == ["\t", ":", r"\d", "a\nb"]


def test_sizes_are_shown_and_read() -> None:
    """In units of 1024; MB is a thousand of a thousand."""
    shown = [human_bytes(size) for size in (0, 1023, 1024, 1_048_575, 5_500_000_000, 2**70)]
    assert shown == ["0 B", "1023 B", "1.0 KiB", "1.0 MiB", "5.1 GiB", "1024.0 EiB"]
    assert [read_bytes(text, "-x") for text in ("7", "10B", "10KiB", "10 kb", "2MiB", "1G")] == [
        *(7, 10, 10_240, 10_000, 2_097_152, 1_000_000_000)
    ]
    for text in ("", "x", "1.5MiB", "-1", "1XiB"):
        with pytest.raises(CommandError):
            read_bytes(text, "-x")
