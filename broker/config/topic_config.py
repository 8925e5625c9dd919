"""`TopicConfig`: the typed, frozen options of one topic, made from its overrides and the broker's config."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self

from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.config.ignored import IGNORED_TOPIC_OPTIONS
from ottla.broker.config.layers import (
    ConfigError,
    ConfigSource,
    OptionCandidate,
    Problem,
    Resolved,
    Setting,
    parse,
    resolved,
)
from ottla.broker.config.names import suggested_topic_option
from ottla.broker.config.option import LONG_MAX
from ottla.broker.config.rows.topics import TOPIC_OPTIONS, TopicOptions

_ORIGIN = "topic config"
_UNKNOWN_SHOWN_MAX = 10


class TopicConfig(TopicOptions):
    """The options of one topic on one broker, each an attribute with its effective value."""

    broker: BrokerConfig
    # The overrides of the topic, as text.
    overrides: Mapping[str, str]
    _values: Mapping[str, Any]

    def __init__(self, broker: BrokerConfig, overrides: Mapping[str, str] | None = None) -> None:
        """Read the overrides of a topic. An unknown name has no effect, because a newer broker may have set it."""
        problems: list[Problem] = []
        values: dict[str, Any] = {}
        for name, text in (overrides or {}).items():
            try:
                if name in TOPIC_OPTIONS:
                    values[name] = parse(TOPIC_OPTIONS[name], name, Setting(text, _ORIGIN))
            except ConfigError as error:
                problems += error.problems
        vars(self).update(broker=broker, overrides=MappingProxyType(dict(overrides or {})), _values=values)
        for option in TOPIC_OPTIONS.values():
            inherited = option.default if option.fallback is None else vars(broker)[option.fallback.attribute]
            vars(self)[option.attribute] = values.get(option.name, inherited)
        if not problems and self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            message = (
                f"min.compaction.lag.ms = {self.min_compaction_lag_ms} must be at most "
                f"max.compaction.lag.ms = {self.max_compaction_lag_ms}"
            )
            problems.append(Problem(("min.compaction.lag.ms", "max.compaction.lag.ms"), message))
        if problems:
            raise ConfigError(problems)

    @classmethod
    def validated(cls, broker: BrokerConfig, overrides: Mapping[str, str]) -> Self:
        """Read new overrides. Here an unknown name is a problem too."""
        unknown = [name for name in overrides if name not in TOPIC_OPTIONS and name not in IGNORED_TOPIC_OPTIONS]
        # Looking for the name that was meant takes a while, and a client may send thousands of names.
        problems = [Problem((name,), _unknown_name(name)) for name in unknown[:_UNKNOWN_SHOWN_MAX]]
        try:
            config = cls(broker, overrides)
        except ConfigError as error:
            raise ConfigError([*problems, *error.problems]) from None
        if problems:
            raise ConfigError(problems)
        return config

    def resolve(self, name: str) -> Resolved:
        """Return the value of one option with its source and synonyms."""
        option = TOPIC_OPTIONS.get(name)
        if option is None:
            raise ConfigError([Problem((name,), _unknown_name(name))])
        candidates = []
        if name in self._values:
            candidates.append(OptionCandidate(option, name, self._values[name], ConfigSource.TOPIC, _ORIGIN))
        if option.fallback is not None:
            candidates += self.broker.candidates(option.fallback)
        else:
            candidates.append(OptionCandidate(option, name, option.default, ConfigSource.DEFAULT, "default"))
        return resolved(option, candidates)

    @property
    def timestamp_before_limit_ms(self) -> int:
        """How far a timestamp may be behind the clock; the old option counts if the new one is not set."""
        own = self.message_timestamp_before_max_ms
        return self.message_timestamp_difference_max_ms if own == LONG_MAX else own

    @property
    def timestamp_after_limit_ms(self) -> int:
        """How far a timestamp may be ahead of the clock; the old option counts if the new one is not set."""
        own = self.message_timestamp_after_max_ms
        return self.message_timestamp_difference_max_ms if own == LONG_MAX else own


def _unknown_name(name: str) -> str:
    suggestion = suggested_topic_option(name)
    return f"{name} is not a topic option" + (f"; did you mean {suggestion}?" if suggestion else "")
