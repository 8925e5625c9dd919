"""The meaning of a name in a config: an option, an option of one listener, an ignored option, or a mistake."""

from __future__ import annotations

import re
from typing import Any

from ottla.broker.config.ignored import is_ignored
from ottla.broker.config.option import Option
from ottla.broker.config.rows.broker import BROKER_OPTIONS, LISTENER_OPTIONS
from ottla.broker.config.rows.security import SASL_MECHANISMS
from ottla.broker.config.rows.topics import TOPIC_OPTIONS

_OF_LISTENER = re.compile(r"listener\.name\.[a-z0-9_-]+\.(?P<rest>.+)")
# Longer than the name of any option.
_NAME_LENGTH_MAX = 200
_MECHANISMS = frozenset(mechanism.lower() for mechanism in SASL_MECHANISMS)


def listener_prefix(listener: str, mechanism: str | None = None) -> str:
    """Return the prefix for options of one listener, or of one SASL mechanism of it."""
    prefix = f"listener.name.{listener.lower()}."
    return prefix if mechanism is None else f"{prefix}{mechanism.lower()}."


def base_name(name: str) -> str:
    """Remove `listener.name.<listener>.`, and `<mechanism>.` before a SASL option."""
    match = _OF_LISTENER.fullmatch(name)
    if match is None:
        return name
    mechanism, _, option = match["rest"].partition(".")
    return option if mechanism in _MECHANISMS and option.startswith("sasl.") else match["rest"]


def listener_name(name: str) -> str | None:
    """Return the listener, in upper case, that a name is limited to; None if there is none."""
    return name.split(".")[2].upper() if _OF_LISTENER.fullmatch(name) else None


def broker_option(name: str) -> Option[Any] | None:
    """Return the option that a name sets, for the whole broker or for one listener."""
    base = base_name(name)
    return BROKER_OPTIONS.get(base) if base == name or base in LISTENER_OPTIONS else None


def is_known(name: str) -> bool:
    """Whether Ottla or Kafka has an option of this name."""
    return broker_option(name) is not None or is_ignored(base_name(name))


def has_no_effect(name: str) -> bool:
    """Whether Kafka has an option of this name that nothing here depends on."""
    option = broker_option(name)
    return is_ignored(base_name(name)) if option is None else bool(option.no_effect)


def suggested_broker_option(name: str) -> str | None:
    """Return the option that an unknown name probably means."""
    if is_known(name.lower()):
        return name.lower()
    topic_option = TOPIC_OPTIONS.get(name)
    if topic_option is not None and topic_option.fallback is not None:
        return topic_option.fallback.name
    return _nearest(name, BROKER_OPTIONS)


def unknown_broker_option(name: str) -> str:
    """Return the message for an unknown option, with the one that was probably meant."""
    suggestion = suggested_broker_option(name)
    return f"{name} is not a broker option" + (f"; did you mean {suggestion}?" if suggestion else "")


def suggested_topic_option(name: str) -> str | None:
    """Return the topic option that an unknown name probably means."""
    for option in TOPIC_OPTIONS.values():
        if any(row.name == name for row in option.chain):
            return option.name
    return _nearest(name, TOPIC_OPTIONS)


def _nearest(name: str, table: dict[str, Option[Any]]) -> str | None:
    import difflib

    if len(name) > _NAME_LENGTH_MAX:
        return None
    return next(iter(difflib.get_close_matches(name, table, n=1, cutoff=0.75)), None)
