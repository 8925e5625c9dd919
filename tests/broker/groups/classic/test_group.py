"""Scenarios of a classic group: members join, fail and return. Each step checks the state and the replies."""

from __future__ import annotations

from typing import Any

from tests.broker.groups.classic.script import RANGE, Script

from ottla.broker.groups.classic.group import ClassicGroup
from ottla.protocol.errors import ErrorCode


def test_two_members_join_and_one_fails_and_returns() -> None:
    """The normal life cycle of a group."""
    group = Script(initial_rebalance_delay_ms=3_000)

    a = group.joins("a")
    assert (group.state, a.reply) == ("PreparingRebalance", None)
    group.passes(1_000)
    b = group.joins("b")
    group.passes(2_000)  # the delay is over, but a member joined in the meantime, so the group waits once more
    assert (group.state, a.reply) == ("PreparingRebalance", None)
    group.passes(3_000)
    assert group.state == "CompletingRebalance"
    assert (a.reply.generation, b.reply.generation) == (1, 1)
    assert a.reply.leader_id == b.reply.leader_id == a.reply.member_id == "a-1"
    assert [member.member_id for member in a.reply.members] == ["a-1", "b-2"]
    assert b.reply.members == ()

    first = group.syncs(b.reply)
    assert first.replies == []  # the leader has not sent it yet
    assert group.heartbeats(b.reply) is ErrorCode.NONE
    second = group.syncs(a.reply, {"a-1": b"0,1", "b-2": b"2,3"})
    assert (group.state, first.reply.assignment, second.reply.assignment) == ("Stable", b"2,3", b"0,1")
    assert [member.assignment for member in group.stored[-1].members] == [b"0,1", b"2,3"]

    for _ in range(4):
        group.passes(4_000)
        assert group.heartbeats(a.reply) is (
            ErrorCode.NONE if group.now_ms < 16_000 else ErrorCode.REBALANCE_IN_PROGRESS
        )
    assert group.state == "PreparingRebalance"  # b has been silent for its ten seconds
    assert "b-2 missed heartbeats for 10 s from /10.0.0.5" in group.group.timeline.rebalances[-1].cause
    a = group.joins("a", "a-1")
    assert (group.state, a.reply.generation, len(a.reply.members)) == ("CompletingRebalance", 2, 1)
    group.syncs(a.reply, {"a-1": b"0,1,2,3"})

    b = group.joins("b", "b-2")
    assert b.reply.error is ErrorCode.UNKNOWN_MEMBER_ID  # the group has removed it
    b = group.joins("b")
    assert (group.state, b.reply) == ("PreparingRebalance", None)
    assert group.heartbeats(a.reply) is ErrorCode.REBALANCE_IN_PROGRESS
    a = group.joins("a", "a-1")
    assert (a.reply.generation, b.reply.generation, group.state) == (3, 3, "CompletingRebalance")


def test_the_last_member_leaves() -> None:
    """The group becomes empty in a new generation, which is stored."""
    group = Script()
    (a,) = group.stable("a")
    assert group.leaves(a.member_id) is ErrorCode.NONE
    assert (group.state, group.group.generation, group.group.leader_id) == ("Empty", 2, None)
    assert (group.stored[-1].generation, group.stored[-1].members) == (2, ())
    assert group.heartbeats(a) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_join_again_is_removed() -> None:
    """The others wait for it for the longest rebalance timeout of all members."""
    group = Script()
    a, b = group.stable("a", "b")
    again = group.joins("a", a.member_id, protocols=(("range", b"other topics"),))
    assert (group.state, again.replies) == ("PreparingRebalance", [])
    for _ in range(14):
        group.passes(4_000)
        group.heartbeats(b)
    assert again.replies == []
    group.passes(4_000)
    assert again.reply.generation == a.generation + 1
    assert [member.member_id for member in again.reply.members] == [a.member_id]


def test_a_static_member_restarts_without_a_rebalance() -> None:
    """It takes over its old place, and requests with its old member id are fenced."""
    group = Script()
    first = group.joins("a", instance_id="i1")
    joined = first.reply
    group.syncs(joined, {joined.member_id: b"all"}, instance_id="i1")
    assert group.state == "Stable"

    back = group.joins("a", instance_id="i1")
    assert (group.state, back.reply.generation) == ("Stable", 1)
    assert back.reply.member_id != joined.member_id
    assert (back.reply.leader_id, back.reply.skip_assignment) == (back.reply.member_id, True)
    assert group.syncs(back.reply, instance_id="i1").reply.assignment == b"all"
    assert group.heartbeats(joined, "i1") is ErrorCode.FENCED_INSTANCE_ID
    assert group.stored[-1].members[0].member_id == back.reply.member_id


def test_an_older_static_leader_is_not_told_that_it_leads() -> None:
    """A client that cannot skip the assignment would compute a new one."""
    group = Script()
    joined = group.joins("a", instance_id="i1").reply
    group.syncs(joined, {joined.member_id: b"all"}, instance_id="i1")
    back = group.joins("a", instance_id="i1", supports_skip_assignment=False).reply
    assert (back.leader_id, back.members, back.skip_assignment) == (joined.member_id, (), False)


def test_an_absent_static_member_keeps_its_place_until_its_session_expires() -> None:
    """A rebalance of the others does not remove it."""
    group = Script()
    waiting = group.joins("s", instance_id="i1", session_timeout_ms=1_000_000)
    static = waiting.reply
    group.syncs(static, {static.member_id: b"x"}, instance_id="i1")
    other = group.joins("b")
    group.passes(60_000)
    assert other.reply.generation == 2
    assert len(other.reply.members) == 2
    assert other.reply.leader_id == other.reply.member_id


def test_an_assignment_that_cannot_be_stored_begins_a_rebalance() -> None:
    """No member receives an assignment that a new coordinator would not know."""
    group = Script()
    a = group.joins("a").reply
    group.write_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.syncs(a, {a.member_id: b"x"}).reply.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.state == "PreparingRebalance"


def test_a_member_that_joins_while_the_assignment_is_stored_is_in_the_next_generation() -> None:
    """The stored assignment of the old generation is sent to no member."""
    group = Script()
    a = group.joins("a").reply
    group.is_slow = True
    first = group.syncs(a, {a.member_id: b"x"})
    b = group.joins("b")
    assert first.reply.error is ErrorCode.REBALANCE_IN_PROGRESS
    group.writes_end()
    assert (group.state, b.reply) == ("PreparingRebalance", None)
    again = group.joins("a", a.member_id)
    assert (again.reply.generation, b.reply.generation) == (2, 2)


def test_a_new_coordinator_keeps_the_members() -> None:
    """They need not join again, and their sessions restart."""
    group = Script()
    a, b = group.stable("a", "b")
    group.group = ClassicGroup.load(group.group.snapshot(5), group.config, group.new_id, group.now_ms)
    assert (group.state, group.group.generation) == ("Stable", a.generation)
    assert group.heartbeats(a) is ErrorCode.NONE
    assert group.syncs(b).reply.assignment == b.member_id.encode()
    assert group.group.timeline.rebalances[-1].cause == "the coordinator moved to this broker"
    again = group.joins("b", b.member_id, protocols=RANGE)
    assert again.reply.generation == b.generation  # nothing has changed for it


def test_sessions_may_expire_at_the_same_time_as_the_rebalance_timeout() -> None:
    """Removing the first silent member begins the next generation, which drops the other silent members."""
    group = Script()
    times: dict[str, Any] = {"session_timeout_ms": 6_000, "rebalance_timeout_ms": 5_000}
    first = group.joins("a", **times)
    second = group.joins("b", **times)
    first = group.joins("a", first.reply.member_id, **times)
    group.syncs(first.reply)
    group.syncs(second.reply)
    group.passes(1_000)
    third = group.joins("c", **times)
    group.passes(5_000)
    assert (group.state, third.reply.generation) == ("CompletingRebalance", 3)
    assert list(group.group.members) == [third.reply.member_id]
