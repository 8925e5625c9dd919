"""`ssl.principal.mapping.rules`: user names from the names in certificates.

    RULE:pattern/replacement/[LU]    if the whole name matches; then in lower or upper case
    DEFAULT                          the name as it is

Rules are separated by commas, and the first that matches counts. Pattern and replacement are as in Java, with `$1` for
the first group.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:,|$)"
)
_REFERENCE: Final = re.compile(r"\$(\d+)|\\(.)")


class MappingRulesError(ValueError):
    """The rules are malformed."""


class _Rule(NamedTuple):
    # None means the name as it is.
    pattern: re.Pattern[str] | None
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        """Return the user name; None if the rule does not match."""
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        user = _REFERENCE.sub(lambda part: _referred(match, part), self.replacement)
        return user.lower() if self.case == "L" else user.upper() if self.case == "U" else user


class PrincipalMapping:
    """The rules of a broker."""

    def __init__(self, text: str) -> None:
        """Parse the rules; MappingRulesError if they are malformed."""
        self._rules: list[_Rule] = []
        text = text.strip()
        position = 0
        while position < len(text):
            found = _RULE.match(text, position)
            if found is None:
                raise MappingRulesError(f"ssl.principal.mapping.rules is malformed from {text[position:]!r} on")
            self._rules.append(_rule(found))
            position = found.end()

    def user(self, distinguished_name: str) -> str | None:
        """Return the user name; None if no rule matches, so the user is unknown."""
        return next((user for rule in self._rules if (user := rule.apply(distinguished_name))), None)


def _rule(found: re.Match[str]) -> _Rule:
    if found["default"]:
        return _Rule(None, "", "")
    try:
        pattern = re.compile(found["pattern"])
    except re.error as error:
        raise MappingRulesError(
            f"ssl.principal.mapping.rules: {found['pattern']!r} is not a pattern: {error}"
        ) from error
    for reference in _REFERENCE.finditer(found["replacement"]):
        if reference[1] and int(reference[1]) > pattern.groups:
            raise MappingRulesError(f"ssl.principal.mapping.rules: {found['pattern']!r} has no group {reference[1]}")
    return _Rule(pattern, found["replacement"], found["case"])


def _referred(match: re.Match[str], reference: re.Match[str]) -> str:
    return (match[int(reference[1])] or "") if reference[1] else reference[2]
