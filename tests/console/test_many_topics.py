"""A cluster with ten thousand topics: a page of the list costs as much as its rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

from ottla.client.net.metadata import BrokerAddress, PartitionInfo, TopicInfo
from ottla.console.api.topics import TopicsQuery, list_topics
from ottla.console.cluster.rates import Rates
from ottla.console.cluster.view import ClusterState, LogDirs, TopicOffsets
from ottla.console.web.call import Call

COUNT = 10_000


class ManyTopics:
    """A view of such a cluster, which notes the topics whose leaders are asked."""

    def __init__(self) -> None:
        partitions = {0: PartitionInfo(0, 1, 0, (1,), (1,))}
        topics = {name: TopicInfo(name, partitions=partitions) for name in (f"topic-{n:05d}" for n in range(COUNT))}
        self._state = ClusterState(0, "id", 1, {1: BrokerAddress(1, "localhost", 9092)}, topics, ())
        sizes = {name: number for number, name in enumerate(topics)}
        self._log_dirs = LogDirs(0, [], (), {}, sizes)
        self.rates = Rates()
        self.asked: list[str] = []

    async def state(self) -> ClusterState:
        return self._state

    async def log_dirs(self) -> LogDirs:
        return self._log_dirs

    async def groups_by_topic(self) -> Mapping[str, list[str]]:
        return {}

    async def offsets(self, topics: Collection[TopicInfo]) -> dict[str, TopicOffsets]:
        self.asked += [topic.name for topic in topics]
        return {topic.name: TopicOffsets({0: 0}, {0: 7}) for topic in topics}


class ManyTopicsCall:
    """A request of a user who sees them."""

    def __init__(self, view: ManyTopics) -> None:
        self._view = view

    async def view(self) -> ManyTopics:
        return self._view


async def test_leaders_are_asked_only_about_the_topics_of_a_page() -> None:
    """Also if they are sorted by something else than their names."""
    view = ManyTopics()
    call: Any = cast(Call, ManyTopicsCall(view))
    answer = await list_topics(call, TopicsQuery(limit=3, sort="-size"))
    assert [row.name for row in answer.items] == view.asked == ["topic-09999", "topic-09998", "topic-09997"]
    assert (answer.total, answer.next, answer.items[0].records) == (COUNT, "topic-09997", "7")
    answer = await list_topics(call, TopicsQuery(limit=3, sort="-size", after=answer.next))
    assert view.asked[3:] == ["topic-09996", "topic-09995", "topic-09994"]
