"""Offsets that are committed in a transaction: staged, and then applied or dropped by its marker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.groups.coordinating import GROUP, TOPIC, commit, coordinating_broker, fetch, load, stable_member
from tests.broker.handlers.data_path import Broker

from ottla.broker.coordination.placement import CONSUMER_OFFSETS
from ottla.broker.coordination.stored_records import TransactionalProducer
from ottla.broker.groups.loading import replay_log
from ottla.broker.groups.offsets.group_offsets import Committer
from ottla.broker.groups.offsets.offset_store import CommittedOffset
from ottla.protocol.control_records import ControlType, EndTransactionMarker, build_marker_batch
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.records import RecordBatch

PARTITION = TopicPartition(TOPIC, 0)
PRODUCER = TransactionalProducer(9, 1)
NOBODY = Committer()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Return a broker that coordinates all groups, and asks nobody about transactions."""
    with coordinating_broker(tmp_path, transaction_partition_verification_enable="false") as broker:
        yield broker


def stage(broker: Broker, offset: int, committer: Committer = NOBODY, group: str = GROUP) -> ErrorCode:
    """Commit an offset in the transaction of the producer; the answer must be there."""
    answers: list[ErrorCode] = []
    offsets = {PARTITION: CommittedOffset(offset, -1, "", 0)}
    broker.services.group_offsets.commit_in_transaction(group, committer, PRODUCER, offsets, answers.append)
    (answer,) = answers
    return answer


def end(broker: Broker, control_type: ControlType) -> None:
    """Write the marker of the producer, and tell the groups."""
    partition = broker.services.partitions.find(TopicPartition(CONSUMER_OFFSETS, 0))
    assert partition is not None
    marker = EndTransactionMarker(control_type, 0)
    batch = build_marker_batch(
        marker, producer_id=PRODUCER.producer_id, producer_epoch=PRODUCER.producer_epoch, timestamp=0
    )
    partition.append_batch(RecordBatch(batch))
    is_committed = control_type is ControlType.COMMIT
    broker.services.group_offsets.transaction_ended(0, PRODUCER.producer_id, is_committed=is_committed)


def seen(broker: Broker, *, require_stable: bool = False) -> tuple[int, int]:
    """Return the error code and the offset that a client gets."""
    row = fetch(broker, require_stable=require_stable)
    return row.error_code, row.committed_offset


def reload_groups(broker: Broker) -> None:
    """Have the broker drop its groups and load them again."""
    broker.services.groups.shards.forget(0)
    broker.services.groups.became_leader(0, 0)
    load(broker)


@pytest.mark.parametrize("is_reloaded", [False, True], ids=["live", "loaded again"])
@pytest.mark.parametrize(
    ("control_type", "offset"), [(ControlType.COMMIT, 8), (ControlType.ABORT, 5)], ids=["commit", "abort"]
)
def test_a_marker_decides(broker: Broker, control_type: ControlType, offset: int, is_reloaded: bool) -> None:
    """Until then the old offset counts for those who do not mind; a failover changes nothing."""
    commit(broker, 5)
    assert stage(broker, 8) is ErrorCode.NONE
    if is_reloaded:
        reload_groups(broker)
    assert seen(broker) == (ErrorCode.NONE, 5)
    assert seen(broker, require_stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)

    end(broker, control_type)

    assert seen(broker, require_stable=True) == (ErrorCode.NONE, offset)
    reload_groups(broker)
    assert seen(broker, require_stable=True) == (ErrorCode.NONE, offset)


def test_a_later_commit_outside_the_transaction_stays(broker: Broker) -> None:
    """The log has it after the staged one, live and loaded again."""
    stage(broker, 8)
    commit(broker, 9)
    end(broker, ControlType.COMMIT)
    assert seen(broker) == (ErrorCode.NONE, 9)
    reload_groups(broker)
    assert seen(broker) == (ErrorCode.NONE, 9)


def test_a_member_stages_in_its_generation_only(broker: Broker) -> None:
    """A client that names no member may always: its transactional id fences it."""
    member_id, generation = stable_member(broker)

    assert stage(broker, 8, Committer(member_id, None, generation)) is ErrorCode.NONE
    assert stage(broker, 8, Committer(member_id, None, generation - 1)) is ErrorCode.ILLEGAL_GENERATION
    assert stage(broker, 8, Committer("somebody", None, generation)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage(broker, 8) is ErrorCode.NONE


def test_a_group_that_is_not_there_is_made_for_clients_without_a_generation(broker: Broker) -> None:
    """Others belong to a group that is gone."""
    assert stage(broker, 8, Committer("somebody", None, 3), group="new") is ErrorCode.ILLEGAL_GENERATION
    assert stage(broker, 8, group="new") is ErrorCode.NONE


def test_offsets_that_are_not_written_are_not_staged(tmp_path: Path) -> None:
    """Too few replicas, or too late: nothing keeps readers of stable offsets waiting."""
    with coordinating_broker(tmp_path, min_insync_replicas="2") as broker:
        assert stage(broker, 8) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert seen(broker, require_stable=True) == (ErrorCode.NONE, -1)


def test_a_write_that_ends_after_its_marker_leaves_nothing_behind(broker: Broker) -> None:
    """Both are committed by one fetch of a follower, and nobody says in which order they are noticed."""
    commit(broker, 5)
    broker.lead(CONSUMER_OFFSETS, epoch=1, isr=(1, 2))
    answers: list[ErrorCode] = []
    offsets = {PARTITION: CommittedOffset(8, -1, "", 0)}
    broker.services.group_offsets.commit_in_transaction(GROUP, NOBODY, PRODUCER, offsets, answers.append)
    end(broker, ControlType.ABORT)
    assert answers == []
    broker.services.partitions.waits.produces.expire(float("inf"))

    assert answers == [ErrorCode.REQUEST_TIMED_OUT]
    broker.lead(CONSUMER_OFFSETS, epoch=2)
    assert seen(broker, require_stable=True) == (ErrorCode.NONE, 5)


def test_the_end_of_a_transaction_of_another_partition_is_ignored(broker: Broker) -> None:
    """This broker does not coordinate its groups."""
    stage(broker, 8)
    broker.services.group_offsets.transaction_ended(7, PRODUCER.producer_id, is_committed=True)
    assert seen(broker, require_stable=True)[0] == ErrorCode.UNSTABLE_OFFSET_COMMIT


def test_a_marker_that_comes_while_groups_are_loaded_decides(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log was read up to the end that it had before: nobody else would tell the group."""
    assert stage(broker, 8) is ErrorCode.NONE
    broker.services.groups.shards.forget(0)
    broker.services.groups.became_leader(0, 0)

    def replay_then_end(*args: object) -> object:
        replayed = replay_log(*args)  # type: ignore[arg-type]
        end(broker, ControlType.COMMIT)
        return replayed

    monkeypatch.setattr("ottla.broker.groups.coordinator.replay_log", replay_then_end)
    load(broker)

    assert seen(broker, require_stable=True) == (0, 8)
