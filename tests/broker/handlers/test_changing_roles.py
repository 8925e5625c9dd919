"""What is asked of a leader is answered by the leader of that epoch, also while its role changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.handlers.data_path import NOW_MS, Broker, batch, running_broker
from tests.broker.handlers.test_fetch_from_leader import FOREVER_MS, answer_of, follow, partition_of
from tests.broker.handlers.test_offsets_and_roles import delete, epoch_end, list_offset
from tests.broker.handlers.test_produce_and_fetch import fetch, produce, values

from ottla.broker.handlers.data import list_offsets
from ottla.protocol.errors import ErrorCode

OURS, THEIRS = [b"a", b"b"], [b"x", b"y", b"z"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Return the leader of `t` in epoch 0, with two batches that are committed."""
    with running_broker(tmp_path, {}) as broker:
        broker.lead("t")
        for value in OURS:
            produce(broker, batch(value))
        yield broker


def become_follower(broker: Broker) -> None:
    """Follow broker 2 in epoch 1, as far as nobody holds the partition's lock: cut all, and copy what that one has."""
    partition = partition_of(broker)
    if partition.lock.locked():
        return
    broker.lead("t", epoch=1, leader=2)
    log = partition.log
    log.truncate_to(0)
    for offset, value in enumerate(THEIRS):
        log.append_as_follower(batch(value, base_offset=offset, partition_leader_epoch=1), 1)
    log.advance_high_watermark(len(THEIRS))


def overtaken(broker: Broker, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Let the role change just before a function is called."""
    function: Callable[..., Any] = getattr(owner, name)

    def called(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        become_follower(broker)
        return function(*arguments, **options)

    monkeypatch.setattr(owner, name, called)


def test_a_fetch_that_has_waited_gets_no_records_of_a_later_epoch(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower would append them behind its own, and the two logs would differ for good."""
    answers = follow(broker, 2, max_wait_ms=FOREVER_MS)
    overtaken(broker, monkeypatch, partition_of(broker).log, "read")
    produce(broker, batch(b"c"))

    assert values(answer_of(answers)) == [b"c"]


def test_a_consumer_gets_no_records_of_a_later_epoch(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asked in epoch 0, and would take them for committed in that."""
    overtaken(broker, monkeypatch, partition_of(broker).log, "read")

    assert values(fetch(broker, epoch=0)) == OURS


def test_the_end_of_an_epoch_is_that_of_the_leader_that_was_asked(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks cuts its log there."""
    overtaken(broker, monkeypatch, partition_of(broker).log, "end_offset_for_epoch")
    answer = epoch_end(broker, 0, 4, current=0)

    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, 0, 2)


def test_records_are_deleted_by_a_leader_only(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a follower it deletes what its leader deletes."""
    overtaken(broker, monkeypatch, partition_of(broker).log, "advance_log_start")
    deleted = delete(broker, "t", 1)

    assert (deleted.error_code, deleted.low_watermark, partition_of(broker).is_leader) == (0, 1, True)


def test_an_offset_that_was_found_while_the_role_changed_is_not_told(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be that of another leader's record; a lookup by time is too long to hold a lock."""
    overtaken(broker, monkeypatch, list_offsets, "offset_for_timestamp")

    assert list_offset(broker, NOW_MS).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
