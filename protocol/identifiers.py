"""Names, and special values of ids, that mean the same in every room."""

from __future__ import annotations

from typing import Final, NamedTuple

# Subscribing to `.*` does not include these.
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})

# Instead of the id of a partition's leader.
NO_LEADER: Final = -1
# Instead of the id of a replica: the request comes from a consumer.
CONSUMER_REPLICA_ID: Final = -1
# Instead of the epoch of a broker's registration: the registration has ended, or the sender does not know it.
UNKNOWN_BROKER_EPOCH: Final = -1
NO_OFFSET: Final = -1
# Instead of the generation of a group: its sender is not a member.
NO_GENERATION: Final = -1


class TopicPartition(NamedTuple):
    """A partition of a topic; as text, the name of its directory."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
