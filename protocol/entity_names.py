"""Encoding of user names, client ids and addresses in ZooKeeper paths, because they may contain any character.

They are percent-encoded as in Kafka, so that both find the same nodes. Letters, digits, `-`, `.` and `_` stay as they
are.
"""

from __future__ import annotations

from urllib.parse import quote, unquote


def sanitized(name: str) -> str:
    """Return a name encoded as one part of a path."""
    # Java's encoder also encodes the tilde, and replaces a lone surrogate by a question mark.
    return quote(name, safe="", errors="replace").replace("~", "%7E")


def desanitized(part: str) -> str:
    """Return the name that `sanitized` encoded."""
    return unquote(part.replace("+", " "))
