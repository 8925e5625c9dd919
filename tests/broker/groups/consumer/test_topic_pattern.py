"""Expressions over topic names: the same names as Python's `re` finds, and never a long time."""

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
def test_it_finds_what_re_finds(text: str, names: list[str]) -> None:
    """As long as `re` is not led astray."""
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
def test_it_knows_the_syntax(text: str, expected: set[str]) -> None:
    """Each construct that is in use."""
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
def test_it_refuses_what_is_no_expression_or_too_large(text: str) -> None:
    """With an error of its own."""
    with pytest.raises(PatternError):
        TopicPattern(text)


@examples(200)
@given(st.text(string.punctuation + "ab01", max_size=12))
def test_any_text_is_understood_or_refused(text: str) -> None:
    """Nothing else is raised."""
    try:
        TopicPattern(text).matching(NAMES)
    except PatternError:
        return


def test_expressions_that_lead_backtracking_astray_end_at_once() -> None:
    """The work depends on the length of the name."""
    names = ["a" * 249]
    assert TopicPattern("(a+)+b").matching(names) == frozenset()
    assert TopicPattern("(a|aa)*").matching(names) == set(names)


def test_an_expression_that_takes_too_long_is_refused() -> None:
    """Its automaton has very many states, and names can visit them all."""
    names = [format(number, "0249b").replace("0", "a").replace("1", "b") for number in range(0, 2**40, 2**30 + 7)]
    with pytest.raises(PatternError, match="too long"):
        TopicPattern("(a|b)*a(a|b){900}").matching(names * 30)


def test_names_that_were_seen_are_not_looked_at_again() -> None:
    """When a topic is added, only that one is."""
    pattern = TopicPattern("a.*")
    assert pattern.matching(["a", "b"]) == {"a"}
    assert pattern.matching(["a", "b", "ab"]) == {"a", "ab"}
    assert pattern.matching(["b"]) == frozenset()
