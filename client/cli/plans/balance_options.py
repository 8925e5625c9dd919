"""The options that `cluster balance` and `broker drain` share."""

from __future__ import annotations

from typing import Annotated, Final

from ottla.client.cli.terminal.function_commands import Option

DryRunOption = Annotated[bool, Option("--dry-run", help="Show the plan, and move nothing.")]
ThrottleOption = Annotated[
    str | None,
    Option("--throttle", metavar="BYTES", help="Copy no faster than this per second and broker, such as 10MiB."),
]
MovesOption = Annotated[
    int, Option("--moves", min=1, metavar="N", help="Partitions that copy from or to one broker at a time.")
]
DetachOption = Annotated[bool, Option("--detach", help="Start the moves, and do not wait for them.")]
MOVES_DEFAULT: Final = 5
# How long the traffic of partitions is measured.
LOOK_SECONDS: Final = 2.0
