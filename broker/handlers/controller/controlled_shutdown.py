"""ControlledShutdown (7), versions 0-3. For the controller: a broker is about to stop.

Behavior: other replicas in sync take over what the broker leads, and it leaves the ISR of what it follows; from now on
it gets no leadership and enters no ISR, until it registers anew. Partitions with one replica are left alone. The answer
names the partitions that it still leads, because no other replica is in sync; the broker may ask again. Errors:
NOT_CONTROLLER; STALE_BROKER_EPOCH where another life of the broker is registered; BROKER_NOT_AVAILABLE where none is.

Version notes: 0 has a request header without client id; the broker epoch comes in 2.
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
    """Have the controller take from a broker what others can do."""
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
