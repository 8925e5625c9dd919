"""Delaying a response until this broker's metadata shows the change: new topics with leaders, deleted topics gone.

A change of a topic is written to ZooKeeper. The controller acts on it and updates the metadata of all brokers. A client
that is answered only after this broker's update sees the new state in its next Metadata request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from typing import Final

from ottla.broker.cluster.metadata import MetadataSnapshot
from ottla.broker.common.purgatory import DelayedOperation
from ottla.broker.requests.request import Delayed, Request, Respond
from ottla.broker.requests.services import GroupServices, TopicServices
from ottla.protocol.message import Message

Condition = Callable[[MetadataSnapshot], bool]

# What a request waits under that waits for brokers. No topic has this name; every UpdateMetadata checks it.
BROKERS: Final = ""


def has_brokers(snapshot: MetadataSnapshot) -> bool:
    """Whether a controller has told this broker of any broker."""
    return bool(snapshot.brokers)


def has_leaders(topic: str, partitions: Collection[int]) -> Condition:
    """Return the condition that each of these partitions has a leader."""

    def is_met(snapshot: MetadataSnapshot) -> bool:
        known = snapshot.topic(topic)
        return known is not None and all(
            (partition := known.partitions.get(index)) is not None and partition.leader >= 0 for index in partitions
        )

    return is_met


def is_gone(topic: str, topic_id: bytes | None) -> Condition:
    """Return the condition that the topic is gone; with an id, a new topic of the same name does not count."""

    def is_met(snapshot: MetadataSnapshot) -> bool:
        known = snapshot.topic(topic)
        return known is None or (topic_id is not None and known.id != topic_id)

    return is_met


def answer_when_met(
    request: Request[TopicServices | GroupServices],
    timeout_ms: int,
    conditions: Mapping[str, Condition],
    answer: Callable[[Set[str]], Message],
) -> Message | Delayed:
    """Answer when all conditions (by topic) are met or the time is over. `answer` gets the topics that are late.

    As in Kafka, a timeout of 0 or less is answered at once, with all topics late.
    """
    if not conditions or timeout_ms <= 0:
        return answer(conditions.keys())
    return _Waiting(request, timeout_ms, conditions, answer)


class _Waiting(DelayedOperation):
    """Waits under the names of its topics, which are checked after each UpdateMetadata."""

    __slots__ = ("_answer", "_conditions", "_met", "_request", "_respond", "_timeout_ms")

    def __init__(
        self,
        request: Request[TopicServices | GroupServices],
        timeout_ms: int,
        conditions: Mapping[str, Condition],
        answer: Callable[[Set[str]], Message],
    ) -> None:
        super().__init__()
        self._request = request
        self._timeout_ms = timeout_ms
        self._conditions = list(conditions.items())
        # The number of conditions, from the first on, that were met. They are not checked again, so a request for many
        # topics checks each of them about once, not once for every topic that changes.
        self._met = 0
        self._answer = answer
        self._respond: Respond | None = None

    def is_satisfied(self) -> bool:
        """Whether all conditions are met."""
        snapshot = self._request.services.metadata.snapshot
        met = self._met
        while met < len(self._conditions) and self._conditions[met][1](snapshot):
            met += 1
        # Another thread may have written a larger number; then some conditions are just checked twice.
        self._met = met
        return met == len(self._conditions)

    def on_complete(self, *, expired: bool) -> None:
        """Answer with the topics that are late."""
        assert self._respond is not None
        self._respond(lambda: self._answer(self._late() if expired else set()))

    def _late(self) -> set[str]:
        snapshot = self._request.services.metadata.snapshot
        return {topic for topic, is_met in self._conditions[self._met :] if not is_met(snapshot)}

    def then(self, respond: Respond) -> None:
        """Wait in purgatory, then respond."""
        self._respond = respond
        topics = [topic for topic, _ in self._conditions]
        self._request.services.delayed_topics.watch(self, topics, self._timeout_ms / 1000)
