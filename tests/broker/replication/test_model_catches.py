"""Every rule of replication is needed: without it, a short story ends in a violation that the checks notice.

Each story is told twice, with the rule and without. 1 leads in epoch 0, 2 and 3 follow; all are in the ISR.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.broker.replication.cluster_model import LAG_MAX_MS, ModelBroker
from tests.broker.replication.removed_rules import (
    acknowledging_before_the_high_watermark,
    committing_with_too_few,
    cutting_to_the_high_watermark,
    high_watermark_over_committed_isr,
    high_watermark_over_proposed_isr,
    joining_below_the_start_of_the_epoch,
    no_broker_epochs_in_proposals,
    no_cutting,
    no_fencing_of_answers,
    no_fencing_of_fetches,
    no_fencing_of_lives,
    positions_of_earlier_epochs,
)
from tests.broker.replication.test_replication_model import ReplicationMachine

Told = Callable[["Story"], None]
Without = Callable[[pytest.MonkeyPatch], None]


class Story(ReplicationMachine):
    """The steps of the model, one at a time and by name; everything is checked after each."""

    def told(self, tell: Told) -> None:
        """Go through a story, and look at its end."""
        tell(self)
        self.checks.check()

    def of(self, broker: int) -> ModelBroker:
        """The broker with an id."""
        return self.cluster.brokers[broker]

    def appends(self, broker: int, count: int) -> None:
        """A leader appends for producers that want all acks."""
        for _ in range(count):
            self.cluster.append(self.of(broker), -1)
        self.checks.check()

    def fetches(self, broker: int, rounds: int = 1) -> None:
        """A follower fetches, and hears the answers."""
        self.follow(broker=broker, rounds=rounds)
        self.checks.check()

    def asks(self, broker: int) -> None:
        """A fetch arrives at the leader, and its answer is under way."""
        self.send_fetch(broker=broker)
        self.deliver_fetch(choice=-1)
        self.checks.check()

    def moves(self, leader: int, *hearing: int) -> None:
        """The controller gives leadership to a broker, and only some hear of it."""
        self.move_leadership(broker=leader)
        for broker in hearing:
            self.deliver_newest_role(broker=broker)
        self.checks.check()

    def lags(self) -> None:
        """Time passes, and 1 proposes an ISR of those that keep up."""
        self.look_for_lagging(choice=0, passed_ms=LAG_MAX_MS * 2)

    def proposes(self) -> None:
        """The proposal arrives at the controller, and its answer is under way."""
        self.deliver_proposal(choice=-1)
        self.checks.check()

    def agrees(self) -> None:
        """The controller answers a proposal."""
        self.proposes()
        self.deliver_answer(choice=-1, is_lost=False)
        self.checks.check()


@contextmanager
def a_story() -> Iterator[Story]:
    """Begin with three empty replicas in sync."""
    story = Story()
    try:
        yield story
    finally:
        story.discard()


def a_follower_joins_and_the_answer_is_late(story: Story) -> None:
    """3 was out, and fetches the newest record only after the controller took it in."""
    story.appends(1, 2)
    story.fetches(2, 2)
    story.lags()
    story.agrees()
    story.fetches(3)
    story.appends(1, 1)
    story.cluster.clock.now += LAG_MAX_MS * 2
    story.asks(3)
    story.proposes()
    story.fetches(2, 2)


def a_follower_is_to_leave_and_the_proposal_is_late(story: Story) -> None:
    """2 has two records that 3 lacks, and 3 is in the ISR still."""
    story.appends(1, 2)
    story.fetches(2, 2)
    story.lags()
    story.fetches(2)


def a_new_leader_does_not_know_the_high_watermark(story: Story) -> None:
    """2 has what is committed without knowing it, and 3, which was out, comes to it with an empty log."""
    story.fetches(2)
    story.lags()
    story.agrees()
    story.appends(1, 2)
    story.fetches(2)
    story.asks(2)
    story.moves(2, 2, 3)
    story.asks(3)
    if story.in_flight.proposals:
        story.proposes()


def a_follower_has_more_than_its_next_leader(story: Story) -> None:
    """3 has two records that are committed, which it was not told, and one that 2 does not have."""
    story.appends(1, 2)
    story.fetches(2)
    story.fetches(3)
    story.appends(1, 1)
    story.fetches(3)
    story.asks(2)
    story.moves(2, 2, 3)
    story.fetches(3)


def a_leader_returns_as_follower_with_records_of_its_own(story: Story) -> None:
    """1 took two records alone, and 2 two others."""
    story.appends(1, 2)
    story.moves(2, 1, 2, 3)
    story.appends(2, 2)
    story.fetches(3, 2)
    story.fetches(1, 2)


def a_fetch_arrives_two_epochs_late(story: Story) -> None:
    """3 had the records of 1, cut them for 2, and its old fetch arrives when 1 leads again."""
    story.appends(1, 2)
    story.fetches(3)
    story.send_fetch(broker=3)
    story.moves(2, 2, 3)
    late = story.in_flight.fetches.pop()
    story.fetches(3, 2)
    story.moves(1, 1, 2)
    story.fetches(2, 2)
    story.in_flight.fetches.append(late)
    story.deliver_fetch(choice=-1)


def an_answer_is_taken_one_epoch_late(story: Story) -> None:
    """2 tells 3 to cut what it lacks; when 3 gets to it, 1 leads again and has committed just that."""
    story.appends(1, 2)
    story.fetches(3)
    story.moves(2, 2, 3)
    story.asks(3)
    late = story.in_flight.fetched.pop()
    story.moves(1, 1, 2, 3)
    story.fetches(2, 3)
    story.fetches(3, 2)
    story.in_flight.fetched.append(late)
    story.deliver_fetched(choice=-1)


def a_fetch_arrives_one_life_late(story: Story) -> None:
    """3 lost power and what it had, and was taken into the ISR anew before its old fetch arrives."""
    story.fetches(2)
    story.lags()
    story.agrees()
    story.appends(1, 2)
    story.fetches(3)
    story.send_fetch(broker=3)
    late = story.in_flight.fetches.pop()
    story.cluster.lose_power(story.of(3), 0)
    story.cluster.restart(story.of(3))
    story.agrees()
    story.deliver_newest_role(broker=3)
    story.asks(3)
    story.agrees()
    story.in_flight.fetches.append(late)
    story.deliver_fetch(choice=-1)
    story.fetches(2, 2)


def a_follower_that_caught_up_loses_power(story: Story) -> None:
    """3 had everything when 1 proposed to take it in, and nothing when the controller hears of it."""
    story.appends(1, 2)
    story.fetches(2, 2)
    story.lags()
    story.agrees()
    story.fetches(3, 2)
    story.cluster.lose_power(story.of(3), 0)
    story.cluster.restart(story.of(3))
    story.proposes()


def a_leader_does_not_hear_that_another_led(story: Story) -> None:
    """2 had the records of 1 and cut them for 3, of which 1 heard nothing, and now it leads again."""
    story.appends(1, 2)
    story.fetches(2, 2)
    story.moves(3, 2, 3)
    story.appends(3, 2)
    story.fetches(2, 4)
    story.moves(1, 1, 3)
    story.fetches(3, 4)


def a_leader_is_alone(story: Story) -> None:
    """The ISR shrinks to 1, which is less than min.insync.replicas."""
    story.appends(1, 2)
    story.lags()
    story.agrees()
    story.fetches(2)


def a_producer_waits(story: Story) -> None:
    """Nobody has fetched the record."""
    story.appends(1, 1)


STORIES: list[tuple[Told, Without]] = [
    (a_follower_joins_and_the_answer_is_late, high_watermark_over_committed_isr),
    (a_follower_is_to_leave_and_the_proposal_is_late, high_watermark_over_proposed_isr),
    (a_new_leader_does_not_know_the_high_watermark, joining_below_the_start_of_the_epoch),
    (a_follower_has_more_than_its_next_leader, cutting_to_the_high_watermark),
    (a_leader_returns_as_follower_with_records_of_its_own, no_cutting),
    (a_fetch_arrives_two_epochs_late, no_fencing_of_fetches),
    (an_answer_is_taken_one_epoch_late, no_fencing_of_answers),
    (a_fetch_arrives_one_life_late, no_fencing_of_lives),
    (a_follower_that_caught_up_loses_power, no_broker_epochs_in_proposals),
    (a_leader_does_not_hear_that_another_led, positions_of_earlier_epochs),
    (a_leader_is_alone, committing_with_too_few),
    (a_producer_waits, acknowledging_before_the_high_watermark),
]
NAMES = [without.__name__ for _, without in STORIES]


@pytest.mark.parametrize(("tell", "without"), STORIES, ids=NAMES)
def test_the_story_ends_well_with_the_rule(tell: Told, without: Without) -> None:
    """Everything holds after each step, and heals in the end."""
    with a_story() as story:
        story.told(tell)
        story.settle()


@pytest.mark.parametrize(("tell", "without"), STORIES, ids=NAMES)
def test_the_story_ends_badly_without_the_rule(tell: Told, without: Without, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check fails: what was committed is not where it must be."""
    without(monkeypatch)
    with a_story() as story, pytest.raises(AssertionError):
        story.told(tell)


@pytest.mark.parametrize(
    "without",
    [
        high_watermark_over_proposed_isr,
        no_cutting,
        no_fencing_of_fetches,
        acknowledging_before_the_high_watermark,
    ],
)
def test_chance_finds_the_story_too(without: Without, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state machine comes upon a violation by itself, always at the same place."""
    without(monkeypatch)
    search = settings(
        max_examples=200,
        stateful_step_count=60,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(ReplicationMachine, settings=search)
