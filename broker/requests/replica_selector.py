"""Where a consumer is sent to read (KIP-392): `replica.selector.class`.

With the rack-aware selector, the leader sends a consumer of another rack to a follower in the consumer's rack. It must
be in sync and alive, and have the offset that the consumer is at; of several the one that has the most. Consumers of
the leader's own rack, and those in whose rack no replica is, stay with the leader.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.replication.partition import Partition
from ottla.broker.requests.request import DataRequest

NO_REPLICA: Final = -1
RACK_AWARE: Final = ("org.apache.kafka.common.replica.RackAwareReplicaSelector", "rack-aware")
_RACKS_VERSION: Final = 11


def is_rack_aware(request: DataRequest) -> bool:
    """Whether a Fetch of this client may be sent elsewhere: it says where it is, and this broker looks at that."""
    return (
        request.version >= _RACKS_VERSION
        and bool(request.body.rack_id)
        and request.services.config().replica_selector_class in RACK_AWARE
    )


def preferred_replica(request: DataRequest, partition: Partition, offset: int) -> int:
    """Return the follower from which to read a partition that this broker leads; NO_REPLICA: from here."""
    snapshot = request.services.metadata.snapshot
    rack = request.body.rack_id
    own = snapshot.brokers.get(partition.node_id)
    if own is not None and own.rack == rack:
        return NO_REPLICA
    isr = partition.isr
    best = NO_REPLICA, NO_REPLICA, NO_REPLICA
    for broker_id, follower in partition.follower_positions().items():
        broker = snapshot.brokers.get(broker_id)
        if (
            broker is not None
            and broker.rack == rack
            and request.session.listener in broker.endpoints
            and broker_id in isr
            and follower.log_start_offset <= offset <= follower.log_end_offset
        ):
            best = max(best, (follower.log_end_offset, follower.last_caught_up_ms, broker_id))
    return best[2]
