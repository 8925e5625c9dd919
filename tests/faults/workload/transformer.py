"""A worker that consumes, transforms and produces: inputs, outputs and the group's position in one transaction."""

from __future__ import annotations

import random
import sys
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from tests.faults.checker.history import Assign, Poll, PolledRecord
from tests.faults.workload.settings import BACKOFF_MS_MAX, Settings
from tests.faults.workload.transactional_producer import TransactionalProducer

POLL_S = 0.2
POLL_RECORDS_MAX = 20
SESSION_TIMEOUT_MS = 6_000
COMMITTED_TIMEOUT_S = 5.0
ABORT_SHARE = 0.15
CRASH_SHARE = 0.03


class _Input(NamedTuple):
    """A record that was read."""

    partition: int
    offset: int
    value: str


class Transformer:
    """A member of a group. After anything but a commit, it goes back to the position that is committed."""

    def __init__(self, inputs: Settings, outputs: Settings, group: str, name: str, seed: int) -> None:
        self._inputs = inputs
        self._outputs = outputs
        self._group = group
        self._name = name
        self._chance = random.Random(f"{seed}-{name}")
        self._producer = TransactionalProducer(inputs, name)
        # How often it was given partitions.
        self._assignments = 0
        self._consumer = self._join()

    def run(self) -> None:
        """Transform until told to stop, and leave no transaction open."""
        try:
            number = 0
            while not self._inputs.stopping.is_set():
                inputs = self._poll(number)
                if inputs:
                    if not self._transact(number, inputs):
                        self._rewind()
                    number += 1
            self._producer.close()
        finally:
            self._consumer.close()

    def _join(self) -> Consumer:
        consumer = Consumer(
            {
                **self._inputs.client,
                "group.id": self._group,
                "client.id": self._name,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": 500,
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": BACKOFF_MS_MAX // 2,
            }
        )
        consumer.subscribe([self._inputs.topic], on_assign=self._on_assign)
        return consumer

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._assignments += 1
        self._write_assignment(partitions)

    def _poll(self, number: int) -> list[_Input]:
        """Ask once, and write down what came, as part of the transaction that will have this number."""
        assignments = self._assignments
        inputs = []
        for message in self._consumer.consume(POLL_RECORDS_MAX, POLL_S):
            error, partition, offset = message.error(), message.partition(), message.offset()
            if error is not None:
                sys.stderr.write(f"{self._name}: {error}\n")
                continue
            assert partition is not None
            assert offset is not None
            inputs.append(_Input(partition, offset, (message.value() or b"").decode(errors="replace")))
        if inputs and assignments != self._assignments:
            # Some may be of partitions that others own by now.
            self._rewind()
            return []
        if inputs:
            records = tuple(PolledRecord(*self._place(one), one.value) for one in inputs)
            self._inputs.history.write(Poll(worker=self._name, records=records, is_committed=True, transaction=number))
        return inputs

    def _transact(self, number: int, inputs: list[_Input]) -> bool:
        """Return whether all was committed for certain."""
        ends = {one.partition: one.offset + 1 for one in inputs}
        positions = [TopicPartition(self._inputs.topic, partition, offset) for partition, offset in ends.items()]
        is_to_abort = self._chance.random() < ABORT_SHARE
        is_to_crash = self._chance.random() < CRASH_SHARE
        try:
            self._producer.begin(number)
            for one in inputs:
                partition = self._chance.randrange(self._outputs.partitions)
                self._producer.send(self._outputs, partition, self._place(one))
            self._producer.stage(self._group, positions, self._consumer.consumer_group_metadata())
            if not is_to_abort:
                self._producer.flush()
        except KafkaException as error:
            sys.stderr.write(f"{self._name} {number}: {error}\n")
            is_to_abort, is_to_crash = True, False
        if is_to_crash:
            self._producer.crash()
            return False
        if is_to_abort:
            self._producer.abort()
            return False
        return self._producer.commit()

    def _place(self, one: _Input) -> tuple[str, int]:
        return self._inputs.partition(one.partition), one.offset

    def _rewind(self) -> None:
        """Go to where the group is. What this worker has left open is ended first, because it may still change that."""
        self._producer.open()
        try:
            assigned = self._consumer.assignment()
            committed = self._consumer.committed(assigned, COMMITTED_TIMEOUT_S) if assigned else []
            for one in committed:
                if one.error is not None:
                    raise KafkaException(one.error)
                offset = one.offset if one.offset >= 0 else OFFSET_BEGINNING
                self._consumer.seek(TopicPartition(one.topic, one.partition, offset))
        except KafkaException as error:
            # Nobody answers, or the partitions are being given to others. A new member begins at what is committed.
            sys.stderr.write(f"{self._name} goes back: {error}\n")
            self._consumer.close()
            self._consumer = self._join()
        else:
            self._write_assignment(committed)

    def _write_assignment(self, partitions: list[TopicPartition]) -> None:
        names = tuple(f"{one.topic}-{one.partition}" for one in partitions)
        self._inputs.history.write(Assign(worker=self._name, partitions=names))
