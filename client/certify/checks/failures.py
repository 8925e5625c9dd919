"""What survives the death of a broker. These checks run only with a command that stops one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from ottla.client.certify.check import Checks, expect, expect_error
from ottla.client.certify.checks.groups import commit_offset, committed
from ottla.client.certify.trial import Topic, Trial
from ottla.client.errors import KafkaError
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition

CHECKS: Final = Checks("failures", "The death of a broker (with --harm-command)")

_REPLICAS: Final = 3
_MIN_ISR: Final = {"min.insync.replicas": "2"}
_RECORDS: Final = 400
_PAUSE_S: Final = 0.1


@asynccontextmanager
async def _stopped(trial: Trial, broker: int) -> AsyncIterator[None]:
    """Have a broker stopped, and started again at the end if there is a command for that."""
    assert trial.harm is not None
    await trial.harm.stop_broker(broker)
    try:
        yield
    finally:
        await trial.harm.start_broker(broker)


async def _until_in_sync(trial: Trial, topic: Topic) -> None:
    while True:
        try:
            await trial.client.metadata((topic.name,), force=True)
        except KafkaError:
            await asyncio.sleep(_PAUSE_S)
        known = trial.client.snapshot.partition(TopicPartition(topic.name, 0))
        if known is not None and len(known.isr) == _REPLICAS:
            return
        trial.waiting_for = f"{_REPLICAS} replicas in sync; {0 if known is None else len(known.isr)} are"
        await asyncio.sleep(_PAUSE_S)


@CHECKS.check({Api.PRODUCE: 3, Api.FETCH: 4, Api.INIT_PRODUCER_ID: 0}, brokers=3, harms=True)
async def death_of_a_leader(trial: Trial) -> None:
    """When a leader dies under load, another replica leads, and has each record of an idempotent producer once."""
    topic = await trial.topic(replicas=_REPLICAS, configs=_MIN_ISR)
    await _until_in_sync(trial, topic)
    leader = await trial.leader(topic)
    values = [b"%d" % number for number in range(_RECORDS)]
    acknowledged = asyncio.Semaphore(0)
    writing = asyncio.create_task(trial.write_all(topic, values, acknowledged.release))
    try:
        for _ in range(_RECORDS // 4):
            await acknowledged.acquire()
        async with _stopped(trial, leader):
            await writing
            expect("the values that are read", await trial.values(topic, _RECORDS), values)
            expect("the end of the log", await trial.end_offset(topic), _RECORDS)
    finally:
        writing.cancel()
    assert trial.harm is not None
    if trial.harm.start is not None:
        await _until_in_sync(trial, topic)


@CHECKS.check({Api.OFFSET_COMMIT: 2, Api.OFFSET_FETCH: 2}, brokers=3, harms=True)
async def death_of_a_coordinator(trial: Trial) -> None:
    """When the coordinator of a group dies, another broker takes over with all committed offsets."""
    topic, group = await trial.topic(replicas=_REPLICAS, configs=_MIN_ISR), trial.group()
    await _until_in_sync(trial, topic)
    expect_error("OffsetCommit", await commit_offset(trial, group, topic, 42), ErrorCode.NONE)
    coordinator = await trial.client.coordinator(group)
    async with _stopped(trial, coordinator):
        while True:
            trial.client.forget_coordinator(group)
            try:
                if await trial.client.coordinator(group) != coordinator:
                    (row,) = await committed(trial, group, topic)
                    break
            except KafkaError as error:
                trial.waiting_for = f"another coordinator: {error}"
            await asyncio.sleep(_PAUSE_S)
        expect_error("OffsetFetch", row.error_code, ErrorCode.NONE)
        expect("the committed offset", row.committed_offset, 42)
        while (code := await commit_offset(trial, group, topic, 43)) != ErrorCode.NONE:
            expect_error("OffsetCommit", code, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        (row,) = await committed(trial, group, topic)
        expect("the next committed offset", row.committed_offset, 43)
    assert trial.harm is not None
    if trial.harm.start is not None:
        await _until_in_sync(trial, topic)
