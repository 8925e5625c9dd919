"""`ottla profile`: names for clusters."""

from __future__ import annotations

from typing import Annotated

from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.function_commands import Argument, Option
from ottla.client.cli.terminal.nouns import noun_app
from ottla.client.cli.terminal.options import FormatOption
from ottla.client.cli.terminal.output import Format, print_items, print_table, say
from ottla.client.cli.terminal.profiles import check_name, read_profiles, write_profiles
from ottla.client.cli.terminal.target import BOOTSTRAP_DEFAULT, key_values

app = noun_app("profile")

_Name = Annotated[str, Argument(metavar="NAME", help="Name of the profile.")]
_BOOTSTRAP = "bootstrap.servers"
_HIDDEN = "********"


@app.function()
def add(
    name: _Name,
    bootstrap_server: Annotated[
        str, Option("--bootstrap-server", "-b", metavar="HOST:PORT,...", help="Brokers to connect to first.")
    ] = BOOTSTRAP_DEFAULT,
    overrides: Annotated[
        list[str] | None,
        Option("-X", metavar="KEY=VALUE", help="A client option, by Kafka's name; can be repeated."),
    ] = None,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Add a profile, or replace one. The first profile is used at once.

    JSON: name, is_current, options (an object, without passwords).

    \b
    Examples:
      ottla profile add local
      ottla profile add prod -b broker1:9092,broker2:9092 -X security.protocol=SSL -X ssl.cafile=/etc/ca.pem
    """
    from ottla.client.errors import KafkaConfigurationError
    from ottla.client.net.settings import ClientSettings

    check_name(name)
    options = {_BOOTSTRAP: bootstrap_server, **key_values(overrides or (), "-X")}
    try:
        ClientSettings.from_config(options)
    except KafkaConfigurationError as error:
        raise CommandError(str(error), 2) from error
    profiles = read_profiles()
    profiles.options[name] = options
    profiles.current = profiles.current or name
    write_profiles(profiles)
    _print([name], output_format)


@app.function()
def use(name: _Name, output_format: FormatOption = Format.TABLE) -> None:
    """Make commands use a profile, unless -b, OTTLA_BOOTSTRAP_SERVERS or OTTLA_PROFILE is set.

    JSON: name, is_current, options (an object, without passwords).

    \b
    Examples:
      ottla profile use prod
    """
    profiles = read_profiles()
    profiles.get(name)
    profiles.current = name
    write_profiles(profiles)
    _print([name], output_format)


@app.function("list")
def list_profiles(output_format: FormatOption = Format.TABLE) -> None:
    """List the profiles.

    JSON: name, is_current, options (an object, without passwords).

    \b
    Examples:
      ottla profile list
    """
    names = sorted(read_profiles().options)
    _print(names, output_format)
    if not names:
        say("No profiles yet; `ottla profile add NAME -b HOST:PORT` adds one.")


@app.function()
def show(
    name: Annotated[
        str | None, Argument(metavar="[NAME]", help="Name of the profile; by default the current one.")
    ] = None,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Show the options of a profile; passwords are hidden.

    JSON: name, is_current, options (an object, without passwords).

    \b
    Examples:
      ottla profile show
      ottla profile show prod --format json
    """
    profiles = read_profiles()
    shown = name or profiles.current
    if shown is None:
        raise CommandError("No profile is in use; `ottla profile use NAME` chooses one.")
    options = _without_secrets(profiles.get(shown))
    if output_format.is_data:
        _print([shown], output_format)
    else:
        print_table(("OPTION", "VALUE"), list(options.items()), {})


@app.function()
def remove(name: _Name, output_format: FormatOption = Format.TABLE) -> None:
    """Remove a profile; the cluster does not change.

    JSON: name.

    \b
    Examples:
      ottla profile remove prod
    """
    profiles = read_profiles()
    profiles.get(name)
    del profiles.options[name]
    if profiles.current == name:
        profiles.current = None
    write_profiles(profiles)
    if output_format.is_data:
        print_items([{"name": name}], output_format)
    else:
        print_table(("PROFILE", "STATUS"), [(name, "removed")], {})


def _print(names: list[str], output_format: Format) -> None:
    profiles = read_profiles()
    items = [
        {"name": name, "is_current": name == profiles.current, "options": _without_secrets(profiles.options[name])}
        for name in names
    ]
    if output_format.is_data:
        print_items(items, output_format)
        return
    rows = [
        (name, "yes" if name == profiles.current else "no", profiles.options[name].get(_BOOTSTRAP, BOOTSTRAP_DEFAULT))
        for name in names
    ]
    print_table(("PROFILE", "CURRENT", "BOOTSTRAP-SERVERS"), rows, {})


def _without_secrets(options: dict[str, str]) -> dict[str, str]:
    return {key: _HIDDEN if key.endswith("password") else value for key, value in options.items()}
