"""The groups of commands, by noun. The module of a noun is imported when one of its commands is called."""

from __future__ import annotations

import importlib
from typing import Final

import click

from ottla.client.cli.terminal.function_commands import CommandGroup

# Commands for a cluster on this machine.
LOCAL: Final = {
    "up": "Run a cluster on this machine: ZooKeeper, brokers, console.",
    "down": "Stop a cluster that `ottla up` started; its data stays.",
    "status": "Show the processes of a cluster on this machine.",
}
# The only list of nouns. `app` in the module of that name has the commands, or is the command if there is only one.
NOUNS: Final = {
    "cluster": "Brokers, controller, health, balance; rolling restart.",
    "broker": "One broker: whether it can be stopped; empty it.",
    "topic": "Create, change, read and write topics.",
    "group": "Consumer groups: members, lag, offsets.",
    "transaction": "Transactions: which are open, and how to end one that hangs.",
    "config": "Options of topics and brokers.",
    "user": "Users that log in with a password.",
    "token": "Delegation tokens: logins of a user for a limited time.",
    "acl": "Who may do what.",
    "quota": "Limits on how much of a broker clients may use.",
    "zookeeper": "Install ZooKeeper for `ottla up`; who may use its nodes.",
    "partition": "Leaders and replicas of partitions.",
    "log": "What is on the disks of brokers.",
    "check": "Checks for monitoring, by exit code.",
    "doctor": "Find out why clients cannot connect, and what to change.",
    "certify": "Check that a cluster behaves as Kafka does.",
    "profile": "Names for clusters, and which one to use.",
    "apply": "Create and change topics to match a file.",
    "mirror": "Copy topics with their offsets to another cluster.",
    "bench": "Measure how fast a cluster is, as seen from here.",
    "console": "See and run a cluster in the browser.",
}
# Nouns that stand on the command line, so it cannot import them.
_MODULES: Final = {"console": "ottla.console.command"}


class Nouns(CommandGroup):
    """The root of the tree."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(name, text)
        for noun, short in (LOCAL | NOUNS).items():
            # A placeholder with the text that the help shows.
            self.commands[noun] = click.Command(noun, help=short)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Replace the placeholder of the noun that is called, then find the command."""
        if args and args[0] in self.commands:
            self.commands[args[0]] = load(args[0])
        return super().resolve_command(ctx, args)


def load(noun: str) -> click.Command:
    """Import the commands of a noun; if its name is that of its only command, return that."""
    app: CommandGroup = importlib.import_module(_MODULES.get(noun, f"ottla.client.cli.commands.{noun}")).app
    return app.commands[noun] if list(app.commands) == [noun] else app


def noun_app(noun: str) -> CommandGroup:
    """Return the group that takes the commands of a noun."""
    return CommandGroup(noun, (LOCAL | NOUNS)[noun])
