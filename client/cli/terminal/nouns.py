"""The groups of commands, by noun. The module of a noun is imported when one of its commands is called."""

from __future__ import annotations

import importlib
from typing import Any, Final

import typer
from typer.core import TyperGroup

# The only list of nouns. `app` in the module of that name has the commands, or is the command if there is only one.
NOUNS: Final = {
    "cluster": "Brokers, controller and health of a cluster.",
    "topic": "Create, change, read and write topics.",
    "group": "Consumer groups: members, lag, offsets.",
    "transaction": "Transactions: which are open, and how to end one that hangs.",
    "config": "Options of topics and brokers.",
    "user": "Users that log in with a password.",
    "token": "Delegation tokens: logins of a user for a limited time.",
    "acl": "Who may do what.",
    "quota": "Limits on how much of a broker clients may use.",
    "zookeeper": "Who may use the nodes of a cluster in ZooKeeper.",
    "partition": "Leaders and replicas of partitions.",
    "log": "What is on the disks of brokers.",
    "check": "Checks for monitoring, by exit code.",
    "doctor": "Find out why clients cannot connect, and what to change.",
    "profile": "Names for clusters, and which one to use.",
    "apply": "Create and change topics to match a file.",
    "bench": "Measure how fast a cluster is, as seen from here.",
    "console": "See and run a cluster in the browser.",
}
# Nouns that stand on the command line, so it cannot import them.
_MODULES: Final = {"console": "ottla.console.command"}


class Nouns(TyperGroup):
    """The root of the tree."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for noun, text in NOUNS.items():
            # A placeholder with the text that the help shows.
            self.commands[noun] = TyperGroup(name=noun, help=text)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Replace the placeholder of the noun that is called, then find the command."""
        if args and args[0] in NOUNS:
            self.commands[args[0]] = typer.main.get_command(load(args[0]))
        return super().resolve_command(ctx, args)


def load(noun: str) -> typer.Typer:
    """Import the commands of a noun."""
    app: typer.Typer = importlib.import_module(_MODULES.get(noun, f"ottla.client.cli.commands.{noun}")).app
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
