"""Filter expressions: what they mean, and that nothing can be done with them but to compare."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console.records.filters import Filter, FilterError, like

RECORD: dict[str, Any] = {
    "key": "customer-1",
    "value": {"user": {"id": 7, "name": "Ada"}, "items": ["a", "b"], "total": 12.5, "ok": True, "none": None},
    "headers": {"trace": "x1"},
    "topic": "orders",
    "partition": 2,
    "offset": 41,
    "timestamp": 1_700_000_000_000,
}


@pytest.mark.parametrize(
    "text",
    [
        'value["user"]["id"] == 7',
        "value.user.id == 7",
        'value.user.name == "Ada" and offset > 40',
        '"a" in value["items"] and value["items"][-1] == "b"',
        'headers["trace"] == "x1" or false',
        "partition in [1, 2]",
        "0 < partition <= 2 < offset",
        "not value.missing",
        "value.missing is None and value.none == null",
        "value.missing.deeper.still is None",
        'lower(value.user.name) == "ada" and upper(key) == "CUSTOMER-1"',
        'starts(key, "customer") and ends(key, "-1") and like(key, "c*-?")',
        'len(value["items"]) == 2 and len(key) == 10',
        'number("12") + 1 == 13 and text(7) == "7"',
        "value.total * 2 == 25 and 7 % 2 == 1 and -offset == -41 and offset / 2 > 20",
        "value.ok == true",
    ],
)
def test_an_expression_matches(text: str) -> None:
    """Paths, comparisons, logic and functions."""
    assert Filter(text).matches(RECORD)


@pytest.mark.parametrize(
    "text",
    [
        "value.user.id > '7'",
        "value > 3",
        "key < 3",
        "offset == '41'",
        "value.total / 0 == 1",
        "key + 1 == 1",
        "value['items'][9] == 'a'",
        "'x' in offset",
        "number('x') == 0",
    ],
)
def test_what_cannot_be_compared_does_not_match(text: str) -> None:
    """Records of a topic differ; one that does not fit is no error."""
    assert not Filter(text).matches(RECORD)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "__import__('os').system('true')",
        "().__class__.__bases__[0].__subclasses__()",
        "value.__class__.__init__.__globals__",
        "[x for x in value]",
        "(lambda: 1)()",
        "value if key else offset",
        "f'{value}'",
        "key := 1",
        "2 ** 999999",
        "1 << 99999",
        "~offset",
        "len(*value)",
        "len(value, key)",
        "open('/etc/passwd')",
        "value[1:2]",
        "b'bytes' == key",
        "unknown == 1",
        "offset == 99999999999999999999999",
        "(" * 300 + "1" + ")" * 300,
        "not " * 400 + "1",
        "-" * 1500 + "1",
        "1" * 3000,
        "a" + "\0",
    ],
)
def test_everything_else_is_refused(text: str) -> None:
    """Nothing of Python is reached: not attributes, calls, comprehensions, or numbers without end."""
    if text == "value.__class__.__init__.__globals__":
        # A path like any other: a key of the record, which is not there.
        assert not Filter(text).matches(RECORD)
        return
    with pytest.raises(FilterError):
        Filter(text)


@given(text=st.text(max_size=80), value=st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_no_text_does_harm(text: str, value: object) -> None:
    """A filter is an expression or a FilterError, and comparing never raises."""
    try:
        compiled = Filter(text)
    except FilterError:
        return
    compiled.matches({**RECORD, "value": value})


_NAMES = st.sampled_from(["key", "value", "value.a", 'value["b"]', "offset", "headers", "1", "'x'", "null", "[1, 2]"])
_EXPRESSIONS = st.recursive(
    _NAMES,
    lambda inner: (
        st.builds(
            lambda a, op, b: f"({a} {op} {b})",
            inner,
            st.sampled_from(["==", "!=", "<", "in", "+", "-", "*", "/", "%"]),
            inner,
        )
        | st.builds(lambda f, a: f"{f}({a})", st.sampled_from(["len", "lower", "text", "number"]), inner)
        | st.builds(lambda a: f"(not {a})", inner)
        | st.builds(lambda a, b: f"like({a}, {b})", inner, inner)
    ),
    max_leaves=8,
)


@given(
    text=_EXPRESSIONS,
    value=st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
)
def test_every_expression_can_be_evaluated(text: str, value: object) -> None:
    """Whatever a record has in it."""
    Filter(text).matches({**RECORD, "value": value})


@given(st.lists(st.sampled_from(["a", "b", "ab", ""]), max_size=6), st.lists(st.sampled_from("ab*?"), max_size=6))
def test_like_agrees_with_a_regular_expression(text: list[str], pattern: list[str]) -> None:
    """* is any text, ? is any character."""
    import re

    expected = re.fullmatch("".join({"*": ".*", "?": "."}.get(each, each) for each in pattern), "".join(text))
    assert like("".join(text), "".join(pattern)) == (expected is not None)


def test_a_hostile_pattern_is_quick() -> None:
    """Many stars that nearly match take no more time than the text is long."""
    assert not like("a" * 60_000, "*a" * 500 + "b")


def test_a_filter_tells_what_it_looks_at() -> None:
    """So that values are not decoded for filters on offsets."""
    assert Filter("offset > 1 and partition == 0").names == {"offset", "partition"}
