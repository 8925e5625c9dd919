"""ControlledShutdown (7), versions 0-3. For the controller: a broker is about to stop.

Behavior: other in-sync replicas become leaders of the partitions that the broker leads, and the broker leaves the ISR
of the partitions that it follows. It becomes leader of nothing and joins no ISR until it registers again. Partitions
with one replica are left alone. The response names the partitions that it still leads because no other replica is in
sync; the broker may ask again. Errors: NOT_CONTROLLER; STALE_BROKER_EPOCH if the broker has registered again since;
BROKER_NOT_AVAILABLE if it is not registered.

Version notes: version 0 has a request header without a client id; version 2 adds the broker epoch.
"""

from __future__ import annotations

from ottla.broker.requests.on_controller import OnController
from ottla.broker.requests.request import ControlPlaneRequest, Delayed
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)


def controlled_shutdown(request: ControlPlaneRequest) -> Delayed:
    """Move leaderships away from a broker, on the controller's thread."""
    body: ControlledShutdownRequest = request.body

    def answer(outcome: list[TopicPartition] | KafkaError) -> ControlledShutdownResponse:
        if isinstance(outcome, KafkaError):
            return ControlledShutdownResponse(error_code=outcome.code, remaining_partitions=[])
        remaining = [RemainingPartition(topic_name=topic, partition_index=index) for topic, index in outcome]
        return ControlledShutdownResponse(error_code=ErrorCode.NONE, remaining_partitions=remaining)

    return OnController(
        request.services.controller,
        lambda term: term.controlled_shutdown.begin(body.broker_id, body.broker_epoch),
        answer,
    )
