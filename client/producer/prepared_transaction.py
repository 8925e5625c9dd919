"""A transaction that is written but not ended yet, and how another process than its producer's ends it.

Both ends may be asked for again. A commit that is repeated succeeds; after it, an abort is refused. A commit fails if
the transaction is aborted already: because a new producer has taken the transactional id, or because it was open too
long.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.client.errors import error_for
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.net.coordinators import LOST_COORDINATOR, TRANSACTION
from ottla.protocol.api import Api
from ottla.protocol.messages.end_txn import EndTxnRequest

# Later versions end transactions by other rules.
_VERSION_MAX: Final = 4


class PreparedTransaction(NamedTuple):
    """What its coordinator knows a transaction by."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


async def end_prepared(cluster: ClusterClient, transaction: PreparedTransaction, *, committed: bool) -> None:
    """Commit or abort a transaction; KafkaError if it is not known to have ended so."""
    request = EndTxnRequest(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        committed=committed,
    )

    async def attempt() -> None:
        response = await cluster.send_coordinator(
            transaction.transactional_id, Api.END_TXN, request, key_type=TRANSACTION, version_max=_VERSION_MAX
        )
        if response.error_code:
            if response.error_code in LOST_COORDINATOR:
                cluster.forget_coordinator(transaction.transactional_id, TRANSACTION)
            verb = "committed" if committed else "aborted"
            raise error_for(
                response.error_code, f"the transaction of {transaction.transactional_id} could not be {verb}"
            )

    await cluster.retrying(attempt)
