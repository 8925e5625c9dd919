"""Controlled shutdown: a broker that is going to stop has the controller give its partitions to others first.

The controller elects other leaders and takes this broker out of the ISRs. Partitions whose other replicas are all out
of sync remain: for them the broker may try again, and stops anyway in the end.
"""

from __future__ import annotations

import threading

import structlog

from ottla.broker.cluster.broker_link import BrokerLink
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.controlled_shutdown import ControlledShutdownRequest

log = structlog.get_logger(__name__)


def shut_down_controlled(
    link: BrokerLink,
    broker_id: int,
    broker_epoch: int,
    retries: int,
    backoff_ms: int,
    hurry: threading.Event | None = None,
) -> list[TopicPartition] | None:
    """Ask the controller, several times if need be, to relieve this broker; return the partitions that it still leads.

    None means that no controller did. `hurry`: once set, there is no further try.
    """
    hurry = hurry or threading.Event()
    remaining: list[TopicPartition] | None = None
    for left in reversed(range(retries)):
        try:
            remaining = _ask(link, broker_id, broker_epoch)
            if not remaining:
                log.info("controlled_shutdown_done", broker=broker_id)
                return remaining
            log.info("controlled_shutdown_partitions_remain", count=len(remaining), tries_left=left)
        except (KafkaError, ProtocolError) as error:
            log.warning("controlled_shutdown_failed", error=str(error), tries_left=left)
        if left and hurry.wait(backoff_ms / 1000):
            break
    log.warning("shutdown_is_not_controlled", broker=broker_id, remaining=None if remaining is None else len(remaining))
    return remaining


def _ask(link: BrokerLink, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
    request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
    response = link.request(Api.CONTROLLED_SHUTDOWN, lambda version: request)
    code = ErrorCode.of(response.error_code)
    if code is not ErrorCode.NONE:
        raise KafkaError(code, "the controller refused the shutdown")
    return [TopicPartition(row.topic_name, row.partition_index) for row in response.remaining_partitions]
