"""Settings of jobs: defaults, then a file, then OTTLA_PIPELINE_* of the environment, then flags; the later one counts.

The fields of a settings class are the list of its options: file, environment, flags and help are all read from them.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from ottla.client.cli.terminal.target import options_of_this_machine
from ottla.pipeline.errors import SettingsError

ENVIRONMENT_PREFIX: Final = "OTTLA_PIPELINE_"
ENVIRONMENT_FILE: Final = "OTTLA_PIPELINE_CONFIG"
ENVIRONMENT_BOOTSTRAP: Final = "OTTLA_BOOTSTRAP_SERVERS"
_BOOLEANS: Final = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
_FILE_BYTES_MAX: Final = 1 << 20

Settings = TypeVar("Settings")


def option(
    default: Any, description: str, *, minimum: float | None = None, choices: Sequence[str] = (), flag: str = ""
) -> Any:
    """Declare a field of a settings class; `flag` is its name on the command line where that is a short one."""
    metadata = {"help": description, "minimum": minimum, "choices": tuple(choices), "flag": flag}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class Given(NamedTuple):
    """A value as it was written, and where."""

    value: object
    where: str


class Kind(NamedTuple):
    """What a field holds."""

    item: type
    is_list: bool
    is_mapping: bool
    is_optional: bool


def kinds(settings: type[Any]) -> dict[str, Kind]:
    """Return what each field of a settings class holds."""
    return {name: _kind(hint) for name, hint in get_type_hints(settings).items()}


def _kind(hint: Any) -> Kind:
    is_optional = type(None) in get_args(hint)
    if is_optional:
        (hint,) = (each for each in get_args(hint) if each is not type(None))
    if get_origin(hint) is tuple:
        return Kind(get_args(hint)[0], True, False, is_optional)
    if get_origin(hint) is Mapping:
        return Kind(str, False, True, is_optional)
    return Kind(hint, False, False, is_optional)


def load(
    settings: type[Settings],
    job: str,
    jobs: Mapping[str, type[Any]],
    *,
    file: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, object],
) -> Settings:
    """Return the settings of a job; SettingsError says which value is wrong and where it stands.

    `jobs` has the settings of all jobs: what is for another one is passed over, what is for none is a mistake.
    `flags` has fields by name, None for those that were not given.
    """
    given: dict[str, list[Given]] = {}
    everything = [
        *_from_machine(environment),
        *_from_file(file, job, jobs),
        *_from_environment(environment, jobs),
        *((name, Given(value, _flag_name(settings, name))) for name, value in flags.items() if value is not None),
    ]
    for name, value in everything:
        given.setdefault(name, []).append(value)
    known = kinds(settings)
    values = {name: _merged(settings, name, known[name], found) for name, found in given.items() if name in known}
    return settings(**values)


def _from_machine(environment: Mapping[str, str]) -> Iterable[tuple[str, Given]]:
    """Say which cluster is meant if nothing else does: by the same rule as `ottla`, and with the same variable."""
    if named := environment.get(ENVIRONMENT_BOOTSTRAP):
        yield "bootstrap_servers", Given(named, ENVIRONMENT_BOOTSTRAP)
        return
    options = options_of_this_machine(environment)
    where = "the cluster that `ottla up` runs here"
    yield "bootstrap_servers", Given(options.pop("bootstrap.servers"), where)
    if options:
        yield "client", Given(options, where)


def _from_file(file: Path | None, job: str, jobs: Mapping[str, type[Any]]) -> Iterable[tuple[str, Given]]:
    if file is None:
        return
    for key, value in read_file(file).items():
        name = key.replace("-", "_")
        if name in jobs and isinstance(value, Mapping):
            _check_names(value, kinds(jobs[name]), f"{file}, section {key}")
            if name == job:
                yield from (
                    (each.replace("-", "_"), Given(part, f"{file}, {key}.{each}")) for each, part in value.items()
                )
        else:
            _check_names([key], {each for settings in jobs.values() for each in kinds(settings)} | {*jobs}, str(file))
            yield name, Given(value, f"{file}, {key}")


def _from_environment(environment: Mapping[str, str], jobs: Mapping[str, type[Any]]) -> Iterable[tuple[str, Given]]:
    """Read the environment; options of mappings stand in names of their own, with _ for the dots."""
    names = {name: kind for settings in jobs.values() for name, kind in kinds(settings).items()}
    for key, text in environment.items():
        if not key.startswith(ENVIRONMENT_PREFIX) or key == ENVIRONMENT_FILE:
            continue
        name = key.removeprefix(ENVIRONMENT_PREFIX).lower()
        mapping = next((each for each, kind in names.items() if kind.is_mapping and name.startswith(each + "_")), None)
        if name in names:
            yield name, Given(text, key)
        elif mapping is not None:
            yield mapping, Given({name.removeprefix(mapping + "_").replace("_", "."): text}, key)
        else:
            _check_names([name], names, key)


def read_file(file: Path) -> dict[str, Any]:
    """Read a .yaml, .toml or .json file; SettingsError where there is none, or it does not parse."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise SettingsError(f"cannot read {file}: {error.strerror}") from error
    if len(data) > _FILE_BYTES_MAX:
        raise SettingsError(f"{file} is larger than {_FILE_BYTES_MAX} bytes: that is not a file of settings")
    try:
        content = _parsed(file, data.decode())
    except ValueError as error:
        raise SettingsError(f"{file} does not parse: {error}") from error
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise SettingsError(f"{file} must have names and values, such as `bootstrap_servers: localhost:9092`")
    return content


def _parsed(file: Path, text: str) -> object:
    if file.suffix in (".yaml", ".yml"):
        import yaml

        try:
            return yaml.safe_load(text) or {}
        except yaml.YAMLError as error:
            raise SettingsError(f"{file} does not parse: {error}") from error
    if file.suffix == ".toml":
        return tomllib.loads(text)
    if file.suffix == ".json":
        return json.loads(text)
    raise SettingsError(f"{file} is none of .yaml, .toml and .json")


def _check_names(names: Iterable[object], known: Iterable[str], where: str) -> None:
    for name in names:
        if str(name).replace("-", "_") not in known:
            close = difflib.get_close_matches(str(name).replace("-", "_"), known, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise SettingsError(f"{where}: there is no setting {name}{hint}")


def _flag_name(settings: type[Any], name: str) -> str:
    found = {field.name: field.metadata["flag"] for field in dataclasses.fields(settings)}
    return found.get(name) or "--" + name.replace("_", "-")


def _merged(settings: type[Any], name: str, kind: Kind, given: Sequence[Given]) -> object:
    """Return the value that counts; of mappings each option counts for itself."""
    metadata = next(field.metadata for field in dataclasses.fields(settings) if field.name == name)
    if kind.is_mapping:
        merged: dict[str, str] = {}
        for each in given:
            merged |= _mapping(each)
        return merged
    value, where = given[-1]
    if kind.is_list:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, Sequence):
            raise SettingsError(f"{where}: a list is wanted, not {value!r}")
        texts = [part.strip() if isinstance(part, str) else part for part in parts]
        return tuple(_item(part, kind.item, metadata, where) for part in texts if part != "")
    if kind.is_optional and value in ("", None):
        return None
    return _item(value, kind.item, metadata, where)


def _mapping(given: Given) -> dict[str, str]:
    """Read options with dotted names, as a mapping or as texts KEY=VALUE."""
    value, where = given
    if isinstance(value, Mapping):
        return {str(key): _text(part) for key, part in value.items()}
    found = {}
    for pair in value.split(",") if isinstance(value, str) else value if isinstance(value, Sequence) else [value]:
        key, equals, text = str(pair).partition("=")
        if not equals or not key.strip():
            raise SettingsError(f"{where} takes KEY=VALUE, not {pair!r}")
        found[key.strip()] = text
    return found


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _item(value: object, wanted: type, metadata: Mapping[str, Any], where: str) -> object:
    if isinstance(value, Mapping | list | tuple) or value is None:
        raise SettingsError(f"{where}: one value is wanted, not {value!r}")
    if wanted is bool:
        parsed: object = value if isinstance(value, bool) else _BOOLEANS.get(str(value).strip().lower())
        if parsed is None:
            raise SettingsError(f"{where}: true or false, not {value!r}")
        return parsed
    if wanted in (int, float):
        number = _number(value, wanted, where)
        minimum = metadata["minimum"]
        if minimum is not None and not number >= minimum:
            raise SettingsError(f"{where}: at least {minimum}, not {value!r}")
        return number
    text = _text(value)
    if metadata["choices"] and text not in metadata["choices"]:
        raise SettingsError(f"{where}: one of {', '.join(metadata['choices'])}, not {text!r}")
    return text


def _number(value: object, wanted: type, where: str) -> float:
    noun = "a whole number" if wanted is int else "a number"
    try:
        return int(str(value)) if wanted is int else float(str(value))
    except ValueError:
        raise SettingsError(f"{where}: {noun} is wanted, not {value!r}") from None
