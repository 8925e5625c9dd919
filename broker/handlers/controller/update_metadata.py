"""UpdateMetadata (6), versions 0-8. From the controller.

Behavior: replaces what this broker knows of live brokers and of the topics listed. Fetches and produces that wait for
a partition which is gone are answered, deletions of records do not wait for brokers that are gone, those who wait for
topics to come or go are told, and groups forget what they committed for partitions that are gone.
"""

from __future__ import annotations

from ottla.broker.requests.request import ControlPlaneRequest
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


def update_metadata(request: ControlPlaneRequest) -> UpdateMetadataResponse:
    """Take in what the controller says."""
    body: UpdateMetadataRequest = request.body
    try:
        with request.services.controller_gate.passing(body.controller_epoch, body.broker_epoch):
            deleted = request.services.metadata.update(body)
    except KafkaError as error:
        return UpdateMetadataResponse(error_code=error.code)
    request.services.partitions.brokers_changed()
    request.services.partitions.failed(deleted)
    listed = {state.topic_name for state in body.topic_states or body.ungrouped_partition_states}
    changed = listed.union(partition.topic for partition in deleted)
    for topic in changed:
        request.services.delayed_topics.check(topic)
    request.services.group_offsets.partitions_deleted(deleted)
    request.services.groups.topics_changed(changed)
    return UpdateMetadataResponse(error_code=0)
