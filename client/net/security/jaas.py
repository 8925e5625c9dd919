"""The login syntax of Kafka's options, after Java's JAAS:

    org.apache.kafka.common.security.plain.PlainLoginModule required username="b" password="s" user_alice="p";

Only the values matter. The class name selects the mechanism; no class is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_MODULES: Final = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
    # For ZooKeeper.
    "DigestLoginModule": ("DIGEST-MD5",),
}
_TOKEN: Final = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^\s"=;]+)|([=;]))', re.DOTALL)
_USER_PREFIX: Final = "user_"


class JaasError(ValueError):
    """The text is not valid. The message quotes nothing from it, because it has passwords."""


@dataclass(frozen=True, slots=True)
class JaasLogin:
    """The options of one login module."""

    mechanisms: tuple[str, ...]
    options: Mapping[str, str] = field(repr=False)

    @property
    def users(self) -> dict[str, str]:
        """The users that may log in with PLAIN, with their passwords."""
        named = _USER_PREFIX
        return {name[len(named) :]: value for name, value in self.options.items() if name.startswith(named)}

    def option(self, name: str) -> str:
        """Return a value that the broker's own login needs; JaasError if it is missing."""
        if name not in self.options:
            raise JaasError(f"the login has no {name}")
        return self.options[name]


def parse_login(text: str) -> JaasLogin:
    """Read one login: module, flag, options, and a semicolon at the end."""
    words = _words(text)
    if len(words) < 3 or words[-1] != (";", False):
        raise JaasError("a login is: module required name=value ... ;")
    module, flag = words[0][0].rpartition(".")[2], words[1][0].lower()
    if module not in _MODULES:
        raise JaasError(f"the login module is not one of {', '.join(_MODULES)}")
    if flag not in _FLAGS:
        raise JaasError("after the login module comes the word: required")
    options: dict[str, str] = {}
    rest = words[2:-1]
    if len(rest) % 3:
        raise JaasError("an option of a login is: name=value")
    for name, equals, value in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        if equals != ("=", False) or name[0] in ("=", ";") or value in (("=", False), (";", False)):
            raise JaasError("an option of a login is: name=value")
        if name[0] in options:
            raise JaasError("a login has an option twice")
        options[name[0]] = value[0]
    return JaasLogin(_MODULES[module], options)


def _words(text: str) -> list[tuple[str, bool]]:
    """Split into words, each with whether it was quoted."""
    words: list[tuple[str, bool]] = []
    position, text = 0, text.strip()
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise JaasError("a quote is not closed")
        quoted = found[1]
        words.append((re.sub(r"\\(.)", r"\1", quoted), True) if quoted is not None else (found[2] or found[3], False))
        position = found.end()
    return words
