"""The commands with which a user lets checks stop a broker, and start it again."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from typing import Final

from ottla.client.certify.check import NotApplicable

BROKER: Final = "{broker}"
_SECONDS_MAX: Final = 60.0
_OUTPUT_MAX: Final = 300


@dataclass(frozen=True)
class Harm:
    """Shell commands in which `{broker}` stands for the id of a broker."""

    stop: str
    start: str | None = None

    async def stop_broker(self, broker: int) -> None:
        """Stop a broker; NotApplicable if the command fails."""
        await _run(self.stop, broker)

    async def start_broker(self, broker: int) -> None:
        """Start it again, if there is a command for that; NotApplicable if the command fails."""
        if self.start is not None:
            await _run(self.start, broker)


async def _run(command: str, broker: int) -> None:
    line = command.replace(BROKER, str(broker))
    # Into a file: a broker that the command leaves running would keep a pipe open.
    with tempfile.TemporaryFile() as output:
        process = await asyncio.create_subprocess_shell(
            line, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            async with asyncio.timeout(_SECONDS_MAX):
                code = await process.wait()
        except TimeoutError as error:
            process.kill()
            raise NotApplicable(f"`{line}` did not end within {_SECONDS_MAX:g} s") from error
        if code:
            output.seek(0)
            said = output.read(_OUTPUT_MAX).decode(errors="replace").strip()
            raise NotApplicable(f"`{line}` failed with exit code {code}: {said}")
