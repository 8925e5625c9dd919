"""Reading Java's properties format."""

from __future__ import annotations

import javaproperties
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.client.net.properties import PropertiesError, Property, parse_properties

# What means something in the format, beside letters that mean nothing.
TEXTS = st.lists(st.sampled_from([*"\\\n\r\t\f =:#!utn1aä", "\\u0041", "\\ud83d\\ude00", "\r\n", "key=value\n"]))


@examples(1000)
@given(content=TEXTS.map("".join).map(lambda text: text.encode("latin-1")))
@example(content=b"a\\")
@example(content=b"a\\\n  b = c")
@example(content=b"\\\n\nb=c")
@example(content=b"\\ud83dx")
def test_it_reads_as_another_implementation_does(content: bytes) -> None:
    """Blanks, comments, lines that go on, escapes, and entries that are broken."""
    try:
        expected = [
            (element.key, element.value)
            for element in javaproperties.parse(content)
            if isinstance(element, javaproperties.KeyValue)
        ]
    except javaproperties.InvalidUEscapeError:
        with pytest.raises(PropertiesError):
            list(parse_properties(content))
    else:
        assert [(key, value) for key, value, _ in parse_properties(content)] == expected


def test_an_entry_knows_the_line_that_it_begins_on() -> None:
    """Lines that go on count, as do blank ones and comments, whatever they end with."""
    content = b"# comment\r\na = 1\r\n\nb = 2, \\\r    3\rc: 4"

    assert list(parse_properties(content)) == [Property("a", "1", 2), Property("b", "2, 3", 4), Property("c", "4", 6)]


def test_a_broken_escape_is_told_with_its_line() -> None:
    """So that it can be found in a long file."""
    with pytest.raises(PropertiesError, match=r"^line 2: \\u12 is not \\uXXXX$"):
        list(parse_properties(b"a=1\nb=\\u12"))
