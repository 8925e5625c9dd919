"""Who waits for a partition is woken by what changes there, whenever it began to wait."""

from __future__ import annotations

import pytest

from ottla.broker.common.purgatory import DelayedOperation
from ottla.broker.common.turn import Turn
from ottla.broker.replication.waits import PartitionWaits
from ottla.protocol.identifiers import TopicPartition

PARTITION = TopicPartition("t", 0)
FOREVER_SECONDS = 3600


class Fetch(DelayedOperation):
    """Waits for any append."""

    def __init__(self) -> None:
        super().__init__()
        self.has_records = False

    def is_satisfied(self) -> bool:
        """Whether something was appended."""
        return self.has_records

    def on_complete(self, *, expired: bool) -> None:
        """Do nothing: `is_complete` says it."""


@pytest.fixture
def waits() -> PartitionWaits:
    """Those of a broker; no deadline passes."""
    return PartitionWaits()


def test_an_append_wakes_a_fetch_at_the_end_of_the_turn(waits: PartitionWaits) -> None:
    """The turn may append more."""
    fetch = Fetch()
    waits.fetches.watch(fetch, [PARTITION], FOREVER_SECONDS)
    with Turn():
        fetch.has_records = True
        waits.appended(PARTITION)
        assert not fetch.is_complete
    assert fetch.is_complete


def test_a_fetch_that_looked_before_an_append_and_waits_after_it_is_not_forgotten(waits: PartitionWaits) -> None:
    """Nobody waited when the record was appended, and the turn goes on."""
    fetch = Fetch()
    mark = waits.fetches.mark()
    with Turn():
        fetch.has_records = True
        waits.appended(PARTITION)
        waits.fetches.watch(fetch, [PARTITION], FOREVER_SECONDS, since=mark)
    assert fetch.is_complete
