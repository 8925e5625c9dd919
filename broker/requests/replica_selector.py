"""The replica that a consumer should read from (KIP-392): `replica.selector.class`.

With the rack-aware selector, the leader sends a consumer in another rack to a follower in the consumer's rack. The
follower must be alive, in sync, and have the consumer's offset. If there are several, the one with the most records is
chosen. A consumer in the leader's rack, or in a rack without such a follower, stays with the leader.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.replication.partition import Partition
from ottla.broker.requests.request import DataRequest

NO_REPLICA: Final = -1
RACK_AWARE: Final = ("org.apache.kafka.common.replica.RackAwareReplicaSelector", "rack-aware")
_RACKS_VERSION: Final = 11


def is_rack_aware(request: DataRequest) -> bool:
    """Whether a follower may serve this Fetch: the client sends its rack, and this broker has a rack-aware selector."""
    return (
        request.version >= _RACKS_VERSION
        and bool(request.body.rack_id)
        and request.services.config().replica_selector_class in RACK_AWARE
    )


def preferred_replica(request: DataRequest, partition: Partition, offset: int) -> int:
    """Return the follower to read from, for a partition that this broker leads; NO_REPLICA if none is better."""
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
