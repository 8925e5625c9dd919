"""As much of PromQL as it takes to say which metrics and labels an expression uses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
    |(?P<range>\[[^\]]*\])
    |(?P<number>\d[\d.]*(?:e[+-]?\d+)?[a-z]*)
    |(?P<word>[A-Za-z_:][A-Za-z0-9_:]*)
    |(?P<operator>=~|!~|!=|==|<=|>=|[-+*/%^<>=(){},]))""",
    re.VERBOSE,
)
_KEYWORDS = {"and", "or", "unless", "bool", "offset", "inf", "nan"}
# Followed by labels in brackets.
_GROUPINGS = {"by", "without", "on", "ignoring", "group_left", "group_right"}


@dataclass(frozen=True, slots=True)
class Selector:
    """A metric, with its matchers as (operator, value) by label."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...] = ()

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether a series has what the matchers ask for; what a dashboard's variable stands for may be anything."""
        return all(_holds(labels.get(label, ""), operator, value) for label, operator, value in self.matchers)


@dataclass(slots=True)
class Used:
    """What an expression is made of."""

    selectors: list[Selector] = field(default_factory=list)
    # In `by (...)`, `on (...)` and their like.
    grouped_by: set[str] = field(default_factory=set)


def used(expression: str) -> Used:
    """Read an expression; ValueError where it is not PromQL."""
    found, tokens = Used(), list(_tokens(expression))
    brackets = Counter(text for kind, text in tokens if kind == "operator")
    if brackets["("] != brackets[")"] or brackets["{"] != brackets["}"]:
        raise ValueError(f"not PromQL: a bracket is missing in {expression!r}")
    at = 0
    while at < len(tokens):
        kind, text = tokens[at]
        following = tokens[at + 1][1] if at + 1 < len(tokens) else ""
        at += 1
        if kind != "word" or text in _KEYWORDS:
            continue
        if text in _GROUPINGS:
            if following == "(":
                end = tokens.index(("operator", ")"), at)
                found.grouped_by.update(word for kind, word in tokens[at:end] if kind == "word")
                at = end + 1
        elif following == "{":
            end = tokens.index(("operator", "}"), at)
            found.selectors.append(Selector(text, tuple(_matchers([text for _, text in tokens[at + 1 : end]]))))
            at = end + 1
        elif following != "(" and not (at < len(tokens) and tokens[at][1] in _GROUPINGS):
            # Neither a function nor an aggregation.
            found.selectors.append(Selector(text))
    return found


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    at = 0
    while expression[at:].strip():
        match = _TOKEN.match(expression, at)
        if match is None or match.lastgroup is None:
            raise ValueError(f"not PromQL: {expression[at:]!r} in {expression!r}")
        yield match.lastgroup, match[match.lastgroup]
        at = match.end()


def _matchers(words: list[str]) -> Iterator[tuple[str, str, str]]:
    parts = [word for word in words if word != ","]
    if len(parts) % 3:
        raise ValueError(f"not PromQL: {words} are not matchers")
    for at in range(0, len(parts), 3):
        label, operator, value = parts[at : at + 3]
        yield label, operator, value[1:-1]


def _holds(actual: str, operator: str, value: str) -> bool:
    if "$" in value:
        return operator.startswith("!") or bool(actual)
    is_equal = re.fullmatch(value, actual) is not None if operator.endswith("~") else actual == value
    return is_equal != operator.startswith("!")
