"""Names and special id values that mean the same everywhere."""

from __future__ import annotations

from typing import Final, NamedTuple

AUDIT_TOPIC: Final = "__ottla_audit"
# A subscription to `.*` does not include these.
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", AUDIT_TOPIC})

# In place of the id of a partition's leader: there is none.
NO_LEADER: Final = -1
# In place of a replica id: the request comes from a consumer.
CONSUMER_REPLICA_ID: Final = -1
# In place of a broker epoch: the registration has ended, or the sender does not know the epoch.
UNKNOWN_BROKER_EPOCH: Final = -1
NO_OFFSET: Final = -1
# In place of a group's generation: the sender is not a member.
NO_GENERATION: Final = -1


class TopicPartition(NamedTuple):
    """A partition of a topic; as text, the name of its directory."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
