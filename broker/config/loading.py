"""Loading a broker's config from a file, the environment and the command line, in ascending precedence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.config.checks import ZOOKEEPER_MISSING
from ottla.broker.config.environment import settings_from_environment
from ottla.broker.config.kinds import HIDDEN
from ottla.broker.config.layers import ConfigError, ConfigSource, Layer, Problem, Setting
from ottla.broker.config.names import base_name, broker_option
from ottla.broker.config.option import MiB
from ottla.broker.config.rows.broker import BROKER_OPTIONS, LISTENER_OPTIONS
from ottla.client.net.properties import PropertiesError, parse_properties

FILE_BYTES_MAX = 1 * MiB

_READABLE_BY_ALL = 0o004


def load_broker_config(
    path: Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Iterable[str] = (),
) -> BrokerConfig:
    """Load a config. `environment` is usually `os.environ`; an override is `key=value`.

    `warnings` and `without_effect` of the result are for the log. All errors are raised together, as one ConfigError.
    """
    warnings: list[str] = []
    problems: list[Problem] = []
    settings = {
        **(_settings_from_file(path, warnings) if path is not None else {}),
        **settings_from_environment(environment or {}),
        **_settings_from_overrides(overrides, problems),
    }
    try:
        config = BrokerConfig([Layer(ConfigSource.STATIC_BROKER, settings)], warnings)
    except ConfigError as error:
        problems += error.problems
    if "zookeeper.connect" not in settings:
        problems.append(ZOOKEEPER_MISSING)
    if problems:
        raise ConfigError(problems)
    return config


def effective_config(config: BrokerConfig) -> str:
    """Return all options with their values, one per line and sorted by name; secrets are hidden."""
    of_listeners = {name for layer in config.layers for name in layer.settings if base_name(name) in LISTENER_OPTIONS}
    return "\n".join(_effective_line(config, name) for name in sorted({*BROKER_OPTIONS, *of_listeners}))


def _effective_line(config: BrokerConfig, name: str) -> str:
    option = BROKER_OPTIONS[base_name(name)]
    best = next(config.candidates(option, name), None)
    if best is None:
        return f"{name} = null"
    text = HIDDEN if option.sensitive else option.kind.format(option.converted(best.value, best.row))
    return f"{name} = {text}" + ("" if best.source is ConfigSource.DEFAULT else f"  ({best.origin})")


def _settings_from_overrides(overrides: Iterable[str], problems: list[Problem]) -> dict[str, Setting]:
    settings = {}
    for override in overrides:
        name, equals, text = override.partition("=")
        if equals and name.strip():
            settings[name.strip()] = Setting(text, "--override")
        else:
            problems.append(Problem((), f'--override "{override}": expected key=value'))
    return settings


def _settings_from_file(path: Path, warnings: list[str]) -> dict[str, Setting]:
    """Read a file in Java's properties format. If a key occurs several times, the last one counts."""
    settings: dict[str, Setting] = {}
    try:
        for key, value, line in parse_properties(_content(path)):
            origin = f"{path} line {line}"
            if key in settings:
                warnings.append(f"{key} ({origin}) replaces the value in {settings[key].origin}")
            settings[key] = Setting(value, origin)
    except PropertiesError as error:
        raise ConfigError([Problem((), f"{path} {error}")]) from None
    secrets = [name for name in settings if (option := broker_option(name)) is not None and option.sensitive]
    if secrets and path.stat().st_mode & _READABLE_BY_ALL:
        warnings.append(f"{path} can be read by all users and contains {', '.join(sorted(secrets))}")
    return settings


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError([Problem((), f"{path}: {error.strerror}")]) from None
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError([Problem((), f"{path}: larger than {FILE_BYTES_MAX} bytes")])
    return content
