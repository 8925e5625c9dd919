"""WriteTxnMarkers (27), versions 0-1.

Behavior: writes the markers that end transactions to partitions of this broker, for their coordinators, and for an
administrator who ends a transaction that hangs. Responds when every in-sync replica has them, and the offsets that
groups have committed in the transactions have taken effect, or are dropped. A marker of a producer epoch that is over
is INVALID_PRODUCER_EPOCH, one of a coordinator that was replaced TRANSACTION_COORDINATOR_FENCED.

Version notes: coordinators of ours number the transactions in a tagged field of version 1, so that a marker that comes
in late is not taken for one of the next transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.broker.requests.gathering import Gathering
from ottla.broker.requests.request import Delayed, TransactionsRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

Codes = Mapping[TopicPartition, ErrorCode]


def write_txn_markers(request: TransactionsRequest) -> Delayed:
    """Write the markers of a request."""
    return Gathering(
        request.body.markers, request.services.marker_writer.write, lambda results: _response(request, results)
    )


def _response(request: TransactionsRequest, results: Sequence[Codes]) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=codes[TopicPartition(topic.name, index)]
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker, codes in zip(request.body.markers, results, strict=True)
        ]
    )
