"""UpdateMetadata (6), versions 0-8. From the controller.

Behavior: replaces what this broker knows about live brokers and about the listed topics. Waiting fetches and produces
for deleted partitions are answered. Waiting deletions of records no longer wait for brokers that are gone. Requests
that wait for topics to appear or disappear are woken. Groups forget the committed offsets of deleted partitions, or set
them aside if the topic can be brought back.
"""

from __future__ import annotations

from ottla.broker.requests.metadata_wait import BROKERS
from ottla.broker.requests.request import ControlPlaneRequest
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


def update_metadata(request: ControlPlaneRequest) -> UpdateMetadataResponse:
    """Update the metadata."""
    body: UpdateMetadataRequest = request.body
    try:
        with request.services.controller_gate.passing(body.controller_epoch, body.broker_epoch):
            deleted = request.services.metadata.update(body)
    except KafkaError as error:
        return UpdateMetadataResponse(error_code=error.code)
    request.services.partitions.brokers_changed()
    request.services.partitions.deleted(deleted)
    listed = {state.topic_name for state in body.topic_states or body.ungrouped_partition_states}
    changed = listed.union(partition.topic for partition in deleted)
    for topic in (BROKERS, *changed):
        request.services.delayed_topics.check(topic)
    kept = {
        state.topic_name: state.topic_id
        for state in body.topic_states
        if any(partition.is_kept for partition in state.partition_states)
    }
    request.services.group_offsets.partitions_deleted(deleted, kept)
    request.services.groups.topics_changed(changed)
    return UpdateMetadataResponse(error_code=0)
