"""Small parts of the console: values that are kept for a while, rates, login attempts, rights, pages of lists."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from tests.kit.clock import FakeClock

from ottla.client.admin.admin import Admin
from ottla.client.admin.security_results import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.client.net.metadata import BrokerAddress, PartitionInfo, TopicInfo
from ottla.console.api.brokers import safe_to_stop
from ottla.console.api.changes import command_line
from ottla.console.api.paging import matching, ordered, page
from ottla.console.api.rights import RightsOptions, explained
from ottla.console.cluster.fresh import Fresh
from ottla.console.cluster.rates import Rates
from ottla.console.cluster.rebalances import advice_for
from ottla.console.cluster.view import ClusterState, ClusterView
from ottla.console.login.attempts import LoginAttempts
from ottla.console.problems import Problem

# Values that are kept for a while.


class Source:
    """Counts how often it is read, and fails on demand."""

    def __init__(self) -> None:
        self.reads = 0
        self.error: Exception | None = None
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def read(self) -> int:
        self.reads += 1
        number = self.reads
        await self.may_end.wait()
        if self.error is not None:
            raise self.error
        return number


async def test_callers_at_once_share_one_read() -> None:
    """Ten pages cost the cluster as much as one; one that goes away does not fail the others."""
    source = Source()
    source.may_end.clear()
    fresh = Fresh(source.read, max_age_s=1, clock=FakeClock(0.0))
    waiting = [asyncio.create_task(fresh.get()) for _ in range(10)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    source.may_end.set()
    assert await asyncio.gather(*waiting[1:]) == [1] * 9


async def test_a_read_that_began_before_a_change_is_not_kept() -> None:
    """Whoever asks after the change gets what is read after it."""
    source = Source()
    source.may_end.clear()
    fresh = Fresh(source.read, max_age_s=10, clock=FakeClock(0.0))
    before = asyncio.create_task(fresh.get())
    await asyncio.sleep(0)
    fresh.forget()
    after = asyncio.create_task(fresh.get())
    await asyncio.sleep(0)
    source.may_end.set()
    assert (await before, await after, await fresh.get()) == (1, 2, 2)
    await fresh.close()


async def test_pages_that_watch_the_same_share_one_answer() -> None:
    """Five tabs cost the cluster as much as one; a change is seen by all of them, and what is kept is limited."""
    async with aiohttp.ClientSession() as http:
        view = ClusterView(Admin(bootstrap_servers="127.0.0.1:1"), http)
        source = Source()
        answers = await asyncio.gather(*(view.shared("overview", source.read) for _ in range(5)))
        assert (answers, await view.shared("topic:a", source.read)) == ([1] * 5, 2)
        view.changed()
        assert await view.shared("overview", source.read) == 3
        for number in range(100):
            await view.shared(f"topic:{number}", source.read)
        assert await view.shared("overview", source.read) == 104
        await view.close()


async def test_an_old_value_is_returned_while_it_is_read_again() -> None:
    """The next caller gets the new one; a value that is much too old is waited for."""
    clock = FakeClock(0.0)
    source = Source()
    fresh = Fresh(source.read, max_age_s=1, stale_s=10, clock=clock)
    assert await fresh.get() == 1
    clock.now = 0.5
    assert (await fresh.get(), source.reads) == (1, 1)
    clock.now = 5.0
    assert await fresh.get() == 1
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (await fresh.get(), source.reads) == (2, 2)
    clock.now = 50.0
    assert await fresh.get() == 3
    fresh.forget()
    assert await fresh.get() == 4


async def test_a_costly_value_is_kept_longer() -> None:
    """Ten times the processor time that it took, but a quarter of a minute at most."""
    clock, processor = FakeClock(0.0), FakeClock(0.0)
    reads = 0

    async def read() -> int:
        nonlocal reads
        reads += 1
        processor.now += 0.5 if reads == 1 else 60.0
        return reads

    fresh = Fresh(read, max_age_s=1, clock=clock, processor_clock=processor)
    assert await fresh.get() == 1
    clock.now = 4.9
    assert await fresh.get() == 1
    clock.now = 5.1
    assert await fresh.get() == 2
    clock.now += 14.9
    assert await fresh.get() == 2
    clock.now += 0.2
    assert await fresh.get() == 3


async def test_a_failure_is_raised_and_the_next_caller_tries_again() -> None:
    """The last value is not shown for ever when reading fails."""
    source = Source()
    source.error = OSError("down")
    fresh = Fresh(source.read, max_age_s=1, clock=FakeClock(0.0))
    with pytest.raises(OSError, match="down"):
        await fresh.get()
    source.error = None
    assert await fresh.get() == 2


# Rates.


def test_a_rate_needs_two_samples_and_some_time() -> None:
    """Then it is the growth a second over the last half minute."""
    clock = FakeClock(0.0)
    rates = Rates(clock)
    assert rates.per_second("a", 100) is None
    clock.now = 0.5
    assert rates.per_second("a", 200) is None
    clock.now = 2.0
    assert rates.per_second("a", 500) == 200
    for second in range(3, 200):
        clock.now = float(second)
        rate = rates.per_second("a", 500 + (second - 2) * 10)
    assert rate == pytest.approx(10)


def test_a_counter_that_starts_again_is_no_negative_rate() -> None:
    """A broker that restarts counts from 0."""
    clock = FakeClock(0.0)
    rates = Rates(clock)
    rates.per_second("a", 1000)
    clock.now = 5.0
    assert rates.per_second("a", 10) is None
    clock.now = 7.0
    assert rates.per_second("a", 30) == 10


def test_rates_are_bounded() -> None:
    """What nobody looked at for longest is forgotten."""
    rates = Rates(FakeClock(0.0), keys_max=10)
    for number in range(100):
        rates.per_second(number, 1)
    assert len(rates._samples) == 10


# Login attempts.


def test_failed_logins_are_slowed() -> None:
    """Some are free; then the pause doubles up to a minute. A success or a quarter of an hour forgets them."""
    clock = FakeClock(0.0)
    attempts = LoginAttempts(5, clock)
    for _ in range(4):
        attempts.failed("bob")
        assert attempts.pause_s("bob") == 0
    pauses = []
    for _ in range(8):
        attempts.failed("bob")
        pauses.append(attempts.pause_s("bob"))
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert attempts.pause_s("carol") == 0
    clock.now = 60.0
    assert attempts.pause_s("bob") == 0
    attempts.failed("bob")
    assert attempts.pause_s("bob") == 60
    attempts.succeeded("bob")
    assert attempts.pause_s("bob") == 0
    for _ in range(6):
        attempts.failed("bob")
    clock.now += 1000
    attempts.failed("bob")
    assert attempts.pause_s("bob") == 0


def test_failed_logins_are_bounded() -> None:
    """Made-up names do not fill the memory."""
    attempts = LoginAttempts(5, FakeClock(0.0), kept_max=10)
    for number in range(100):
        attempts.failed(str(number))
    assert len(attempts._failures) == 10


# Rights.

_READ, _WRITE, _DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE


def acl(
    principal: str = "User:alice",
    operation: AclOperation = _READ,
    name: str = "orders",
    *,
    denies: bool = False,
    is_prefix: bool = False,
    host: str = "*",
) -> AclBinding:
    """An ACL on topics."""
    return AclBinding(
        principal,
        operation,
        ResourceType.TOPIC,
        name,
        PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
        AclPermissionType.DENY if denies else AclPermissionType.ALLOW,
        host,
    )


@pytest.mark.parametrize(
    ("acls", "operation", "is_allowed", "words"),
    [
        ([acl()], _READ, True, "because of an ACL for exactly that"),
        ([acl()], _WRITE, False, "no ACL allows"),
        ([acl()], _DESCRIBE, True, "it may read it, which includes describe"),
        ([acl(operation=AclOperation.ALL)], _WRITE, True, "it may do everything there"),
        ([acl("User:*")], _READ, True, "everybody may"),
        ([acl(name="*")], _READ, True, "the ACL is for all names"),
        ([acl(name="ord", is_prefix=True)], _READ, True, "the name begins with ord"),
        ([acl(name="ord")], _READ, False, "no ACL allows"),
        ([acl("User:bob")], _READ, False, "no ACL allows"),
        ([acl(), acl(denies=True)], _READ, False, "A denial is stronger"),
        ([acl(), acl("User:*", AclOperation.ALL, "*", denies=True)], _READ, False, "A denial is stronger"),
        ([acl(), acl(operation=_WRITE, denies=True)], _READ, True, "exactly that"),
        ([acl(host="10.0.0.1")], _READ, True, "exactly that"),
    ],
)
def test_rights_are_explained(acls: list[AclBinding], operation: AclOperation, is_allowed: bool, words: str) -> None:
    """As the brokers decide, and why."""
    options = RightsOptions(frozenset({"User:admin"}), False)
    verdict = explained(acls, options, "User:alice", "*", operation, ResourceType.TOPIC, "orders")
    assert (verdict.is_allowed, words in verdict.sentence) == (is_allowed, True), verdict.sentence


def test_options_decide_besides_acls() -> None:
    """Super users, no authorizer, and everybody where there is no ACL."""

    def ask(options: RightsOptions, principal: str = "User:alice", acls: tuple[AclBinding, ...] = ()) -> bool:
        return explained(acls, options, principal, "*", _READ, ResourceType.TOPIC, "orders").is_allowed

    usual = RightsOptions.of({"super.users": "User:admin;User:broker", "allow.everyone.if.no.acl.found": "false"})
    assert [ask(usual), ask(usual, "User:broker"), ask(usual.without_authorizer())] == [False, True, True]
    lenient = RightsOptions.of({"allow.everyone.if.no.acl.found": "true"})
    assert [ask(lenient), ask(lenient, acls=(acl("User:bob"),))] == [True, False]


# Lists.


def test_lists_are_searched_sorted_and_cut() -> None:
    """Patterns match whole names; other texts match anywhere, whatever their case."""
    names = ["b-2", "a-1", "B-1", "c[1]"]
    assert matching(names, "b-", str) == ["b-2", "B-1"]
    assert matching(names, "?-1", str) == ["a-1", "B-1"]
    assert matching(names, "c[*", str) == ["c[1]"]
    assert ordered(list(names), "-name", {"name": str.lower}) == ["c[1]", "b-2", "B-1", "a-1"]
    assert page(["a", "b", "c"], None, 2, str) == (["a", "b"], "b")
    assert page(["a", "b", "c"], "b", 2, str) == (["c"], None)
    assert page([], None, 2, str) == ([], None)
    with pytest.raises(Problem):
        page(["a"], "gone", 1, str)


# Stopping a broker.


def state(*partitions: tuple[list[int], list[int]], alive: tuple[int, ...] = (1, 2, 3)) -> ClusterState:
    """A cluster with one topic; each partition has replicas and an ISR, whose first broker leads."""
    topic = TopicInfo(
        "orders",
        partitions={
            number: PartitionInfo(number, isr[0] if isr else None, 0, tuple(replicas), tuple(isr))
            for number, (replicas, isr) in enumerate(partitions)
        },
    )
    brokers = {broker: BrokerAddress(broker, "localhost", 9092) for broker in alive}
    dead = tuple(sorted({each for replicas, _ in partitions for each in replicas}.difference(alive)))
    return ClusterState(0, "id", alive[0], brokers, {"orders": topic}, dead)


def test_a_broker_is_safe_to_stop_if_others_have_everything() -> None:
    """Enough replicas in sync stay, also for acks=all."""
    verdict = safe_to_stop(state(([1, 2, 3], [1, 2, 3])), 1, {"orders": 2})
    assert (verdict.is_safe, verdict.leaders_to_move) == (True, 1)
    assert verdict.reasons == ["It is the controller: another broker takes over. In a rolling restart, take it last."]
    assert safe_to_stop(state(([1, 2, 3], [1, 2, 3])), 2, {"orders": 2}).reasons == []


def test_a_broker_that_is_needed_is_not_safe_to_stop() -> None:
    """The only copy, or one too few for acks=all; a replica that is out of sync is not missed."""
    only = safe_to_stop(state(([1, 2], [1])), 1, {})
    assert (only.is_safe, only.unavailable) == (False, 1)
    few = safe_to_stop(state(([1, 2, 3], [1, 2])), 2, {"orders": 2})
    assert (few.is_safe, few.refusing) == (False, 1)
    assert safe_to_stop(state(([1, 2, 3], [1, 2])), 3, {"orders": 2}).is_safe
    assert not safe_to_stop(state(([1], [1]), alive=(1,)), 1, {}).is_safe


# Words.


def test_commands_can_be_pasted_whatever_is_in_them() -> None:
    """A name cannot end its command and begin another."""
    assert command_line("topic", "delete", "a b; rm -rf ~") == "ottla topic delete 'a b; rm -rf ~'"


def test_causes_of_rebalances_have_advice() -> None:
    """What the coordinator logs, and what to do about it."""
    assert "session.timeout.ms" in advice_for("member a missed heartbeats for 45 s from /127.0.0.1")
    assert advice_for("something new") == ""
