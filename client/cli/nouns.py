"""The groups of commands, by noun. The module of a noun is imported when one of its commands is called for."""

from __future__ import annotations

import importlib
from typing import Any, Final

import typer
from typer.core import TyperGroup

# The one list of nouns. Each has its commands in the module of that name, as `app`; one with a single command is that.
NOUNS: Final = {
    "cluster": "Brokers, controller and health of a cluster.",
    "topic": "Create, change, read and write topics.",
    "group": "Consumer groups: members, lag, offsets.",
    "config": "Options of topics and brokers.",
    "user": "Users that log in with a password.",
    "acl": "Who may do what.",
    "quota": "How much of a broker clients may have.",
    "partition": "Leaders and replicas of partitions.",
    "log": "What is on the disks of brokers.",
    "check": "Checks for monitoring, by exit code.",
    "doctor": "Find out why clients cannot work, and what to change.",
    "profile": "Names for clusters, and which one to use.",
    "apply": "Create and change topics to match a file.",
    "bench": "How fast a cluster is, seen from here.",
}


class Nouns(TyperGroup):
    """The root of the tree."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for noun, text in NOUNS.items():
            # A stand-in that has what the help shows.
            self.commands[noun] = TyperGroup(name=noun, help=text)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that is called; typer's own, but for the stand-ins."""
        if args and args[0] in NOUNS:
            self.commands[args[0]] = typer.main.get_command(load(args[0]))
        return super().resolve_command(ctx, args)


def load(noun: str) -> typer.Typer:
    """Import the commands of a noun."""
    app: typer.Typer = importlib.import_module(f"ottla.client.cli.{noun}").app
    return app


def noun_app(noun: str) -> typer.Typer:
    """Return the Typer that takes the commands of a noun."""
    return typer.Typer(
        name=noun,
        help=NOUNS[noun],
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    )
