"""Scenarios of a consumer group: members join, fail and return. Each step checks their partitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from tests.broker.groups.consumer.script import ConsumerScript, partitions

from ottla.broker.groups.consumer.assignors import NO_PARTITIONS
from ottla.broker.groups.consumer.messages import MemberState
from ottla.protocol.errors import ErrorCode


def test_two_members_join_and_one_fails() -> None:
    """The normal life cycle of a group."""
    group = ConsumerScript()
    a = group.joins("a")
    assert (group.state, a.epoch, a.owned) == ("Stable", 1, partitions("t", 0, 1, 2, 3))
    assert a.replies[-1].heartbeat_interval_ms == 5_000

    b = group.joins("b")
    assert (group.state, b.epoch, b.owned) == ("Reconciling", 2, NO_PARTITIONS)  # a still has all of them
    assert group.group.members["b"].state is MemberState.UNRELEASED_PARTITIONS

    a.heartbeats()  # must revoke two, and has done so by its next heartbeat
    assert (a.epoch, a.owned) == (1, partitions("t", 0, 1))
    assert group.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    b.heartbeats()
    assert b.owned == NO_PARTITIONS
    a.heartbeats()
    assert (a.epoch, group.state) == (2, "Reconciling")
    b.heartbeats()
    assert (b.epoch, b.owned, group.state) == (2, partitions("t", 2, 3), "Stable")

    for _ in range(9):
        group.passes(5_000)
        a.heartbeats()
    # b has been silent for its session timeout of 45 s
    assert (a.epoch, a.owned, group.state) == (3, partitions("t", 0, 1, 2, 3), "Stable")
    assert b.heartbeats().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.causes == [
        "member a joined from /10.0.0.5",
        "member b joined from /10.0.0.5",
        "member b missed heartbeats for 45 s from /10.0.0.5",
    ]


def test_partitions_of_a_leaving_member_are_free_at_once() -> None:
    """The other members get them with their next heartbeats."""
    group = ConsumerScript()
    a, b = group.joins("a"), group.joins("b")
    for client in (a, a, b):
        client.heartbeats()
    b.leaves()
    assert (b.replies[-1].member_epoch, group.state) == (-1, "Assigning")
    a.heartbeats()
    assert (a.owned, a.epoch, group.state) == (partitions("t", 0, 1, 2, 3), 3, "Stable")
    a.leaves()
    assert group.state == "Empty"
    assert group.causes[-2:] == ["member b left", "member a left"]
    assert all(each.ended_ms is not None for each in group.group.timeline.rebalances)


def test_replies_hold_only_what_changed() -> None:
    """A reply holds the assignment if it has changed, or if the heartbeat was a full one."""
    group = ConsumerScript()
    a = group.joins("a")
    assert a.heartbeats(owned=None).replies[-1].assignment is None
    assert a.heartbeats().replies[-1].assignment is None
    full = a.heartbeats(topic_names=("t",), rebalance_timeout_ms=60_000)
    assert full.replies[-1].assignment == partitions("t", 0, 1, 2, 3)
    stored = dict(group.stored)
    a.heartbeats()
    assert group.stored == stored


def test_a_member_that_does_not_revoke_is_removed() -> None:
    """This happens after its rebalance timeout, even if it sends heartbeats."""
    group = ConsumerScript()
    a, b = group.joins("a"), group.joins("b")
    a.heartbeats()
    for _ in range(11):
        group.passes(5_000)
        a.heartbeats(owned=None)
        b.heartbeats()
        assert a.error is ErrorCode.NONE
    group.passes(5_000)
    assert a.heartbeats().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert b.heartbeats().owned == partitions("t", 0, 1, 2, 3)
    assert group.causes[-1] == "member a did not revoke partitions within 60 s"


def test_a_lost_reply_does_no_harm() -> None:
    """A member with the previous epoch gets the reply again, unless it owns partitions that it must not own."""
    group = ConsumerScript()
    a = group.joins("a")
    b = group.joins("b")
    a.heartbeats()
    a.heartbeats()
    b.heartbeats()
    owned, epoch = b.owned, b.epoch
    b.leaves()
    a.heartbeats()
    a.epoch, a.owned = 2, partitions("t", 0, 1)  # it never received epoch 3
    assert a.heartbeats().replies[-1].assignment == partitions("t", 0, 1, 2, 3)
    assert a.epoch == 3

    a.epoch = 2
    assert a.heartbeats(owned=None).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert a.heartbeats(owned=partitions("t", 7)).error is ErrorCode.FENCED_MEMBER_EPOCH
    a.epoch = 1
    assert a.heartbeats().error is ErrorCode.FENCED_MEMBER_EPOCH
    a.epoch = 4
    assert a.heartbeats().error is ErrorCode.FENCED_MEMBER_EPOCH
    assert a.joins().owned == partitions("t", 0, 1, 2, 3)  # as a client does after FENCED_MEMBER_EPOCH
    assert (owned, epoch) == (partitions("t", 2, 3), 2)


def test_a_static_member_that_comes_back_keeps_its_partitions() -> None:
    """The other members notice nothing, and its old member id is fenced."""
    group = ConsumerScript()
    a, b = group.joins("a", instance_id="i"), group.joins("b")
    for client in (a, a, b):
        client.heartbeats()
    had, epoch = a.owned, group.group.epoch
    assert group.joins("c", instance_id="i").error is ErrorCode.UNRELEASED_INSTANCE_ID

    a.leaves(-2)
    assert (a.replies[-1].member_epoch, group.group.members["a"].epoch) == (-2, -2)
    group.passes(5_000)
    b.heartbeats()
    c = group.joins("c", instance_id="i")
    assert (c.owned, c.epoch, group.group.epoch, group.state) == (had, epoch, epoch, "Stable")
    assert list(group.group.members) == ["b", "c"]
    a.epoch = epoch
    assert a.heartbeats(instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID
    assert a.heartbeats().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.causes[-1] == "static member i came back"
    stored = group.read_back()
    assert stored is not None
    assert stored.members == group.group.members


def test_a_static_member_that_stays_away_loses_its_place() -> None:
    """It is removed when its session expires."""
    group = ConsumerScript()
    a, b = group.joins("a", instance_id="i"), group.joins("b")
    for client in (a, a, b):
        client.heartbeats()
    a.leaves(-2)
    for _ in range(9):
        group.passes(5_000)
        b.heartbeats()
    assert b.heartbeats().owned == partitions("t", 0, 1, 2, 3)
    assert a.heartbeats(instance_id="i").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_late_heartbeat_of_a_static_member_that_left_is_refused() -> None:
    """It has already stopped reading."""
    group = ConsumerScript()
    a = group.joins("a", instance_id="i")
    a.leaves(-2)
    a.epoch = 1
    assert a.heartbeats(instance_id="i").error is ErrorCode.FENCED_MEMBER_EPOCH
    assert group.group.members["a"].epoch == -2


def test_a_subscription_that_is_too_long_is_refused() -> None:
    """A huge record would block the writes of the whole group."""
    group = ConsumerScript()
    names = [f"{number:0249}" for number in range(2000)]
    assert group.joins("a", names).error is ErrorCode.INVALID_REQUEST
    assert group.group.is_empty


def test_records_of_unknown_kinds_are_ignored() -> None:
    """Later versions of Kafka may write more kinds of records."""
    group = ConsumerScript()
    group.joins("a")
    group.stored[b"\x00\x10\x00\x01g"] = b"\x00\x00"
    group.moves()
    assert list(group.group.members) == ["a"]


def test_a_static_member_may_leave_for_good() -> None:
    """It leaves with the epoch -1."""
    group = ConsumerScript()
    a = group.joins("a", instance_id="i")
    a.leaves(-1)
    assert group.state == "Empty"
    assert a.leaves(-2).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_changed_topics_cause_a_new_assignment() -> None:
    """A topic gets partitions, a subscribed topic appears, and one is deleted."""
    group = ConsumerScript()
    a = group.joins("a", ["t", "later"])
    group.has_topics(t=5)
    assert (a.heartbeats().owned, a.epoch) == (partitions("t", 0, 1, 2, 3, 4), 2)
    group.has_topics(t=5, later=1)
    assert (a.heartbeats().owned, a.epoch) == (partitions("t", 0, 1, 2, 3, 4) | partitions("later", 0), 3)
    group.has_topics(later=1, other=3)
    a.heartbeats()
    assert (a.heartbeats().owned, a.epoch) == (partitions("later", 0), 4)
    group.has_topics(later=1)
    assert a.heartbeats().epoch == 4  # a topic without subscription changes nothing
    assert group.causes[1:] == ["topic t went from 4 to 5 partitions", "topic later appeared", "topic t was deleted"]


def test_a_regular_expression_matches_new_topics() -> None:
    """It can be combined with names, and it never matches internal topics."""
    group = ConsumerScript({"orders-eu": 1, "other": 1, "__consumer_offsets": 50})
    a = group.joins("a", ["other"], topic_regex="orders-.*")
    assert a.owned == partitions("orders-eu", 0) | partitions("other", 0)
    group.has_topics(**{"orders-eu": 1, "orders-us": 1, "other": 1})
    assert a.heartbeats().owned == partitions("orders-eu", 0) | partitions("orders-us", 0) | partitions("other", 0)
    a.heartbeats(topic_regex="")
    assert a.heartbeats().owned == partitions("other", 0)
    assert a.heartbeats(topic_regex=".*").owned == partitions("orders-eu", 0) | partitions("orders-us", 0) | partitions(
        "other", 0
    )
    assert group.group.is_subscribed_to("orders-us")


@dataclass
class Rights:
    """The topics that the client of a member may describe."""

    topics: set[str]
    holder: str = "alice"
    rules: object = None
    asked: int = 0

    def denied(self, names: Iterable[str]) -> frozenset[str]:
        """Return the other ones."""
        self.asked += 1
        return frozenset(names) - self.topics

    def become(self, *topics: str) -> None:
        """Change, for all who ask from now on."""
        self.topics, self.rules = set(topics), object()


def test_a_regular_expression_matches_only_what_its_client_may_describe() -> None:
    """Members with the same expression and other rights read other topics; nobody reads what nobody may describe."""
    group = ConsumerScript({"orders-eu": 2, "orders-us": 2, "orders-secret": 2})
    alice, bob = Rights({"orders-eu", "orders-us"}), Rights({"orders-us"}, holder="bob")
    a = group.joins("a", [], topic_regex="orders-.*", describing=alice)
    assert a.owned == partitions("orders-eu", 0, 1) | partitions("orders-us", 0, 1)
    b = group.joins("b", [], topic_regex="orders-.*", describing=bob)
    for client in (a, a, b):
        client.heartbeats(describing=client.fields["describing"])
    assert b.owned == partitions("orders-us", 0, 1)
    assert a.owned == partitions("orders-eu", 0, 1)
    assert not group.group.is_subscribed_to("orders-secret")


def test_members_read_other_topics_when_rights_change() -> None:
    """At the next heartbeat, before it is answered; and nothing is asked while nothing changes."""
    group = ConsumerScript({"orders-eu": 1, "orders-us": 1})
    rights = Rights({"orders-eu"})
    a = group.joins("a", [], topic_regex=".*", describing=rights)
    assert a.owned == partitions("orders-eu", 0)
    asked = rights.asked
    a.heartbeats(describing=rights)
    assert (rights.asked, group.group.epoch) == (asked, 1)
    rights.become("orders-us")
    a.heartbeats(describing=rights)
    assert a.owned == NO_PARTITIONS
    assert a.heartbeats(describing=rights).owned == partitions("orders-us", 0)
    group.has_topics(**{"orders-eu": 1, "orders-us": 1, "hidden": 1})
    assert a.heartbeats(describing=rights).owned == partitions("orders-us", 0)
    rights.become("orders-us", "hidden")
    assert a.heartbeats(describing=rights).owned == partitions("orders-us", 0) | partitions("hidden", 0)
    assert a.heartbeats(describing=Rights({"hidden"}, "bob", rights.rules)).owned == partitions("hidden", 0)


def test_a_new_coordinator_tells_nobody_more_than_the_old_one() -> None:
    """It learns the rights of a member with its first heartbeat; until then the group reads nothing new."""
    group = ConsumerScript({"orders-eu": 1, "orders-us": 1, "secret": 1})
    alice, bob = Rights({"orders-eu"}), Rights({"orders-us"}, holder="bob")
    a = group.joins("a", [], topic_regex=".*", describing=alice)
    b = group.joins("b", [], topic_regex=".*", describing=bob)
    for client in (a, b, a, b):
        client.heartbeats(describing=client.fields["describing"])
    assert (a.owned, b.owned) == (partitions("orders-eu", 0), partitions("orders-us", 0))
    group.moves()
    for client in (a, b, a, b):
        client.heartbeats(describing=client.fields["describing"])
        assert (a.owned, b.owned) == (partitions("orders-eu", 0), partitions("orders-us", 0))
    assert not group.group.is_subscribed_to("secret")


def test_an_invalid_regular_expression_is_refused() -> None:
    """The member stays unchanged."""
    group = ConsumerScript()
    assert group.joins("a", topic_regex="(").error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert group.group.is_empty
    b = group.joins("b")
    b.heartbeats(topic_regex="a**")
    assert b.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert b.heartbeats().error is ErrorCode.NONE
    assert group.group.epoch == 1


def test_a_full_group_accepts_no_new_member() -> None:
    """Existing members may join again."""
    group = ConsumerScript(max_size=1)
    a = group.joins("a")
    assert group.joins("b").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert a.joins().error is ErrorCode.NONE


def test_members_choose_the_assignor_by_votes() -> None:
    """Without votes, the first assignor of the configuration is used."""
    group = ConsumerScript({"t": 3, "u": 3})
    a = group.joins("a", ["t", "u"])
    assert group.group.assignor_name == "uniform"
    b = group.joins("b", ["t", "u"], server_assignor="range")
    assert group.group.assignor_name == "range"
    for client in (a, a, b):
        client.heartbeats()
    assert a.owned == partitions("t", 0, 1) | partitions("u", 0, 1)


def test_a_member_without_an_id_is_given_one() -> None:
    """Clients that use version 0 of the API rely on this."""
    group = ConsumerScript()
    assert group.joins("").member_id == "new-1"


def test_members_keep_their_partitions_when_the_coordinator_moves() -> None:
    """A rebalance continues where it was, and sessions restart."""
    group = ConsumerScript({"t": 4, "orders": 1})
    a, b = group.joins("a", topic_regex="orders"), group.joins("b", instance_id="i")
    a.heartbeats()
    group.passes(40_000)
    group.moves()
    assert group.state == "Reconciling"
    assert group.causes == ["the coordinator moved to this broker"]
    group.passes(40_000)
    a.heartbeats()
    b.heartbeats(instance_id="i")
    assert (group.state, group.group.epoch, a.error, b.error) == ("Stable", 2, ErrorCode.NONE, ErrorCode.NONE)
    assert len(a.owned) + len(b.owned) == 5


def test_no_reply_is_sent_before_the_change_is_stored() -> None:
    """This holds for the member that caused the change and for later requests of others."""
    group = ConsumerScript()
    a = group.joins("a")
    group.is_slow = True
    b = group.joins("b")
    again = len(a.replies)
    a.sends(owned=None)
    assert (b.replies, len(a.replies)) == ([], again)
    group.writes_end()
    assert (b.error, len(a.replies)) == (ErrorCode.NONE, again + 1)


def test_a_failed_write_is_repeated_with_the_next_change() -> None:
    """The member gets an error and tries again."""
    group = ConsumerScript()
    group.write_error = ErrorCode.REBALANCE_IN_PROGRESS
    a = group.joins("a")
    assert (a.error, group.stored) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, {})
    group.write_error = ErrorCode.NONE
    assert a.joins().owned == partitions("t", 0, 1, 2, 3)
    stored = group.read_back()
    assert stored is not None
    assert (stored.members, stored.targets) == (group.group.members, group.group.targets)


def test_a_deleted_group_leaves_nothing_behind() -> None:
    """There is a tombstone for each of its keys, and members that leave get theirs at once."""
    group = ConsumerScript()
    a = group.joins("a")
    a.leaves()
    assert {record.key for record in group.group.tombstones()} == group.stored.keys()
    b = group.joins("b")
    assert {record.key for record in group.group.tombstones()} == group.stored.keys()
    assert all(record.value is None for record in group.group.tombstones())
    assert b.error is ErrorCode.NONE


def test_offsets_are_for_members_at_their_epoch() -> None:
    """Other clients may commit only to an empty group, and may read at any time."""
    group = ConsumerScript()
    check_commit, check_fetch = group.group.check_commit, group.group.check_fetch
    assert check_commit("", None, -1, 0) is ErrorCode.NONE
    a = group.joins("a")
    assert check_commit("", None, -1, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert check_commit("a", None, a.epoch, 0) is ErrorCode.NONE
    assert check_commit("a", None, a.epoch - 1, 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert check_commit("b", None, a.epoch, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert check_fetch(None, -1) is ErrorCode.NONE
    assert check_fetch("a", a.epoch) is ErrorCode.NONE
    assert check_fetch("a", a.epoch + 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert check_fetch("b", 0) is ErrorCode.UNKNOWN_MEMBER_ID
    group.group.close(ErrorCode.NOT_COORDINATOR)
    assert check_commit("a", None, a.epoch, 0) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert check_fetch(None, -1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert a.heartbeats().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.state == "Dead"


def test_a_transaction_is_committed_by_members_at_their_epoch_and_by_clients_that_name_none() -> None:
    """The request knows generations only: an old epoch is an old generation."""
    group = ConsumerScript()
    a = group.joins("a")
    check = group.group.check_transactional_commit
    assert check("", None, -1) is ErrorCode.NONE
    assert check("a", None, a.epoch) is ErrorCode.NONE
    assert check("a", None, a.epoch - 1) is ErrorCode.ILLEGAL_GENERATION
    assert check("b", None, a.epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    group.group.close(ErrorCode.NOT_COORDINATOR)
    assert check("a", None, a.epoch) is ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("field", ["rack_id", "server_assignor"])
def test_a_value_is_kept_until_the_member_sends_another(field: str) -> None:
    """Null in a heartbeat means unchanged."""
    group = ConsumerScript()
    a = group.joins("a", **{field: "range"})
    a.heartbeats()
    assert getattr(group.group.members["a"], field) == "range"
    assert group.group.epoch == 1


def test_json_shows_the_partitions_of_each_member() -> None:
    """It includes partitions that move from one member to another."""
    group = ConsumerScript()
    a, _ = group.joins("a", instance_id="i"), group.joins("b")
    a.heartbeats()
    shown = group.group.as_json()
    assert (shown["epoch"], shown["assignment_epoch"], shown["assignor"]) == (2, 2, "uniform")
    first, second = shown["members"]
    assert (first["id"], first["instance_id"], first["client_host"], first["epoch"]) == ("a", "i", "10.0.0.5", 1)
    assert (first["state"], first["assignment"], first["revoking"]) == (
        "UNREVOKED_PARTITIONS",
        {"t": [0, 1]},
        {"t": [2, 3]},
    )
    assert (second["state"], second["assignment"], second["target"]) == ("UNRELEASED_PARTITIONS", {}, {"t": [2, 3]})
    group.has_topics(other=1)
    a.heartbeats()
    assert group.group.as_json()["members"][0]["revoking"] == {b"t".rjust(16, b"\0").hex(): [0, 1]}
