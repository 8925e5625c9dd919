"""Commands that change a cluster in ZooKeeper itself. A process of the broker does them: clients know no ZooKeeper."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal

_COMMAND: Final = (sys.executable, "-P", "-m", "ottla.broker.app.zookeeper_commands")


class ZooKeeperCommandError(Exception):
    """The command failed; the text says why."""

    def __init__(self, reason: str, exit_code: int) -> None:
        """The exit code is 2 for wrong options, else 1."""
        super().__init__(reason)
        self.exit_code = exit_code


def run_in_zookeeper(
    command: Literal["secure", "unsecure", "store-user"],
    config: Path | None,
    overrides: Iterable[str] = (),
    *,
    said: str = "",
    is_local: bool = False,
) -> dict[str, Any]:
    """Run a command with the options of a broker and return its result; ZooKeeperCommandError if it fails.

    Options in the environment count for it as for a broker, unless the cluster is one of `ottla up`.
    """
    options = ["--config", str(config)] if config is not None else []
    for override in overrides:
        options += ["--override", override]
    kept = {name: value for name, value in os.environ.items() if not (is_local and name.startswith("KAFKA_"))}
    done = subprocess.run(  # noqa: S603 - our own program
        [*_COMMAND, command, *options], check=False, capture_output=True, text=True, input=said, env=kept
    )
    if done.returncode != 0:
        raise ZooKeeperCommandError(done.stderr.strip(), 2 if done.returncode == 2 else 1)
    result: dict[str, Any] = json.loads(done.stdout)
    return result
