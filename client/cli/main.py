"""The tree of commands. `nouns.py` lists them.

Data goes to standard output, messages go to standard error. Exit codes: 0 for success, 1 for failure and 2 for a wrong
command line. Modules that are slow to import are imported where a command first needs them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.function_commands import run_program
from ottla.client.cli.terminal.nouns import Nouns
from ottla.client.local_cluster.errors import ClusterError


def _print_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        from ottla.version import __version__

        click.echo(f"ottla {__version__}")
        context.exit()


def _completion(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
    if asked:
        from ottla.client.cli.terminal.completion import install, script, shell

        click.echo(install(shell()) if parameter.name == "install_completion" else script(shell()), nl=False)
        context.exit()


def _flag(name: str, text: str, callback: Callable[[click.Context, click.Parameter, bool], None]) -> click.Option:
    return click.Option([name], is_flag=True, is_eager=True, expose_value=False, callback=callback, help=text)


app = Nouns("ottla", "Ottla, a message broker that speaks the Kafka protocol.")
app.params += [
    _flag("--version", "Show the version and exit.", _print_version),
    _flag("--install-completion", "Set up completion in this shell.", _completion),
    _flag("--show-completion", "Print what --install-completion would set up.", _completion),
]


def main() -> None:
    """Run the command line, and print expected errors without a traceback."""
    try:
        sys.exit(run_program(app, "ottla"))
    except (CommandError, ClusterError) as problem:
        from ottla.client.cli.terminal.output import error

        error(str(problem))
        sys.exit(problem.exit_code)
