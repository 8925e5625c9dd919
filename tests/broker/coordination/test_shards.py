"""Shards of an internal topic: what is loaded, changed before it opens, and given up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from ottla.broker.coordination.shards import Loaded, Shard, Shards
from ottla.broker.coordination.work import Work
from ottla.broker.replication.partitions import Partitions
from ottla.broker.storage.log import Log

TOPIC = "__somewhere"


class Coordinator:
    """Shards whose log has two entries, on a thread that runs when the test says so."""

    def __init__(self) -> None:
        self.work = Work("test")
        self.loaded: list[int] = []
        self.lost: list[str] = []
        self.epochs: list[int] = []
        self.on_load: Callable[[], None] = lambda: None
        self.shards: Shards[str] = Shards(
            TOPIC, cast(Partitions, self), self.work, self._load, lambda shard: self.loaded.append(shard.index),
            self.lost.append, lambda shard: self.epochs.append(shard.epoch),
        )  # fmt: skip

    def find(self, _partition: object) -> Any:
        """Take the place of a replica, and of its log."""
        return self

    @property
    def log(self) -> Log:
        """Take the place of a log."""
        return cast(Log, self)

    def _load(self, _index: int, _source: Log, is_wanted: Callable[[], bool]) -> Loaded[str] | None:
        self.on_load()
        return Loaded({"a": "1", "b": "2"}, 7, 2) if is_wanted() else None

    def lead(self, epoch: int = 0) -> Shard[str]:
        """Become leader of the first partition, without loading it yet."""
        self.shards.became_leader(0, epoch)
        shard = self.shards.get(0)
        assert shard is not None
        return shard


def test_a_shard_opens_with_what_its_log_has() -> None:
    """Until then it has nothing."""
    coordinator = Coordinator()
    shard = coordinator.lead()
    assert (shard.is_loading, shard.entries) == (True, {})

    coordinator.work.run_due()

    assert (shard.is_loading, shard.entries, shard.end_offset) == (False, {"a": "1", "b": "2"}, 7)
    assert coordinator.loaded == [0]


def test_changes_are_made_before_anybody_sees_the_entries() -> None:
    """Also one that comes while another is made; each once, in order."""
    coordinator = Coordinator()
    shard = coordinator.lead()
    seen: list[str] = []

    def first(entries: dict[str, str]) -> None:
        assert shard.is_loading
        seen.append("first")
        entries.pop("a")
        assert coordinator.shards.change_when_loaded(shard, lambda _entries: seen.append("second"))

    assert coordinator.shards.change_when_loaded(shard, first)
    coordinator.work.run_due()

    assert (seen, shard.entries) == (["first", "second"], {"b": "2"})
    assert not coordinator.shards.change_when_loaded(shard, first)


def test_a_change_that_fails_is_made_again_with_what_is_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing opens half changed."""
    monkeypatch.setattr("ottla.broker.coordination.shards._RETRY_SECONDS", 0.0)
    coordinator = Coordinator()
    shard = coordinator.lead()
    attempts: list[dict[str, str]] = []

    def fail_once(entries: dict[str, str]) -> None:
        attempts.append(dict(entries))
        del entries["a"]
        if len(attempts) == 1:
            raise OSError("the disk is gone")

    coordinator.shards.change_when_loaded(shard, fail_once)
    coordinator.work.run_due()

    assert attempts == [{"a": "1", "b": "2"}] * 2
    assert (shard.is_loading, shard.entries) == (False, {"b": "2"})


def test_a_shard_that_is_given_up_while_it_loads_stays_closed() -> None:
    """Another broker serves it by now."""
    coordinator = Coordinator()
    shard = coordinator.lead()
    coordinator.on_load = lambda: coordinator.shards.resigned(0, 1)
    coordinator.work.run_due()

    assert shard.is_loading
    assert coordinator.shards.get(0) is None
    assert coordinator.loaded == []


def test_what_a_shard_has_is_lost_with_it() -> None:
    """Whoever waits for an entry is told. News of an older epoch change nothing."""
    coordinator = Coordinator()
    coordinator.lead(epoch=5)
    coordinator.work.run_due()

    coordinator.shards.resigned(0, 4)
    assert coordinator.lost == []
    coordinator.shards.resigned(0, 6)
    assert coordinator.lost == ["1", "2"]
    coordinator.shards.became_leader(0, 5)
    assert coordinator.shards.get(0) is None


def test_a_leader_that_stays_one_in_another_epoch_hears_of_it() -> None:
    """Once it has loaded what the log has, and only of a new one."""
    coordinator = Coordinator()
    coordinator.lead(epoch=1)
    coordinator.lead(epoch=2)
    coordinator.work.run_due()
    coordinator.lead(epoch=2)
    shard = coordinator.lead(epoch=3)

    assert (coordinator.epochs, shard.epoch, coordinator.loaded) == ([3], 3, [0])


def test_an_entry_is_removed_unless_another_one_took_its_place() -> None:
    """A request may still have the old one in hand."""
    coordinator = Coordinator()
    shard = coordinator.lead()
    coordinator.work.run_due()

    shard.remove("a", "another")
    assert "a" in shard.entries
    shard.remove("a", "1")
    assert "a" not in shard.entries
