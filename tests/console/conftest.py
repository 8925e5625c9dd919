"""Fixtures of the console's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from tests.console.console_client import ConsoleClient, running_console
from tests.kit.broker_process import BrokerProcess


@pytest_asyncio.fixture
async def console(broker: BrokerProcess) -> AsyncIterator[ConsoleClient]:
    """A console on the broker that all tests share; without logins."""
    async with running_console(broker.bootstrap) as client:
        yield client
