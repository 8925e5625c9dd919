"""What a check leaves behind if it is stopped at any point: nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from itertools import count

import pytest
from tests.client.certify.lying_broker import Lie, LyingBroker
from tests.client.certify.names import names_left
from tests.kit.broker_process import BrokerProcess
from tests.kit.waiting import until

from ottla.client.certify.checks.consumer_groups import ConsumerMember
from ottla.client.certify.checks.groups import commit_offset, leaving
from ottla.client.certify.runner import PREFIX
from ottla.client.certify.trial import Trial
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.net.settings import ClientSettings

Run = Callable[[Trial], Awaitable[None]]

# Longer than cleaning up takes, so that it is done by then unless it waits.
DELAY_S = 0.1


async def make_everything(trial: Trial) -> None:
    """Make a topic, a member of a group of the new protocol, an offset and a transactional id."""
    topic = await trial.topic()
    await ConsumerMember(trial, "consumer", topic).heartbeat()
    await commit_offset(trial, trial.group("offsets"), topic, 1)
    await trial.init_producer(trial.transactional_id())


async def is_stopped(bootstrap: str, run_check: Run, number: int) -> bool:
    """Stop a check when it has sent some requests, of which the last arrives late; False if it ends before."""
    sent = 0

    def delay_s(body: bytes) -> float:
        nonlocal sent
        sent += 1
        if sent != number or check.done():
            return 0.0
        check.cancel()
        return DELAY_S

    async with LyingBroker(bootstrap, Lie("slow", set(), delay_s=delay_s)).running() as slow:
        settings = ClientSettings.from_kwargs({"bootstrap_servers": slow})
        client = ClusterClient(settings)
        trial = Trial(settings, client, f"{PREFIX}-{number}")

        async def run() -> None:
            await client.start()
            await run_check(trial)

        check = asyncio.create_task(run())
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await check
            assert await trial.clean() == [], number
        finally:
            await client.close()
    return check.cancelled()


@pytest.mark.parametrize("run_check", [make_everything, leaving])
async def test_a_check_that_is_stopped_at_any_point_leaves_nothing_behind(
    broker: BrokerProcess, run_check: Run
) -> None:
    """Also if the broker carries out the last request only after the check was stopped, or a member was half joined."""
    numbers = count(1)
    while await is_stopped(broker.bootstrap, run_check, number := next(numbers)):
        pass
    assert number > 10
    until(lambda: names_left(broker.bootstrap) == [], lambda: f"left: {names_left(broker.bootstrap)}")
