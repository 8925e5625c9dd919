"""InitProducerId (22), versions 0-5.

Behavior: a producer without a transactional id gets an id that was never used before, with epoch 0. A producer that
already has an id (version 3 and later) gets a new one too, and starts its sequences from 0 with it. An id without an
epoch, or an epoch without an id, is INVALID_REQUEST.

A transactional id keeps its producer id, with a higher epoch each time, which fences whoever had it before. A
transaction that it has left open is aborted first. Kafka answers CONCURRENT_TRANSACTIONS meanwhile, and the client asks
again; here the answer waits a moment for the abort. An empty transactional id is INVALID_REQUEST, a timeout above
`transaction.max.timeout.ms` is INVALID_TRANSACTION_TIMEOUT.

Version notes: version 3 adds the producer's own id and epoch. Before version 4, a fenced producer gets
INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.requests.access import CLUSTER, TRANSACTIONAL_ID, check
from ottla.broker.requests.coordinator_wait import when_at_rest
from ottla.broker.requests.request import Delayed, Later, Respond, TransactionsRequest
from ottla.broker.transactions.coordinator import InitializedProducer
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Message
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_NONE: Final = -1
_FENCED_VERSION: Final = 4


def init_producer_id(request: TransactionsRequest) -> Message | Delayed:
    """Give a producer an id."""
    body: InitProducerIdRequest = request.body
    try:
        _check(request)
        if body.transactional_id is not None:
            return when_at_rest(request, body.transactional_id, _initialize)
        producer = InitializedProducer(ErrorCode.NONE, request.services.cluster.next_producer_id(), 0)
    except KafkaError as error:
        producer = InitializedProducer(error.code)
    return _response(request, producer)


def _check(request: TransactionsRequest) -> None:
    body: InitProducerIdRequest = request.body
    if body.transactional_id is None:
        check(request, CLUSTER)
    else:
        check(request, TRANSACTIONAL_ID, body.transactional_id)
    if (body.producer_id == _NONE) != (body.producer_epoch == _NONE) or body.transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST)


def _initialize(request: TransactionsRequest, *, may_wait: bool = True) -> Delayed:
    """Have the coordinator give the producer its epoch; once more if a transaction has to be aborted first."""
    body: InitProducerIdRequest = request.body
    transactional_id = body.transactional_id
    assert transactional_id is not None

    def start(respond: Respond) -> None:
        def done(producer: InitializedProducer) -> None:
            if producer.error is ErrorCode.CONCURRENT_TRANSACTIONS and may_wait:
                respond(
                    lambda: when_at_rest(request, transactional_id, lambda again: _initialize(again, may_wait=False))
                )
            else:
                respond(lambda: _response(request, producer))

        request.services.transactions.init_producer(
            transactional_id, body.producer_id, body.producer_epoch, body.transaction_timeout_ms, done
        )

    return Later(start)


def _response(request: TransactionsRequest, producer: InitializedProducer) -> InitProducerIdResponse:
    code = producer.error
    if code is ErrorCode.PRODUCER_FENCED and request.version < _FENCED_VERSION:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(
        throttle_time_ms=0,
        error_code=code,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
    )
