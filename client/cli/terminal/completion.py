"""Completion of the command line in bash, zsh and fish."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from click.shell_completion import get_completion_class

from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.options import default_directory

_SHELLS = ("bash", "zsh", "fish")


def shell(environment: Mapping[str, str] = os.environ) -> str:
    """Return the name of the user's shell; CommandError if there is no completion for it."""
    name = Path(environment.get("SHELL", "")).name
    if name not in _SHELLS:
        known = ", ".join(_SHELLS)
        raise CommandError(
            f"There is no completion for the shell {name or 'in SHELL, which is not set'}; for: {known}."
        )
    return name


def script(name: str) -> str:
    """Return the script that asks `ottla` for completions."""
    made = get_completion_class(name)
    if made is None:
        raise CommandError(f"There is no completion for the shell {name}.")
    # The first two are not needed for the script.
    return made(None, {}, "ottla", "_OTTLA_COMPLETE").source()  # type: ignore[arg-type]


def install(name: str, home: Path | None = None) -> str:
    """Write the script, and the line that loads it when a shell starts; return what was done."""
    home = home or Path.home()
    if name == "fish":
        path = home / ".config/fish/completions/ottla.fish"
        _write(path, script(name))
        return f"Completion is in {path}. New shells load it.\n"
    path = default_directory().parent / "ottla-completion" / f"ottla.{name}"
    _write(path, script(name))
    start = home / f".{name}rc"
    load = f". '{path}'" if name == "bash" else f"autoload -Uz compinit && compinit && . '{path}'"
    try:
        before = start.read_text() if start.exists() else ""
        if load not in before:
            start.write_text(f"{before.rstrip()}\n{load}\n".lstrip())
    except OSError as error:
        raise CommandError(f"Cannot write {start}: {error.strerror}. Add this line to it: {load}") from error
    return f"Completion is in {path}; {start} loads it in new shells.\n"


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise CommandError(f"Cannot write {path}: {error.strerror}.") from error
