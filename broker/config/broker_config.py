"""`BrokerConfig`: the typed, frozen options of one broker, made from layers of settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Self, TypeVar

from ottla.broker.config.addresses import Endpoint, Listener, ZooKeeperAddresses
from ottla.broker.config.checks import ZOOKEEPER_MISSING, problems_between_options
from ottla.broker.config.doubts import security_doubts
from ottla.broker.config.layers import (
    ConfigError,
    ConfigSource,
    Layer,
    OptionCandidate,
    Problem,
    Resolved,
    Setting,
    parse,
    resolved,
)
from ottla.broker.config.names import (
    broker_option,
    has_no_effect,
    is_known,
    listener_name,
    listener_prefix,
    suggested_broker_option,
    unknown_broker_option,
)
from ottla.broker.config.option import CLUSTER_WIDE, PER_BROKER, READ_ONLY, Option
from ottla.broker.config.rows.broker import BROKER_OPTIONS, BrokerOptions

T = TypeVar("T")


class BrokerConfig(BrokerOptions):
    """The options of one broker, each an attribute with its effective value.

    A change while the broker runs gives a new object, through `with_dynamic`.
    """

    # The settings, in order of precedence.
    layers: tuple[Layer, ...]
    # For the operator: settings without effect, and other findings of the loader.
    warnings: tuple[str, ...]
    # Options of Kafka that were set, but change nothing here.
    without_effect: tuple[str, ...]
    # Each layer with its values, by the names that the settings used.
    _values: tuple[tuple[Layer, Mapping[str, Any]], ...]

    def __init__(self, layers: Iterable[Layer] = (), warnings: Iterable[str] = ()) -> None:
        """Read and check all layers; raise one ConfigError with all problems."""
        ordered = tuple(sorted(layers, key=lambda layer: layer.source))
        problems: list[Problem] = []
        values = tuple((layer, _parsed(layer, problems)) for layer in ordered)
        names = {name: setting for layer in ordered for name, setting in layer.settings.items()}
        vars(self).update(
            layers=ordered,
            without_effect=tuple(sorted(name for name in names if has_no_effect(name))),
            _values=values,
        )
        for option in BROKER_OPTIONS.values():
            best = next(self.candidates(option), None)
            vars(self)[option.attribute] = None if best is None else option.converted(best.value, best.row)
        vars(self)["warnings"] = (*warnings, *self._doubts(names), *security_doubts(self))
        wrong = {name for problem in problems for name in problem.names}
        problems += [problem for problem in problems_between_options(self) if wrong.isdisjoint(problem.names)]
        if problems:
            raise ConfigError(problems)

    @classmethod
    def of(cls, settings: Mapping[str, str], origin: str = "given") -> Self:
        """Return a config with one static layer, as if a file had set it."""
        layer = {name: Setting(text, origin) for name, text in settings.items()}
        return cls([Layer(ConfigSource.STATIC_BROKER, layer)])

    def with_dynamic(self, per_broker: Mapping[str, str], cluster_wide: Mapping[str, str]) -> Self:
        """Return this config with other dynamic settings, of this broker and of all brokers."""
        broker = {name: Setting(text, "dynamic, this broker") for name, text in per_broker.items()}
        cluster = {name: Setting(text, "dynamic, all brokers") for name, text in cluster_wide.items()}
        static = [layer for layer in self.layers if layer.source is ConfigSource.STATIC_BROKER]
        return type(self)(
            [Layer(ConfigSource.DYNAMIC_BROKER, broker), Layer(ConfigSource.DYNAMIC_DEFAULT_BROKER, cluster), *static]
        )

    def for_listener(self, listener: str, option: Option[T], mechanism: str | None = None) -> T:
        """Return the value of an option for one listener, and for one SASL mechanism of it if one is named."""
        special = self.set_for_listener(listener, option, mechanism)
        general: T = vars(self)[option.attribute]
        return general if special is None else special

    def set_for_listener(self, listener: str, option: Option[T], mechanism: str | None = None) -> T | None:
        """Return the value that was set under the name of one listener; None if there is none."""
        for prefix in (listener_prefix(listener, mechanism), listener_prefix(listener)):
            for _, values in self._values:
                if prefix + option.name in values:
                    special: T = values[prefix + option.name]
                    return special
        return None

    def resolve(self, name: str) -> Resolved:
        """Return the value of an option, or of an option of one listener, with its source and synonyms."""
        option = broker_option(name)
        if option is None:
            raise ConfigError([Problem((name,), unknown_broker_option(name))])
        return resolved(option, list(self.candidates(option, name)))

    def origin(self, option: Option[Any]) -> str:
        """Return where the value of an option was set, in words."""
        return next((candidate.origin for candidate in self.candidates(option)), "default")

    def candidates(self, option: Option[Any], name: str | None = None) -> Iterator[OptionCandidate]:
        """Yield the values of an option and of its fallbacks, in order of precedence.

        With the name of an option of one listener, settings under that name come first.
        """
        if name is not None and name != option.name:
            for layer, values in self._values:
                if name in values:
                    yield OptionCandidate(option, name, values[name], layer.source, layer.settings[name].origin)
        for layer, values in self._values:
            for row in option.chain:
                if row.name in values:
                    yield OptionCandidate(
                        row, row.name, values[row.name], layer.source, layer.settings[row.name].origin
                    )
        for row in option.chain:
            if row.default is not None:
                yield OptionCandidate(row, row.name, row.default, ConfigSource.DEFAULT, "default")

    def _doubts(self, settings: Mapping[str, Setting]) -> Iterator[str]:
        """Yield the settings that have no effect but were probably meant to have one."""
        listeners = {endpoint.listener_name for endpoint in self.listeners}
        for name, setting in settings.items():
            if not is_known(name):
                suggestion = suggested_broker_option(name)
                hint = f"; did you mean {suggestion}?" if suggestion else ""
                yield f"{name} ({setting.origin}) is not a known option and has no effect{hint}"
            elif (listener := listener_name(name)) is not None and listener not in listeners:
                yield f"{name} ({setting.origin}) has no effect, because listeners has no {listener}"

    @cached_property
    def bound_listeners(self) -> tuple[Listener, ...]:
        """The listeners to open, with their protocols."""
        return self._with_protocols(self.listeners)

    @cached_property
    def public_listeners(self) -> tuple[Listener, ...]:
        """The listeners that clients and brokers should connect to, with their protocols."""
        return self._with_protocols(self.advertised_listeners)

    @cached_property
    def inter_broker_listener(self) -> Listener:
        """The public listener for requests between brokers."""
        name = (self.inter_broker_listener_name or self.security_inter_broker_protocol).upper()
        return next(listener for listener in self.public_listeners if listener.name == name)

    def is_for_brokers_only(self, listener: str) -> bool:
        """Whether a listener has only brokers as its clients, so that limits of the whole broker do not count there."""
        return len(self.bound_listeners) > 1 and listener == self.inter_broker_listener.name

    @property
    def zookeeper(self) -> ZooKeeperAddresses:
        """The ensemble. Every broker needs one; loading checks that it is set."""
        if self.zookeeper_connect is None:
            raise ConfigError([ZOOKEEPER_MISSING])
        return self.zookeeper_connect

    def _with_protocols(self, endpoints: Iterable[Endpoint]) -> tuple[Listener, ...]:
        protocols = self.listener_security_protocol_map
        return tuple(
            Listener(
                endpoint.listener_name, protocols[endpoint.listener_name], endpoint.address.host, endpoint.address.port
            )
            for endpoint in endpoints
        )


def _parsed(layer: Layer, problems: list[Problem]) -> dict[str, Any]:
    """Return the values of a layer. Wrong values, and options that this layer must not set, become problems."""
    values: dict[str, Any] = {}
    for name, setting in layer.settings.items():
        option = broker_option(name)
        if option is None:
            continue
        try:
            values[name] = parse(option, name, setting)
        except ConfigError as error:
            problems += error.problems
        # Listeners belong to one broker, so an option of one listener does too.
        dynamic = PER_BROKER if name != option.name and option.dynamic is CLUSTER_WIDE else option.dynamic
        if layer.source is ConfigSource.DYNAMIC_BROKER and dynamic is READ_ONLY:
            problems.append(Problem((option.name,), f"{name} ({setting.origin}) can only be changed by a restart"))
        if layer.source is ConfigSource.DYNAMIC_DEFAULT_BROKER and dynamic is not CLUSTER_WIDE:
            problems.append(Problem((option.name,), f"{name} ({setting.origin}) cannot be set for all brokers"))
    return values
