"""For any sequence of events, no partition has two owners, and all members reach their target assignment."""

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
    """A client that may lose replies, and that does not revoke partitions at once."""

    is_lossy = False
    is_member = False
    # The last assignment that it received.
    told: PartitionSet | None = None

    def takes(self, reply: ConsumerHeartbeatReply) -> None:
        """Handle a reply, or lose it. Partitions to revoke stay owned until `settles`."""
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
        """Stop reading, as a removed member must."""
        self.is_member, self.owned, self.told = False, NO_PARTITIONS, None

    def settles(self) -> None:
        """Revoke the partitions that are not in the last assignment."""
        if self.told is not None:
            self.owned &= self.told

    def beats(self) -> None:
        """Join, or send a full heartbeat."""
        if self.is_member:
            self.heartbeats(rebalance_timeout_ms=60_000, instance_id=self.fields.get("instance_id"), **self.said())
        else:
            self.joins()

    def said(self) -> dict[str, Any]:
        """Return the subscription."""
        return {"topic_names": self.fields["topic_names"]}


names = st.sampled_from(NAMES)
# The events: the name of a method of `World`, and its arguments.
events = st.one_of(
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
    """A group whose members come and go, whose replies get lost, whose topics change, and whose coordinator moves."""

    def __init__(self, assignor: str) -> None:
        self.script = ConsumerScript({"t": 3, "u": 2}, assignors=(assignor,), session_timeout_ms=10**9)
        self.clients = {
            name: SlowClient(
                self.script, name, {"topic_names": ("t", "u"), "instance_id": f"i{name}" if name == "d" else None}
            )
            for name in NAMES
        }

    def beats(self, name: str, is_lossy: bool) -> None:
        """A client joins or sends a heartbeat."""
        client = self.clients[name]
        client.is_lossy = is_lossy
        client.beats()

    def settles(self, name: str) -> None:
        """A client revokes partitions."""
        self.clients[name].settles()

    def leaves(self, name: str) -> None:
        """A client leaves; the static one leaves temporarily."""
        client = self.clients[name]
        if client.is_member:
            client.is_lossy = False
            client.leaves(-2 if client.fields["instance_id"] else -1)
            client.gives_up()

    def reads_others(self, name: str, topics: list[str]) -> None:
        """A client changes its subscription."""
        self.clients[name].fields["topic_names"] = tuple(topics)

    def topics_change(self, t: int, u: int) -> None:
        """Topics get other numbers of partitions, or are deleted."""
        self.script.has_topics(**{name: size for name, size in (("t", t), ("u", u)) if size})

    def moves(self) -> None:
        """Another broker becomes the coordinator."""
        if self.script.stored:
            self.script.moves()

    def writes_get_slow(self) -> None:
        """From now on writes do not finish."""
        self.script.is_slow = True

    def writes_end(self) -> None:
        """All open writes finish."""
        self.script.is_slow = False
        self.script.writes_end()

    def check_owners(self) -> None:
        """Check that no partition has two owners."""
        seen: dict[TopicIdPartition, str] = {}
        for name, client in self.clients.items():
            for partition in client.owned:
                assert partition not in seen, (partition, name, seen[partition])
                seen[partition] = name

    def all_reach_their_targets(self) -> None:
        """Check that all clients reach their targets in a bounded number of rounds of heartbeats."""
        self.writes_end()
        for _ in range(2 * len(NAMES) + 4):
            for client in self.clients.values():
                client.is_lossy = False
                client.settles()
                client.beats()
                self.check_owners()
        group = self.script.group
        assert self.script.state == "Stable"
        assert {name: client.owned for name, client in self.clients.items()} == group.targets
        stored = self.script.read_back()
        assert stored is not None
        assert (stored.members, stored.targets, stored.epoch) == (group.members, group.targets, group.epoch)


@examples(150)
@given(assignor=st.sampled_from(["uniform", "range"]), history=st.lists(events, max_size=50))
def test_no_partition_has_two_owners_and_all_reach_their_targets(assignor: str, history: list[tuple[Any, ...]]) -> None:
    """A client owns the partitions of its last assignment, and those that it has not revoked yet."""
    world = World(assignor)
    for name, *arguments in history:
        getattr(world, name)(*arguments)
        world.check_owners()
    world.all_reach_their_targets()
