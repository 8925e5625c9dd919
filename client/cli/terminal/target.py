"""How a command finds its cluster, and the options for it that all cluster commands share."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import click

from ottla.client.cli.terminal.errors import CommandError, explained
from ottla.client.cli.terminal.function_commands import (
    FunctionCommand,
    Option,
    click_parameter,
    command_name,
    declared_parameters,
)
from ottla.client.cli.terminal.options import default_directory
from ottla.client.cli.terminal.output import Format, print_items, print_table

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.client.net.settings import ClientSettings

T = TypeVar("T")
CommandT = TypeVar("CommandT", bound=Callable[..., None])

BOOTSTRAP_DEFAULT: Final = "localhost:9092"
_REQUEST_TIMEOUT_S_MAX: Final = 30.0
_CONNECT_TIMEOUT_S_MAX: Final = 10.0

_Bootstrap = Annotated[
    str | None,
    Option(
        "--bootstrap-server",
        "-b",
        envvar="OTTLA_BOOTSTRAP_SERVERS",
        metavar="HOST:PORT,...",
        help="Brokers to connect to first.",
        show_default="the cluster that `ottla up` runs here, else localhost:9092",
    ),
]
_CommandConfig = Annotated[
    Path | None,
    Option(
        "--command-config",
        envvar="OTTLA_COMMAND_CONFIG",
        metavar="FILE",
        help="A .properties file with client options.",
    ),
]
_Overrides = Annotated[
    list[str] | None,
    Option("-X", metavar="KEY=VALUE", help="A client option, by Kafka's name; can be repeated."),
]
_Timeout = Annotated[
    float, Option(min=0.1, metavar="SECONDS", help="How long the command may take, if it waits for the cluster.")
]
_Format = Annotated[
    Format, Option("--format", help="How to print the result. JSON: one object per line; YAML: a list.")
]


@dataclass(frozen=True)
class Target:
    """The cluster that a command is for, and how its result is printed."""

    bootstrap_servers: str | None = None
    command_config: Path | None = None
    overrides: tuple[str, ...] = ()
    timeout_s: float = 30.0
    output_format: Format = Format.TABLE

    @property
    def is_data(self) -> bool:
        """Whether a script reads the result."""
        return self.output_format.is_data

    def settings(self, kind: type[ClientSettings]) -> dict[str, Any]:
        """Return the keyword arguments of a client; CommandError if an option is invalid."""
        from ottla.client.cli.terminal.profiles import options_in_use
        from ottla.client.errors import KafkaConfigurationError
        from ottla.client.net.settings import read_properties

        request_ms = int(min(self.timeout_s, _REQUEST_TIMEOUT_S_MAX) * 1000)
        settings: dict[str, Any] = {}
        defaults: dict[str, Any] = {
            "client_id": "ottla-cli",
            "default_api_timeout_ms": int(self.timeout_s * 1000),
            "request_timeout_ms": request_ms,
            "connect_timeout_ms": int(min(self.timeout_s, _CONNECT_TIMEOUT_S_MAX) * 1000),
        }
        if self.bootstrap_servers is not None and not self.bootstrap_servers.strip(", "):
            raise CommandError("-b is empty: write HOST:PORT, or leave it out.", 2)
        try:
            if self.command_config is not None:
                settings |= kind.kwargs_from_config(read_properties(self.command_config))
            settings |= kind.kwargs_from_config(key_values(self.overrides, "-X"))
            # A profile belongs to one cluster. Another cluster must not receive its password.
            if self.bootstrap_servers is None and "bootstrap_servers" not in settings:
                settings = kind.kwargs_from_config(options_in_use()) | settings
            if self.bootstrap_servers is not None:
                settings["bootstrap_servers"] = self.bootstrap_servers
            elif "bootstrap_servers" not in settings:
                settings = kind.kwargs_from_config(options_of_this_machine()) | settings
        except KafkaConfigurationError as error:
            raise CommandError(str(error), 2) from error
        return defaults | settings

    def run(self, work: Callable[[Admin], Awaitable[T]], *, is_endless: bool = False) -> T:
        """Run a coroutine with an admin client of the cluster; CommandError if it raises a KafkaError.

        All of it ends within the timeout, unless it is endless: then only each request does.
        """
        return self._run(work, None if is_endless else self.timeout_s)

    def change(self, work: Callable[[Admin], Awaitable[T]]) -> T:
        """Run a coroutine that changes the cluster, as `run`; if there was no answer, say that the outcome is open."""
        return self._run(work, self.timeout_s, is_change=True)

    def _run(self, work: Callable[[Admin], Awaitable[T]], timeout_s: float | None, *, is_change: bool = False) -> T:
        from ottla.client.admin.admin import Admin
        from ottla.client.net.settings import ClientSettings

        settings = self.settings(ClientSettings)

        async def main() -> T:
            import asyncio

            from ottla.client.errors import KafkaTimeoutError

            admin = Admin(**settings)
            try:
                async with asyncio.timeout(timeout_s), admin:
                    return await work(admin)
            except TimeoutError as error:
                raise KafkaTimeoutError(f"The cluster did not answer within {timeout_s:g} s") from error

        return run(main, is_change=is_change)

    def print_items(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Print objects for scripts."""
        print_items(items, self.output_format)

    def show(
        self,
        headings: Sequence[str],
        rows: Sequence[Sequence[object]],
        items: Sequence[Mapping[str, Any]],
        *,
        spare: Sequence[str] = (),
    ) -> None:
        """Print `rows` as a table, or `items` as data; a narrow terminal has no room for the columns in `spare`."""
        if self.is_data:
            self.print_items(items)
        else:
            print_table(headings, [[cell(value) for value in row] for row in rows], STYLES, spare)


STYLES: Final = {
    "ok": "green",
    "Stable": "green",
    "Empty": "yellow",
    "under-replicated": "yellow",
    "OFFLINE": "bold red",
    "healthy": "bold green",
    "unhealthy": "bold red",
    "WARNING": "yellow",
    "BROKEN": "bold red",
    "FAILED": "bold red",
}


def options_of_this_machine(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the options for the cluster that `ottla up` runs on this machine; localhost:9092 if it runs none."""
    directory = Path(environment.get("OTTLA_DIR") or default_directory(environment))
    if not directory.exists():
        return {"bootstrap.servers": BOOTSTRAP_DEFAULT}
    from ottla.client.local_cluster.running import running_cluster
    from ottla.client.net.settings import read_properties

    found = running_cluster(directory)
    if found is None:
        return {"bootstrap.servers": BOOTSTRAP_DEFAULT}
    options = {} if found.client_properties is None else read_properties(found.client_properties)
    return options | {"bootstrap.servers": found.bootstrap_servers}


def cell(value: object) -> str:
    """Return what a table shows for a value."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return ",".join(map(str, value)) or "-"
    return str(value)


def run(main: Callable[[], Coroutine[Any, Any, T]], *, is_change: bool = False) -> T:
    """Run a coroutine function; CommandError if it raises a KafkaError."""
    import asyncio

    from ottla.client.errors import KafkaConfigurationError, KafkaError

    try:
        return asyncio.run(main())
    except KafkaConfigurationError as error:
        raise CommandError(str(error), 2) from error
    except KafkaError as error:
        raise CommandError(explained(error, is_change=is_change)) from error


def key_values(pairs: Sequence[str], option: str) -> dict[str, str]:
    """Read KEY=VALUE; the last value of a key counts. CommandError if there is no "="."""
    return dict(key_value_pairs(pairs, option))


def key_value_pairs(pairs: Sequence[str], option: str) -> list[tuple[str, str]]:
    """Read KEY=VALUE, in order, each one even if its key comes again; CommandError if there is no "="."""
    found = []
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise CommandError(f"{option} takes KEY=VALUE, not {pair!r}", 2)
        found.append((key.strip(), value))
    return found


def command(app: click.Group, name: str | None = None) -> Callable[[CommandT], CommandT]:
    """Make a function a cluster command: add the shared options, and pass them as a Target in the first parameter."""

    def register(function: CommandT) -> CommandT:
        def call(
            *,
            bootstrap_server: str | None,
            command_config: Path | None,
            overrides: list[str] | None,
            timeout: float,
            output_format: Format,
            **own: Any,
        ) -> None:
            target = Target(bootstrap_server, command_config, tuple(overrides or ()), timeout, output_format)
            function(target, **own)

        def parameters() -> list[inspect.Parameter]:
            return [*declared_parameters(function)[1:], *_shared_declarations()]

        app.add_command(FunctionCommand(name or command_name(function), call, parameters, function.__doc__))
        return function

    return register


def shared_parameters() -> list[click.Parameter]:
    """Return the options that all cluster commands have."""
    return [click_parameter(each) for each in _shared_declarations()]


def _shared_declarations() -> list[inspect.Parameter]:
    declared = {
        "output_format": (_Format, Format.TABLE),
        "bootstrap_server": (_Bootstrap, None),
        "timeout": (_Timeout, Target.timeout_s),
        "command_config": (_CommandConfig, None),
        "overrides": (_Overrides, None),
    }
    keyword = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(name, keyword, default=default, annotation=annotation)
        for name, (annotation, default) in declared.items()
    ]
