"""Names of users, client ids and addresses in paths: any text may be one, and a slash in it must not make a path.

They are percent-encoded as Kafka's are, so that both find the same nodes: letters, digits, `-`, `.` and `_` stand for
themselves.
"""

from __future__ import annotations

from urllib.parse import quote, unquote


def sanitized(name: str) -> str:
    """Make a part of a path of a name."""
    # `quote` leaves the tilde, which Java's encoder does not. A lone surrogate is a question mark there.
    return quote(name, safe="", errors="replace").replace("~", "%7E")


def desanitized(part: str) -> str:
    """Make a name of what `sanitized` has made of it."""
    return unquote(part.replace("+", " "))
