"""The tree of commands. `nouns.py` lists them.

Data goes to standard output, messages go to standard error. Exit codes: 0 for success, 1 for failure and 2 for a wrong
command line. Modules that are slow to import are imported where a command first needs them.
"""

from __future__ import annotations

import atexit
import errno
import gc
import os
import sys
import threading
from collections.abc import Callable
from typing import Final

import click

from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.function_commands import run_program
from ottla.client.cli.terminal.nouns import Nouns
from ottla.client.local_cluster.errors import ClusterError

# How many objects there may be more than before, until Python looks for cycles that nobody uses any more. By default it
# does so dozens of times while modules are loaded, in vain.
_NEW_OBJECTS_MAX: Final = 50_000
_OUTPUT_FAILURES: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


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
    except OSError as problem:
        if problem.errno not in _OUTPUT_FAILURES:
            raise
        from ottla.client.cli.terminal.output import error

        error(f"The output cannot be written: {problem.strerror}.")
        sys.exit(1)


def program() -> None:
    """Run the command line as a program of its own, which a short command leaves in the quickest way."""
    gc.set_threshold(_NEW_OBJECTS_MAX)
    if sys.stdout is None:
        # Closed by the caller, who does not want to see anything.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the end of the process
    try:
        main()
    except SystemExit as ended:
        # Python would take all modules apart one by one, which takes a tenth of the time of a short command. A thread
        # may have work left, and what cannot be written is for Python to report.
        if threading.active_count() == 1 and isinstance(ended.code, int | None) and _everything_is_said():
            os._exit(ended.code or 0)
        raise


def _everything_is_said() -> bool:
    """Do what Python does at the end of a program; return whether all output is written."""
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return False
    return True
