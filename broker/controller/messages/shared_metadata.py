"""UpdateMetadata requests to many brokers, which differ in one field: they are built and encoded once.

A controller that takes office sends every broker all partitions. With 100 brokers and 100,000 partitions, that would be
ten million states to encode, and as many entries of dictionaries (docs/adr/0021).
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from ottla.protocol.codec import encode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.protocol.primitives import UUID_ZERO

UPDATE_METADATA_VERSION: Final = 8

MetadataStates = Mapping[TopicPartition, UpdateMetadataPartitionState]

# In version 8: controller id (4 bytes), whether it is one of KRaft (1), controller epoch (4), broker epoch (8).
_BROKER_EPOCH_POSITION: Final = 9
_BROKER_EPOCH: Final = struct.Struct(">q")


class SharedMetadata:
    """The metadata of one event, for all brokers. Thread-safe. Nobody changes what it was made of."""

    def __init__(
        self,
        controller_id: int,
        controller_epoch: int,
        live_brokers: Sequence[UpdateMetadataBroker],
        topic_ids: Mapping[str, bytes],
    ) -> None:
        self._controller_id = controller_id
        self._controller_epoch = controller_epoch
        self._live_brokers = live_brokers
        self._topic_ids = topic_ids
        self._lock = threading.Lock()
        # By the identity of states: the states, which keep the identity taken, and the request without a broker epoch.
        # An event has few of them: what brokers that join are sent, what has changed, and nothing.
        self._encoded: dict[int, tuple[MetadataStates, UpdateMetadataRequest, bytes]] = {}
        # The last two sets of states that were compared, and the difference.
        self._compared: tuple[MetadataStates, MetadataStates, MetadataStates] | None = None

    def request(self, states: MetadataStates, broker_epoch: int) -> tuple[UpdateMetadataRequest, bytes]:
        """Return the request with some states to a broker with this epoch; and its bytes, without a header."""
        with self._lock:
            if id(states) not in self._encoded:
                made = self._message(states)
                self._encoded[id(states)] = states, made, encode(made, UPDATE_METADATA_VERSION)
            _, message, body = self._encoded[id(states)]
        before, after = body[:_BROKER_EPOCH_POSITION], body[_BROKER_EPOCH_POSITION + _BROKER_EPOCH.size :]
        body = b"".join((before, _BROKER_EPOCH.pack(broker_epoch), after))
        return replace(message, broker_epoch=broker_epoch), body

    def since(self, before: MetadataStates, states: MetadataStates) -> MetadataStates:
        """Return those of the states that differ from what they were before."""
        with self._lock:
            if self._compared is None or self._compared[0] is not before or self._compared[1] is not states:
                changed = {partition: state for partition, state in states.items() if before.get(partition) != state}
                self._compared = before, states, changed
            return self._compared[2]

    def _message(self, states: MetadataStates) -> UpdateMetadataRequest:
        topics: dict[str, list[UpdateMetadataPartitionState]] = {}
        for partition, state in states.items():
            topics.setdefault(partition.topic, []).append(state)
        return UpdateMetadataRequest(
            controller_id=self._controller_id,
            controller_epoch=self._controller_epoch,
            topic_states=[
                UpdateMetadataTopicState(
                    topic_name=topic, topic_id=self._topic_ids.get(topic, UUID_ZERO), partition_states=of_topic
                )
                for topic, of_topic in topics.items()
            ],
            live_brokers=list(self._live_brokers),
        )
