"""Functions as commands of click: a parameter `Annotated[int, Option("--count", help=...)]` becomes an option.

The parameters of a command are made when that command is called or asked for its help. Most commands of a noun are
never called in a run, and reading their annotations takes longer than anything else that happens before a request.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Final, TypedDict, TypeVar, Unpack, get_args, get_origin

import click

CONTEXT_SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 120}
# The exit code of a program that Ctrl-C ends: 128 and the number of the signal.
INTERRUPTED: Final = 130

CommandT = TypeVar("CommandT", bound=Callable[..., None])
Complete = Callable[[click.Context, click.Parameter, str], list[str]]


class OptionSettings(TypedDict, total=False):
    """What a declaration may say; the names are click's."""

    help: str
    metavar: str
    envvar: str
    show_default: bool | str
    min: float
    max: float
    hidden: bool
    is_eager: bool
    callback: Callable[[click.Context, click.Parameter, Any], Any]
    shell_complete: Complete


class Option:
    """Declares an option, by its names; without one, the name of the parameter serves."""

    def __init__(self, *names: str, **settings: Unpack[OptionSettings]) -> None:
        self.names = names
        self.settings = settings


class Argument:
    """Declares an argument; one that is a list takes all that are left."""

    def __init__(self, **settings: Unpack[OptionSettings]) -> None:
        self.settings = settings


Parameters = Callable[[], Sequence[inspect.Parameter]]


class FunctionCommand(click.Command):
    """A command that calls a function; `parameters` returns those that the command line can give."""

    def __init__(self, name: str, call: Callable[..., None], parameters: Parameters, text: str | None) -> None:
        self._parameters = parameters
        self._made: list[click.Parameter] | None = None
        super().__init__(name, callback=call, help=text, context_settings=dict(CONTEXT_SETTINGS))

    @property
    def params(self) -> list[click.Parameter]:
        """The parameters, made when they are first needed."""
        if self._made is None:
            self._made = [click_parameter(each) for each in self._parameters()]
        return self._made

    @params.setter
    def params(self, _: object) -> None:
        """Ignore what click's constructor sets: nothing was given to it."""


def function_command(function: Callable[..., None], name: str | None = None) -> FunctionCommand:
    """Return the command that calls a function with all its parameters."""
    return FunctionCommand(
        name or command_name(function), function, lambda: declared_parameters(function), function.__doc__
    )


def command_name(function: Callable[..., None]) -> str:
    """Return the name that a command has if it is not given one."""
    return function.__name__.replace("_", "-")


def declared_parameters(function: Callable[..., None]) -> list[inspect.Parameter]:
    """Return the parameters of a function, with their annotations evaluated."""
    return list(inspect.signature(function, eval_str=True).parameters.values())


class CommandGroup(click.Group):
    """Commands under one name, listed in the order of their declarations. Called without one, it shows its help."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(name, help=text, no_args_is_help=True, context_settings=dict(CONTEXT_SETTINGS))

    def function(self, name: str | None = None) -> Callable[[CommandT], CommandT]:
        """Make a function a command of this group."""

        def register(function: CommandT) -> CommandT:
            self.add_command(function_command(function, name))
            return function

        return register

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(self.commands)


def run_program(program: click.Command, name: str) -> int:
    """Run a command line; return the exit code. Wrong arguments are explained on standard error."""
    try:
        code = program.main(prog_name=name, standalone_mode=False)
    except click.ClickException as problem:
        problem.show()
        return problem.exit_code
    except click.Abort as aborted:
        from ottla.client.cli.terminal.output import say

        say("Aborted.")
        return INTERRUPTED if isinstance(aborted.__cause__, KeyboardInterrupt) else 1
    return code if isinstance(code, int) else 0


def click_parameter(parameter: inspect.Parameter) -> click.Parameter:
    """Return the option or argument that a parameter declares."""
    kind, declared = get_args(parameter.annotation)
    kinds = [each for each in (get_args(kind) if isinstance(kind, UnionType) else [kind]) if each is not NoneType]
    is_list = get_origin(kinds[0]) is list
    item = get_args(kinds[0])[0] if is_list else kinds[0]
    settings: dict[str, Any] = dict(declared.settings)
    limits = {"min": settings.pop("min", None), "max": settings.pop("max", None)}
    is_required = parameter.default is parameter.empty
    settings["type"] = _click_type(item, **limits)
    settings["required"] = is_required
    if is_list:
        # click returns an empty tuple where nothing was given.
        settings["callback"] = lambda ctx, param, value: list(value) or None
    elif not is_required:
        settings["default"] = parameter.default.value if isinstance(parameter.default, Enum) else parameter.default
    if isinstance(declared, Argument):
        return click.Argument([parameter.name], nargs=-1 if is_list else 1, **settings)
    names = declared.names or ("--" + parameter.name.replace("_", "-"),)
    if item is bool:
        settings["is_flag"] = True
        del settings["type"]
    settings.setdefault("show_default", True)
    return click.Option([*names, parameter.name], multiple=is_list, show_envvar=True, **settings)


class _EnumChoice(click.Choice[str]):
    """The values of an enumeration, by their texts."""

    def __init__(self, kind: type[Enum]) -> None:
        super().__init__([str(each.value) for each in kind])
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the member of the enumeration; BadParameter if there is none with this text."""
        return value if isinstance(value, self._kind) else self._kind(super().convert(value, param, ctx))


def _click_type(kind: type[Any], **limits: Any) -> Any:
    from pathlib import Path

    if issubclass(kind, Enum):
        return _EnumChoice(kind)
    if issubclass(kind, Path):
        return click.Path(path_type=Path)
    if any(limit is not None for limit in limits.values()):
        return click.FloatRange(**limits) if kind is float else click.IntRange(**limits)
    return kind
