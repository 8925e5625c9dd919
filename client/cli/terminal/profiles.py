"""Profiles: clusters with names, in a file of the user.

The file is JSON: {"current": NAME or null, "profiles": {NAME: {option of the client by Kafka's name: value}}}. It may
have passwords, so only the user may read it. It is replaced atomically, so it is never half written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ottla.client.cli.terminal.errors import CommandError

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FILE_BYTES_MAX: Final = 1 << 20


@dataclass
class Profiles:
    """All profiles, and which one commands use."""

    current: str | None = None
    options: dict[str, dict[str, str]] = field(default_factory=dict)

    def get(self, name: str) -> dict[str, str]:
        """Return the options of a profile; CommandError if it does not exist."""
        if name not in self.options:
            known = ", ".join(sorted(self.options)) or "none"
            raise CommandError(f"There is no profile {name!r}; there are: {known}. `ottla profile add` adds one.")
        return self.options[name]


def profiles_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the file with the profiles."""
    home = environment.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(home) / "ottla" / "profiles.json"


def check_name(name: str) -> None:
    """Raise CommandError for a name that is awkward to type."""
    if not _NAME.fullmatch(name):
        raise CommandError(f"{name!r} is not a profile name: use at most 64 letters, digits, '.', '_' and '-'.", 2)


def read_profiles(path: Path | None = None) -> Profiles:
    """Read the file; no profiles if there is none; CommandError if it is not valid."""
    path = path or profiles_file()
    try:
        with path.open("rb") as file:
            text = file.read(_FILE_BYTES_MAX)
        import json

        read = json.loads(text)
    except FileNotFoundError:
        return Profiles()
    except (OSError, ValueError) as error:
        raise CommandError(f"Cannot read the profiles in {path}: {error}. Fix it, or delete it.") from error
    if not _is_ours(read):
        raise CommandError(f"{path} is not a file of profiles. Fix it, or delete it.")
    return Profiles(read["current"], read["profiles"])


def write_profiles(profiles: Profiles, path: Path | None = None) -> None:
    """Replace the file; CommandError if that fails."""
    import json
    import tempfile

    path = path or profiles_file()
    text = json.dumps({"current": profiles.current, "profiles": profiles.options}, indent=2, ensure_ascii=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Created with mode 0600.
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".profiles-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text + "\n")
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise CommandError(f"Cannot write the profiles to {path}: {error.strerror}.") from error


def options_in_use(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the options of the profile in OTTLA_PROFILE, else of the current one; empty if there is neither."""
    named = environment.get("OTTLA_PROFILE")
    profiles = read_profiles(profiles_file(environment))
    name = named or profiles.current
    return {} if name is None else profiles.get(name)


def _is_ours(read: object) -> bool:
    if not isinstance(read, dict) or not isinstance(read.get("profiles"), dict):
        return False
    options = read["profiles"].values()
    if not all(isinstance(each, dict) and all(isinstance(text, str) for text in each.values()) for each in options):
        return False
    return read.get("current") is None or read["current"] in read["profiles"]
