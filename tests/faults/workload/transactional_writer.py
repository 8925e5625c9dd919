"""A worker that writes to several partitions in each transaction."""

from __future__ import annotations

import random

from confluent_kafka import KafkaException
from tests.faults.workload.consumer import ConsumerWorker
from tests.faults.workload.settings import Settings
from tests.faults.workload.transactional_producer import TransactionalProducer

VALUES_MAX = 5
POLL_S = 0.05
# Less than a commit takes, as a rule.
PATIENCE_S = 0.002
# How transactions end, by chance: most are committed, some by a client that goes away before it hears of it.
_COMMIT, _HASTY_COMMIT, _ABORT, _CRASH, _REPLACED = "commit", "hasty commit", "abort", "crash", "replaced"
_ENDS = (*(_COMMIT,) * 30, *(_ABORT,) * 8, _HASTY_COMMIT, _HASTY_COMMIT, _CRASH, _REPLACED)


class TransactionalWriter:
    """Also reads what others have committed, inside of some of its transactions."""

    def __init__(self, settings: Settings, name: str, seed: int, interval_s: float) -> None:
        self._settings = settings
        self._chance = random.Random(f"{seed}-{name}")
        self._interval_s = interval_s
        self._producer = TransactionalProducer(settings, name)
        self._reader = ConsumerWorker(settings, name, is_committed=True)

    def run(self) -> None:
        """Begin one transaction after the other until told to stop, and leave none open."""
        try:
            number = 0
            while not self._settings.stopping.wait(self._chance.uniform(0, 2 * self._interval_s)):
                self._transact(number)
                number += 1
            self._producer.close()
        finally:
            self._reader.close()

    def _transact(self, number: int) -> None:
        try:
            self._producer.begin(number)
            for _ in range(self._chance.randint(1, VALUES_MAX)):
                self._producer.send(self._settings, self._chance.randrange(self._settings.partitions))
                if self._chance.random() < 0.1:
                    self._reader.poll(POLL_S, number)
            if self._chance.random() < 0.2:
                self._reader.poll(POLL_S, number)
            end = self._chance.choice(_ENDS)
            if end != _ABORT:
                self._producer.flush()
        except KafkaException:
            end = _ABORT
        if end == _COMMIT:
            self._producer.commit()
        elif end == _HASTY_COMMIT:
            self._producer.commit(PATIENCE_S)
        elif end == _CRASH:
            self._producer.crash()
        elif end == _REPLACED:
            self._producer.be_replaced()
        else:
            self._producer.abort()
