"""Which names topics may have. They become names of directories and of nodes in ZooKeeper, whoever sent them."""

from __future__ import annotations

import re
from typing import Final

from ottla.protocol.errors import ErrorCode, KafkaError

NAME_LENGTH_MAX: Final = 249

_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


def topic_name_problem(name: str) -> str | None:
    """Return why no topic can have a name; None if one can."""
    if not name:
        return "a topic name cannot be empty"
    if name in (".", ".."):
        return f'a topic cannot be named "{name}"'
    if len(name) > NAME_LENGTH_MAX:
        return f"a topic name has at most {NAME_LENGTH_MAX} characters, this one {len(name)}"
    if not _NAME.fullmatch(name):
        return f"{name!r} has characters besides letters, digits, dot, underscore and hyphen"
    return None


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION for a name that no topic can have."""
    problem = topic_name_problem(name)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
