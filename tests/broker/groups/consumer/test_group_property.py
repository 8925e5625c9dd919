"""Whatever happens in whatever order: no partition has two owners, and all get to where they are to be."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.broker.groups.consumer.script import Client, ConsumerScript
from tests.kit.examples import examples

from ottla.broker.groups.consumer.assignors import NO_PARTITIONS, PartitionSet, TopicIdPartition
from ottla.broker.groups.consumer.messages import ConsumerHeartbeatReply
from ottla.protocol.errors import ErrorCode

NAMES = "abcd"


class SlowClient(Client):
    """A client whose answers may be lost, and that takes its time to give partitions back."""

    is_lossy = False
    is_member = False
    # What it was told to have and has not got to yet.
    told: PartitionSet | None = None

    def takes(self, reply: ConsumerHeartbeatReply) -> None:
        """Take an answer, or do not; what it must give back it reads until `settles`."""
        if self.is_lossy:
            return
        self.replies.append(reply)
        if reply.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID):
            self.gives_up()
        elif reply.error is ErrorCode.NONE and reply.member_epoch >= 0:
            self.is_member = True
            self.epoch = reply.member_epoch
            if reply.assignment is not None:
                self.told = reply.assignment
                self.owned |= self.told

    def gives_up(self) -> None:
        """Stop reading, as one must that is not a member any more."""
        self.is_member, self.owned, self.told = False, NO_PARTITIONS, None

    def settles(self) -> None:
        """Give back what it was told to."""
        if self.told is not None:
            self.owned &= self.told

    def beats(self) -> None:
        """Join or heartbeat, saying everything, as one does that is not sure that it was heard."""
        if self.is_member:
            self.heartbeats(rebalance_timeout_ms=60_000, instance_id=self.fields.get("instance_id"), **self.said())
        else:
            self.joins()

    def said(self) -> dict[str, Any]:
        """What it reads."""
        return {"topic_names": self.fields["topic_names"]}


names = st.sampled_from(NAMES)
# What may happen: the name of a method of `World`, and what it is given.
happenings = st.one_of(
    st.tuples(st.just("beats"), names, st.sampled_from([False, False, False, True])),
    st.tuples(st.just("beats"), names, st.just(False)),
    st.tuples(st.just("settles"), names),
    st.tuples(st.just("leaves"), names),
    st.tuples(st.just("reads_others"), names, st.lists(st.sampled_from("tu"), unique=True)),
    st.tuples(st.just("topics_change"), st.integers(0, 5), st.integers(0, 3)),
    st.tuples(st.just("moves")),
    st.tuples(st.just("writes_get_slow")),
    st.tuples(st.just("writes_end")),
)


class World:
    """Members come and go, answers are lost, topics change, the coordinator moves."""

    def __init__(self, assignor: str) -> None:
        self.script = ConsumerScript({"t": 3, "u": 2}, assignors=(assignor,), session_timeout_ms=10**9)
        self.clients = {
            name: SlowClient(
                self.script, name, {"topic_names": ("t", "u"), "instance_id": f"i{name}" if name == "d" else None}
            )
            for name in NAMES
        }

    def beats(self, name: str, is_lossy: bool) -> None:
        """One joins or heartbeats."""
        client = self.clients[name]
        client.is_lossy = is_lossy
        client.beats()

    def settles(self, name: str) -> None:
        """One gives back what it was told to."""
        self.clients[name].settles()

    def leaves(self, name: str) -> None:
        """One leaves, the static one for a while."""
        client = self.clients[name]
        if client.is_member:
            client.is_lossy = False
            client.leaves(-2 if client.fields["instance_id"] else -1)
            client.gives_up()

    def reads_others(self, name: str, topics: list[str]) -> None:
        """One changes its subscription."""
        self.clients[name].fields["topic_names"] = tuple(topics)

    def topics_change(self, t: int, u: int) -> None:
        """Topics get partitions, or go."""
        self.script.has_topics(**{name: size for name, size in (("t", t), ("u", u)) if size})

    def moves(self) -> None:
        """Another broker coordinates."""
        if self.script.stored:
            self.script.moves()

    def writes_get_slow(self) -> None:
        """The log takes its time."""
        self.script.is_slow = True

    def writes_end(self) -> None:
        """The log has caught up."""
        self.script.is_slow = False
        self.script.writes_end()

    def nobody_shares_a_partition(self) -> None:
        """What clients read is theirs alone."""
        seen: dict[TopicIdPartition, str] = {}
        for name, client in self.clients.items():
            for partition in client.owned:
                assert partition not in seen, (partition, name, seen[partition])
                seen[partition] = name

    def all_get_what_they_are_to_have(self) -> None:
        """When all keep heartbeating, in a number of rounds that the number of members bounds."""
        self.writes_end()
        for _ in range(2 * len(NAMES) + 4):
            for client in self.clients.values():
                client.is_lossy = False
                client.settles()
                client.beats()
                self.nobody_shares_a_partition()
        group = self.script.group
        assert self.script.state == "Stable"
        assert {name: client.owned for name, client in self.clients.items()} == group.targets
        stored = self.script.read_back()
        assert stored is not None
        assert (stored.members, stored.targets, stored.epoch) == (group.members, group.targets, group.epoch)


@examples(150)
@given(assignor=st.sampled_from(["uniform", "range"]), history=st.lists(happenings, max_size=50))
def test_no_partition_has_two_owners_and_all_ends_well(assignor: str, history: list[tuple[Any, ...]]) -> None:
    """Owned is what a client reads: what it was told to have, and what it has not given back yet."""
    world = World(assignor)
    for name, *arguments in history:
        getattr(world, name)(*arguments)
        world.nobody_shares_a_partition()
    world.all_get_what_they_are_to_have()
