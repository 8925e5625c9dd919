"""Programs of ours on clients in other languages; their packages, and what is built, are kept in a cache folder.

The folder is $OTTLA_CACHE, by default ~/.cache/ottla. A name in it ends in a hash of the files that it was made of.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.kit.apache_kafka import UnavailableError

# Compiling takes a minute or two on a machine that has other things to do.
BUILD_SECONDS_MAX = 280


class ForeignProgram(NamedTuple):
    """How a program is started."""

    command: Sequence[str]
    environment: dict[str, str]


def node_program(source: Path) -> ForeignProgram:
    """Return a program of Node.js with the packages in the lock file beside it; UnavailableError without them."""
    node, npm = (_found(command, "Node.js and npm") for command in ("node", "npm"))
    lists = [source.with_name(name) for name in ("package.json", "package-lock.json")]

    def install(folder: Path) -> None:
        for each in lists:
            shutil.copy(each, folder)
        _run([npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"], folder)

    modules = _made(source.parent.name, lists, install) / "node_modules"
    return ForeignProgram([node, str(source)], {"NODE_PATH": str(modules)})


def go_program(folder: Path) -> ForeignProgram:
    """Return a program that is built of a Go module; UnavailableError where that cannot be done."""
    go = _found("go", "Go")
    sources = sorted([*folder.glob("*.go"), folder / "go.mod", folder / "go.sum"])
    built = _made(folder.name, sources, lambda target: _run([go, "build", "-o", str(target / "program"), "."], folder))
    return ForeignProgram([str(built / "program")], {})


def _found(command: str, what: str) -> str:
    path = shutil.which(command)
    if path is None:
        raise UnavailableError(f"no command {command}: install {what}")
    return path


def _made(name: str, sources: Sequence[Path], make: Callable[[Path], None]) -> Path:
    """Return a folder that is made of files, and is there whole or not at all; any number of processes may ask."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    cache = Path(os.environ.get("OTTLA_CACHE") or Path.home() / ".cache" / "ottla")
    target = cache / f"{name}-{digest.hexdigest()[:16]}"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / f".{target.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():
                # A folder of its own in this one, as that which is renamed must not be the one that is cleaned up.
                with tempfile.TemporaryDirectory(dir=cache, prefix=".make-") as temporary:
                    made = Path(temporary) / "made"
                    made.mkdir()
                    make(made)
                    made.rename(target)
    except OSError as error:
        raise UnavailableError(f"cannot make {target}: {error}") from error
    return target


def _run(command: Sequence[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command, check=False, cwd=folder, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{' '.join(command)} has not ended in {BUILD_SECONDS_MAX} s") from error
    if done.returncode != 0:
        raise UnavailableError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
