"""AllocateProducerIds (67), versions 0. For the controller: a broker asks for a block of producer ids.

Our brokers take their blocks from ZooKeeper themselves. Brokers of Apache Kafka ask the controller.

Behavior: returns the first id and the size of a block that nobody else gets. Errors: NOT_CONTROLLER;
BROKER_ID_NOT_REGISTERED if the broker is not live; STALE_BROKER_EPOCH if it has registered again since; and the errors
of an unreachable ZooKeeper.
"""

from __future__ import annotations

from ottla.broker.controller.term import Term
from ottla.broker.requests.on_controller import OnController
from ottla.broker.requests.request import ControlPlaneRequest, Delayed
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


def allocate_producer_ids(request: ControlPlaneRequest) -> Delayed:
    """Allocate a block on the controller's thread."""
    body: AllocateProducerIdsRequest = request.body
    cluster = request.services.cluster

    def allocate(term: Term) -> range:
        broker = term.context.brokers.get(body.broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED)
        if broker.epoch != body.broker_epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        return cluster.take_producer_ids(body.broker_id)

    def answer(outcome: range | KafkaError) -> AllocateProducerIdsResponse:
        code, block = (outcome.code, range(0)) if isinstance(outcome, KafkaError) else (ErrorCode.NONE, outcome)
        return AllocateProducerIdsResponse(
            throttle_time_ms=0, error_code=code, producer_id_start=block.start, producer_id_len=len(block)
        )

    return OnController(request.services.controller, allocate, answer)
