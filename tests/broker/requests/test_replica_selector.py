"""Reading from followers: where the leader sends a consumer, and what a follower answers it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.handlers.data_path import Broker, batch, running_broker
from tests.broker.handlers.test_fetch_from_leader import FOREVER_MS, answer_of, follow, partition_of
from tests.broker.handlers.test_produce_and_fetch import fetch, fetch_body, produce, values

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode

SELECTORS = ["org.apache.kafka.common.replica.RackAwareReplicaSelector", "rack-aware"]


@pytest.fixture(params=SELECTORS)
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Broker]:
    """Return a leader in `north`, with followers in `south` and `east` that have its two records."""
    with running_broker(tmp_path, {}, {"replica.selector.class": request.param}) as broker:
        broker.racks = {1: "north", 2: "south", 3: "east", 4: "south"}
        broker.lead("t", isr=(1, 2, 3), replicas=(1, 2, 3, 4))
        produce(broker, batch(b"a"))
        produce(broker, batch(b"b"))
        for replica in (2, 3):
            follow(broker, 2, replica=replica)
        yield broker


def preferred(broker: Broker, rack: str, offset: int = 0, version: int = 12) -> int:
    """The replica that a consumer is sent to."""
    answer = fetch(broker, offset, rack_id=rack, version=version)
    assert answer.error_code == 0
    assert not answer.records or answer.preferred_read_replica == -1
    return answer.preferred_read_replica


@pytest.mark.parametrize("version", [11, 12, 13, 17])
def test_a_consumer_is_sent_to_a_replica_of_its_rack(broker: Broker, version: int) -> None:
    """With the high watermark, without records, and without waiting."""
    answer = fetch(broker, version=version, rack_id="south", max_wait_ms=FOREVER_MS)

    assert (answer.preferred_read_replica, answer.high_watermark, answer.records) == (2, 2, b"")


@pytest.mark.parametrize("rack", ["north", "west", ""])
def test_a_consumer_near_the_leader_or_near_nobody_reads_from_the_leader(broker: Broker, rack: str) -> None:
    """As does one that does not say where it is."""
    assert preferred(broker, rack) == -1
    assert values(fetch(broker, rack_id=rack)) == [b"a", b"b"]


def test_only_a_replica_that_has_the_offset_will_do(broker: Broker) -> None:
    """One that is behind would call it out of range."""
    produce(broker, batch(b"c"))

    assert [preferred(broker, "south", offset) for offset in (2, 3)] == [2, -1]


def test_only_a_replica_in_sync_will_do(broker: Broker) -> None:
    """Broker 4 has a replica in the same rack, and is not."""
    broker.lead("t", epoch=1, isr=(1, 3), replicas=(1, 2, 3, 4))
    follow(broker, 2, replica=3, epoch=1)

    assert (preferred(broker, "south"), preferred(broker, "east")) == (-1, 3)


def test_of_several_the_one_with_the_most_is_chosen(broker: Broker) -> None:
    """It keeps the consumer busy for longer."""
    broker.lead("t", epoch=1, isr=(1, 2, 4), replicas=(1, 2, 3, 4))
    follow(broker, 1, replica=2, epoch=1)
    follow(broker, 2, replica=4, epoch=1)

    assert preferred(broker, "south") == 4


def test_only_a_broker_that_lives_will_do(broker: Broker) -> None:
    """The controller removes it from the metadata before the ISR has changed everywhere."""
    del broker.racks[2]
    broker.lead("other")

    assert preferred(broker, "south") == -1


def test_followers_are_never_sent_elsewhere(broker: Broker) -> None:
    """They need the leader."""
    assert follow(broker, 0, rack_id="south", replica=3).preferred_read_replica == -1


def test_without_a_selector_everybody_reads_from_the_leader(tmp_path: Path) -> None:
    """That is the default."""
    with running_broker(tmp_path, {}) as broker:
        broker.racks = {1: "north", 2: "south"}
        broker.lead("t", isr=(1, 2))
        produce(broker, batch(b"a"))
        follow(broker, 1)

        assert preferred(broker, "south") == -1


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[Broker]:
    """Return a follower that has three records, two of which are committed."""
    with running_broker(tmp_path, {}) as broker:
        broker.lead("t")
        produce(broker, batch(b"a"))
        produce(broker, batch(b"b"))
        broker.lead("t", epoch=1, isr=(1, 2))
        produce(broker, batch(b"c"))
        broker.lead("t", epoch=2, leader=2, isr=(1, 2))
        yield broker


@pytest.mark.parametrize(("offset", "found"), [(0, [b"a", b"b"]), (2, []), (3, [])])
def test_a_follower_serves_consumers_what_it_knows_to_be_committed(
    follower: Broker, offset: int, found: list[bytes]
) -> None:
    """Between its high watermark and its end there is nothing yet, and no error."""
    answer = fetch(follower, offset, version=11)

    assert (answer.error_code, answer.high_watermark, values(answer)) == (0, 2, found)


def test_a_consumer_ahead_of_the_follower_is_out_of_range(follower: Broker) -> None:
    """It goes back to the leader."""
    assert fetch(follower, 4, version=11).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_old_consumer_and_another_follower_are_sent_to_the_leader(follower: Broker) -> None:
    """They do not know that a follower may answer."""
    assert fetch(follower, version=10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert follow(follower, 0, replica=3, epoch=2).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(("epoch", "code"), [(1, 74), (3, 75)])
def test_a_consumer_of_a_follower_is_fenced_by_the_epoch(follower: Broker, epoch: int, code: int) -> None:
    """As it would be by the leader."""
    assert fetch(follower, version=11, epoch=epoch).error_code == code


def test_a_consumer_waits_at_a_follower_until_more_is_committed(follower: Broker) -> None:
    """The follower hears of that from its leader."""
    answers = follower.ask(Api.FETCH, 12, fetch_body(2, max_wait_ms=FOREVER_MS))
    assert answers == []
    partition = partition_of(follower)
    partition.log.advance_high_watermark(3)

    follower.services.partitions.waits.moved(partition.partition)

    assert values(answer_of(answers)) == [b"c"]
