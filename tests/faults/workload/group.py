"""`python -m tests.faults.workload.group`: the members of a group read and commit until SIGTERM; write a history.

Some stay all the time, and guests come and go.

They are of aiokafka, which tells the generation that an assignment belongs to.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import signal
import sys
import time
from contextvars import ContextVar
from itertools import count
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import CommitFailedError, IllegalGenerationError, KafkaError
from tests.faults.access import OPEN, Access
from tests.faults.checker.history import Commit, HistoryWriter, Own, Poll, PolledRecord

POLL_MS = 100
COMMIT_INTERVAL_S = 0.2
SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_INTERVAL_MS = 500
REBALANCE_TIMEOUT_MS = 6_000
# More than a rebalance takes.
REQUEST_TIMEOUT_MS = 9_000
# How long a guest stays, before another one comes.
GUEST_S = 1.0

# The generation in which the offsets of a commit were read.
_read_in: ContextVar[int] = ContextVar("read_in")


class MemberWorker:
    """One member: what it has read it commits now and then, and when its partitions are taken away."""

    def __init__(self, options: argparse.Namespace, name: str, history: HistoryWriter, stopping: asyncio.Event) -> None:
        self._name = name
        self._options = options
        self._history = history
        self._stopping = stopping
        # Behind what was read and not committed yet.
        self._read: dict[TopicPartition, int] = {}
        self._owned_s = math.inf
        self._generation = -1
        self._client: Any = None

    async def run(self, seconds_max: float = math.inf) -> None:
        """Read until told to stop, or for so long from its first partition on; commit, and leave."""
        self._client = AIOKafkaConsumer(
            bootstrap_servers=self._options.bootstrap,
            **self._options.access.keywords,
            group_id=self._options.group,
            client_id=self._name,
            partition_assignment_strategy=(RangePartitionAssignor,),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            metadata_max_age_ms=1_000,
            fetch_max_wait_ms=POLL_MS,
        )
        self._client.subscribe([self._options.topic], listener=_Listener(self))
        await self._client.start()
        _commit_in_one_generation(self._client._coordinator)
        try:
            committed_s = time.monotonic()
            while not self._stopping.is_set() and time.monotonic() < self._owned_s + seconds_max:
                await self._poll()
                if time.monotonic() - committed_s > COMMIT_INTERVAL_S:
                    await self.commit()
                    committed_s = time.monotonic()
            await self.commit()
        finally:
            await self._client.stop()

    async def commit(self) -> None:
        """Commit what was read; refused where others own it by now, and whoever does reads it again."""
        offsets, self._read = self._read, {}
        if not offsets:
            return
        invoked_ns = time.monotonic_ns()
        _read_in.set(self._generation)
        try:
            await self._client.commit(offsets)
        except KafkaError as error:
            if not isinstance(error, CommitFailedError):
                sys.stderr.write(f"{self._name}: {error!r}\n")
            return
        for partition, offset in offsets.items():
            self._history.write(
                Commit(
                    worker=self._name,
                    group=self._options.group,
                    partition=_name(partition),
                    offset=offset,
                    invoked_ns=invoked_ns,
                )
            )

    def own(self, partitions: set[TopicPartition]) -> None:
        """Write down what is ours from now on."""
        self._read.clear()
        self._owned_s = min(self._owned_s, time.monotonic())
        names = tuple(sorted(map(_name, partitions)))
        self._generation = int(self._client._coordinator.generation)
        self._history.write(
            Own(worker=self._name, group=self._options.group, generation=self._generation, partitions=names)
        )

    async def _poll(self) -> None:
        try:
            found = await self._client.getmany(timeout_ms=POLL_MS)
        except KafkaError as error:
            sys.stderr.write(f"{self._name}: {error!r}\n")
            return
        records = tuple(
            PolledRecord(_name(partition), record.offset, record.value.decode(errors="replace"))
            for partition, batch in found.items()
            for record in batch
        )
        if records:
            self._history.write(Poll(worker=self._name, records=records))
        for partition, batch in found.items():
            self._read[partition] = batch[-1].offset + 1


def _commit_in_one_generation(coordinator: Any) -> None:
    """Let no commit be sent in a later generation than that in which its offsets were read.

    If the coordinator does not answer, aiokafka sends a commit again, with the generation that the member has by then.
    No coordinator can know that it is an old one, and the group goes back: seen after 15 s.
    """
    send = coordinator._do_commit_offsets

    async def send_once(assignment: object, offsets: dict[TopicPartition, Any]) -> None:
        if coordinator.generation != _read_in.get():
            raise IllegalGenerationError(coordinator.group_id)
        await send(assignment, offsets)

    coordinator._do_commit_offsets = send_once


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, worker: MemberWorker) -> None:
        self._worker = worker

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        await self._worker.commit()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._worker.own(assigned)


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


async def run(options: argparse.Namespace) -> None:
    """Run all members in one event loop, and guests one after the other, so that generations come and go."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    history = HistoryWriter(options.history)

    async def invite() -> None:
        for number in count():
            await MemberWorker(options, f"guest{number}", history, stopping).run(GUEST_S)
            if stopping.is_set():
                return

    async with asyncio.TaskGroup() as tasks:
        for number in range(options.members):
            tasks.create_task(MemberWorker(options, f"m{number}", history, stopping).run())
        tasks.create_task(invite())


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.workload.group")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--access", type=Access.from_json, default=OPEN, help="JSON: how clients get in")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--members", type=int, default=4)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
