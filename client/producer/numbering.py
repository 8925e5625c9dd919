"""How batches are numbered, so that brokers write each of them once: not at all, or with a producer id of our own.

The numbering of a transactional producer is in `transactions.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.client.errors import KafkaError, error_for
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.producer.partition_queue import BatchVerdict, PartitionQueue, ProducerIdentity
from ottla.client.producer.producer_batch import ProducerBatch
from ottla.client.producer.settings import ProducerSettings
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest

if TYPE_CHECKING:
    from ottla.client.producer.sender import Sender

# The log has no batch with the sequence before this one, or has one of a later epoch.
GAPS: Final = frozenset(
    (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    )
)


class Numbering(Protocol):
    """What the sender asks before it sends a batch, and tells when one failed."""

    def admits(self, queue: PartitionQueue) -> bool:
        """Whether batches of a queue may be sent; if something is missing, request it and wake the sender later."""

    def verdict(self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError) -> BatchVerdict:
        """Return what an error means for a batch."""

    def gave_up(self, error: KafkaError) -> None:
        """Note that a batch was given up."""


class Unnumbered:
    """Batches without numbers: a retry may write them twice."""

    def admits(self, queue: PartitionQueue) -> bool:
        """Return True: nothing is needed."""
        return True

    def verdict(self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError) -> BatchVerdict:
        """Retry what may be retried."""
        return BatchVerdict.RETRY if error.retriable else BatchVerdict.REFUSED

    def gave_up(self, error: KafkaError) -> None:
        """Other batches go on."""


class IdempotentNumbering(Unnumbered):
    """Batches under a producer id that the cluster assigns; each partition starts new epochs by itself."""

    def __init__(self, cluster: ClusterClient, settings: ProducerSettings, sender: Sender) -> None:
        self._cluster = cluster
        self._settings = settings
        self._sender = sender
        self._identity: ProducerIdentity | None = None

    def admits(self, queue: PartitionQueue) -> bool:
        """Give the queue a producer id; ask for one if there is none, or if the queue has used up its epochs."""
        if queue.identity is not None:
            return True
        if self._identity is None or self._identity.producer_id == queue.spent_id:
            self._sender.start("identity", self._obtain_identity)
            return False
        queue.adopt(self._identity)
        return True

    def verdict(self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError) -> BatchVerdict:
        """Tell gaps from other errors: the queue closes them with a new epoch."""
        return BatchVerdict.GAP if error.code in GAPS else super().verdict(queue, batch, error)

    async def _obtain_identity(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)

        async def attempt() -> Any:
            response = await self._cluster.send_any(Api.INIT_PRODUCER_ID, request)
            if response.error_code:
                raise error_for(response.error_code, "the cluster assigned no producer id, which idempotence needs")
            return response

        try:
            response = await self._cluster.retrying(attempt, self._settings.delivery_timeout_ms)
        except KafkaError as error:
            self._sender.fail_waiting(error)
            return
        self._identity = ProducerIdentity(response.producer_id, response.producer_epoch)
