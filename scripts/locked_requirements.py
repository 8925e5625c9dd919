"""Print the part of requirements.lock that an image needs, with its hashes, for `pip install --require-hashes`.

    scripts/locked_requirements.py                      what the broker, the client and the command line need
    scripts/locked_requirements.py --extra pipeline     the same with an extra of pyproject.toml
    scripts/locked_requirements.py --only setuptools    one package, and what it needs

The lock has every extra in one file. Which package needs which stands there too, in the comments `# via`.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(slots=True)
class Locked:
    """A package of the lock: its lines, and the packages that want it."""

    lines: list[str] = field(default_factory=list)
    wanted_by: set[str] = field(default_factory=set)


def main(arguments: list[str] | None = None) -> int:
    """Print the lines; 1 where the lock lacks a package."""
    parser = argparse.ArgumentParser(description="Print a part of requirements.lock.")
    parser.add_argument("--extra", action="append", default=[], metavar="NAME", help="an extra of pyproject.toml")
    parser.add_argument("--only", action="append", default=[], metavar="PACKAGE", help="nothing but these packages")
    options = parser.parse_args(arguments)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = options.only or [
        *project["dependencies"],
        *(package for extra in options.extra for package in project["optional-dependencies"][extra]),
    ]
    lock = read_lock((ROOT / "requirements.lock").read_text())
    names = closure(lock, {normalized(requirement) for requirement in wanted})
    missing = names - lock.keys()
    if missing:
        sys.stderr.write(f"requirements.lock lacks {', '.join(sorted(missing))}: run `make lock`\n")
        return 1
    sys.stdout.writelines(line for name in sorted(names) for line in lock[name].lines)
    return 0


def normalized(requirement: str) -> str:
    """Return the name at the start of a requirement, as the lock spells it."""
    found = _NAME.match(requirement)
    if found is None:
        raise ValueError(f"{requirement!r} does not begin with a name")
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def read_lock(text: str) -> dict[str, Locked]:
    """Read the packages; one with several versions for different systems has all their lines."""
    lock: dict[str, Locked] = {}
    current = Locked()
    for line in text.splitlines(keepends=True):
        if _NAME.match(line):
            current = lock.setdefault(normalized(line), Locked())
        if not line.lstrip().startswith("#"):
            current.lines.append(line)
        elif line.startswith("    #"):
            # `# via name`, or `# via` and then one line for each name.
            words = line.strip("# \n").removeprefix("via").split()
            current.wanted_by.update(normalized(word) for word in words[:1])
    return lock


def closure(lock: Mapping[str, Locked], wanted: Iterable[str]) -> set[str]:
    """Return the packages with all that they need, directly or not."""
    names = set(wanted)
    while more := {name for name, locked in lock.items() if locked.wanted_by & names} - names:
        names |= more
    return names


if __name__ == "__main__":
    sys.exit(main())
