"""Regular expressions over topic names: they match the same names as Python's `re`, in bounded time."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.broker.groups.consumer.topic_pattern import TopicPattern
from ottla.broker.groups.consumer.topic_pattern_parser import PatternError

NAMES = ["", "a", "aa", "ab", "abc", "b", "orders", "orders-1", "orders.eu", "Orders", "x_y", "0", "2024-01", "aaaa"]

atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "[a-z]", r"\d", r"\w", r"\.", "-", "(?:)", r"\W", "[0-9_]"])
expressions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.builds("(?:{}){}".format, inner, st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,}", "{0,2}", ""])),
    ),
    max_leaves=8,
)


@examples(200)
@given(text=expressions, names=st.lists(st.text("ab.-_o0Z", max_size=6), max_size=5))
def test_it_matches_the_same_names_as_re(text: str, names: list[str]) -> None:
    """`re` is a second implementation to compare with, for small expressions."""
    names = [*names, *NAMES]
    assert TopicPattern(text).matching(names) == {name for name in names if re.fullmatch(text, name, re.ASCII)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("^orders.*", {"orders", "orders-1", "orders.eu"}),
        ("^orders$", {"orders"}),
        ("orders", {"orders"}),
        ("^a|^orders$", {"a", "orders"}),
        ("(?i)orders", {"orders", "Orders"}),
        ("(?i:O)rders", {"orders", "Orders"}),
        ("(?P<first>a)(?:b)?", {"a", "ab"}),
        (r"\Qorders.eu\E", {"orders.eu"}),
        (r"\Qorders.eu", {"orders.eu"}),
        ("[[:digit:]]+-[^[:alpha:]]+", {"2024-01"}),
        (r"\A\x61\z", {"a"}),
        (r"\x{61}{2}", {"aa"}),
        ("a{2,3}?", {"aa"}),
        ("[]a-]", {"a"}),
        ("b$a", set()),
        ("a^b", set()),
        ("", {""}),
        ("a{,2}", set()),
    ],
)
def test_each_construct_of_the_syntax_is_supported(text: str, expected: set[str]) -> None:
    """The examples cover anchors, flags, groups, classes, escapes and repetitions."""
    assert TopicPattern(text).matching(NAMES) == expected


@pytest.mark.parametrize(
    "text",
    [
        "(",
        ")",
        "a)",
        "[a",
        "[b-a]",
        "*",
        "a**",
        "a{2}{3}",
        "a{3,2}",
        "a{2000}",
        "\\",
        r"(a)\1",
        "(?=a)",
        "(?<!a)",
        "(?P<1>a)",
        "(?P<x",
        r"\b",
        r"\pL",
        r"\x{110000}",
        r"\xz",
        "[[:nothing:]]",
        "(" * 200 + ")" * 200,
        "a" * 20_000,
        "((a{900}){900}){900}",
        "((){900}){900}",
    ],
)
def test_invalid_and_too_large_expressions_are_refused(text: str) -> None:
    """They raise PatternError."""
    with pytest.raises(PatternError):
        TopicPattern(text)


@examples(200)
@given(st.text(string.punctuation + "ab01", max_size=12))
def test_any_text_is_accepted_or_refused(text: str) -> None:
    """No text raises anything but PatternError."""
    try:
        TopicPattern(text).matching(NAMES)
    except PatternError:
        return


def test_expressions_that_make_backtracking_explode_are_fast() -> None:
    """The work is linear in the length of the name."""
    names = ["a" * 249]
    assert TopicPattern("(a+)+b").matching(names) == frozenset()
    assert TopicPattern("(a|aa)*").matching(names) == set(names)


def test_an_expression_that_takes_too_long_is_refused() -> None:
    """Its automaton has too many sets of states, and the names visit many of them."""
    names = [format(number, "0249b").replace("0", "a").replace("1", "b") for number in range(0, 2**40, 2**30 + 7)]
    with pytest.raises(PatternError, match="too long"):
        TopicPattern("(a|b)*a(a|b){900}").matching(names * 30)


def test_known_names_are_not_matched_again() -> None:
    """When a topic is added, only its name is matched."""
    pattern = TopicPattern("a.*")
    assert pattern.matching(["a", "b"]) == {"a"}
    assert pattern.matching(["a", "b", "ab"]) == {"a", "ab"}
    assert pattern.matching(["b"]) == frozenset()
