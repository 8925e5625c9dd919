"""What a check leaves behind if it is stopped at any point: nothing."""

from __future__ import annotations

import asyncio
import contextlib
from itertools import count

import pytest
from tests.client.certify.lying_broker import Lie, LyingBroker
from tests.client.certify.names import names_left
from tests.kit.broker_process import BrokerProcess
from tests.kit.waiting import until

from ottla.client.certify.runner import certify, selected
from ottla.client.certify.table import all_checks
from ottla.client.net.settings import ClientSettings

# Longer than cleaning up takes, so that it is done by then unless it waits.
DELAY_S = 0.1


async def is_stopped(bootstrap: str, path: str, number: int) -> bool:
    """Stop a run when it has sent some requests, of which the last arrives late; False if it ends before."""
    sent = 0

    def delay_s(body: bytes) -> float:
        nonlocal sent
        sent += 1
        if sent != number or run.done():
            return 0.0
        run.cancel()
        return DELAY_S

    async with LyingBroker(bootstrap, Lie("slow", set(), delay_s=delay_s)).running() as slow:
        settings = ClientSettings.from_kwargs({"bootstrap_servers": slow})
        run = asyncio.create_task(certify(settings, selected(all_checks(), [path]), seconds_max=20))
        with contextlib.suppress(asyncio.CancelledError):
            assert (await run).left == []
    return run.cancelled()


@pytest.mark.parametrize("path", ["groups/leaving", "groups/offsets", "consumer-groups/one-member"])
async def test_a_check_that_is_stopped_at_any_point_leaves_nothing_behind(broker: BrokerProcess, path: str) -> None:
    """Also while it is cleaned up, and if the broker carries out its last request only after it was stopped."""
    numbers = count(1)
    while await is_stopped(broker.bootstrap, path, number := next(numbers)):
        pass
    assert number > 10
    until(lambda: names_left(broker.bootstrap) == [], lambda: f"left: {names_left(broker.bootstrap)}")
