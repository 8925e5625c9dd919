"""Ending tasks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection


async def cancelled(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel tasks, and return when they have ended."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await task
