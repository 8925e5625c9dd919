"""InitProducerId (22), versions 0-5.

Behavior: a producer without a transactional id gets an id that was never used before, with epoch 0. A producer that
already has an id (version 3 and later) gets a new one too, and starts its sequences from 0 with it. An id without an
epoch, or an epoch without an id, is INVALID_REQUEST.

Not implemented: transactions. A transactional id is TRANSACTIONAL_ID_AUTHORIZATION_FAILED. This is the one code that
makes both librdkafka and the Java client give up at once and name transactional ids as the reason. Codes whose names
fit better do not work: all clients retry COORDINATOR_NOT_AVAILABLE, and librdkafka also retries INVALID_REQUEST and
UNSUPPORTED_VERSION here until its timeout. An empty transactional id is INVALID_REQUEST.
"""

from __future__ import annotations

import structlog

from ottla.broker.requests.access import CLUSTER, TRANSACTIONAL_ID, check
from ottla.broker.requests.request import DataRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

log = structlog.get_logger(__name__)

_NONE = -1


def init_producer_id(request: DataRequest) -> InitProducerIdResponse:
    """Give a producer an id."""
    try:
        _check(request)
        producer_id = request.services.cluster.next_producer_id()
    except KafkaError as error:
        return InitProducerIdResponse(throttle_time_ms=0, error_code=error.code, producer_epoch=_NONE)
    return InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=0)


def _check(request: DataRequest) -> None:
    body: InitProducerIdRequest = request.body
    if (body.producer_id == _NONE) != (body.producer_epoch == _NONE) or body.transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if body.transactional_id is None:
        check(request, CLUSTER)
    else:
        check(request, TRANSACTIONAL_ID, body.transactional_id)
        log.warning(
            "transactional_producer_refused",
            transactional_id=body.transactional_id,
            client_id=request.client_id,
            client_host=request.session.client_host,
            reason="transactions are not supported",
        )
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
