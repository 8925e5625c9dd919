"""Read a password: never from the arguments, which every user of the machine can list."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Final

import click

from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.function_commands import Option

PASSWORD_VARIABLE: Final = "OTTLA_PASSWORD"  # noqa: S105 - the name of a variable
_PASSWORD_BYTES_MAX: Final = 4096

PasswordFileOption = Annotated[
    Path | None,
    Option("--password-file", metavar="FILE", help="File with the password in its first line; - is standard input."),
]


def new_password(user: str, file: Path | None) -> str:
    """Return the password to set for a user: from a file, the environment or the terminal."""
    if file is not None:
        password = _first_line(file)
    elif PASSWORD_VARIABLE in os.environ:
        password = os.environ[PASSWORD_VARIABLE]
    elif sys.stdin.isatty():
        password = click.prompt(f"Password for {user}", hide_input=True, confirmation_prompt=True, err=True)
    else:
        raise CommandError(
            f"There is no terminal to ask for the password: use {PASSWORD_VARIABLE} or --password-file.", 2
        )
    if not password:
        raise CommandError("The password is empty.", 2)
    return password


def _first_line(file: Path) -> str:
    try:
        if str(file) == "-":
            data = sys.stdin.buffer.read(_PASSWORD_BYTES_MAX)
        else:
            with file.open("rb") as opened:
                data = opened.read(_PASSWORD_BYTES_MAX)
        return data.decode().split("\n", 1)[0].rstrip("\r")
    except OSError as error:
        raise CommandError(f"The password cannot be read from {file}: {error.strerror}.") from error
    except UnicodeDecodeError:
        raise CommandError(f"The password in {file} is not text in UTF-8.") from None
