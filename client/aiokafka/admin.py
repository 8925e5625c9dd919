"""AIOKafkaAdminClient: aiokafka's admin client on ours.

Where aiokafka returns the response of a broker as it is, this returns an object with the same fields.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

from ottla.client import errors as ours
from ottla.client.admin.admin import Admin
from ottla.client.aiokafka.client import bootstrapping
from ottla.client.aiokafka.errors import IllegalArgumentError, for_code
from ottla.client.aiokafka.options import VERSION, check_deprecated, client_options
from ottla.client.aiokafka.structs import OffsetAndMetadata, TopicPartition
from ottla.client.aiokafka.translation import translating
from ottla.client.consumer.group.offset_requests import FETCH_ALL_VERSION_MIN, fetched_group, offset_fetch
from ottla.client.net.settings import ClientSettings
from ottla.protocol import identifiers
from ottla.protocol.api import Api
from ottla.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest

__all__ = [
    "AIOKafkaAdminClient",
    "ConfigResource",
    "ConfigResourceType",
    "NewPartitions",
    "NewTopic",
    "RecordsToDelete",
]

# The versions whose responses aiokafka shows; their fields are those below.
_VERSIONS: Final = {
    Api.CREATE_TOPICS: 3,
    Api.DELETE_TOPICS: 3,
    Api.CREATE_PARTITIONS: 1,
    Api.DESCRIBE_CONFIGS: 2,
    Api.ALTER_CONFIGS: 1,
    Api.DESCRIBE_GROUPS: 3,
    Api.LIST_GROUPS: 2,
}


class Response:
    """A response of a broker: its fields by name, with tuples for the rows of a list."""

    def __init__(self, name: str, rows: Mapping[str, Sequence[str]] | None = None, **fields: Any) -> None:
        self._name = name
        self._rows = rows or {}
        self._fields = fields
        self.__dict__.update(fields)

    def __repr__(self) -> str:
        return f"{self._name}({', '.join(f'{name}={value!r}' for name, value in self._fields.items())})"

    def to_object(self) -> dict[str, Any]:
        """Return the fields as a dict, with dicts for the rows of a list."""
        return {name: self._named(name, value) for name, value in self._fields.items()}

    def _named(self, field: str, value: Any) -> Any:
        names = self._rows.get(field)
        if names is None or not isinstance(value, list):
            return value
        return [{name: self._named(name, item) for name, item in zip(names, row, strict=True)} for row in value]


class NewTopic:
    """A topic to create: with numbers of partitions and replicas, or with the brokers of each partition."""

    def __init__(
        self,
        name: Any,
        num_partitions: Any,
        replication_factor: Any,
        replica_assignments: Any = None,
        topic_configs: Any = None,
    ) -> None:
        if not ((num_partitions == -1 or replication_factor == -1) ^ (replica_assignments is None)):
            raise IllegalArgumentError(
                "either num_partitions/replication_factor or replica_assignment must be specified"
            )
        self.name = name
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.replica_assignments = replica_assignments or {}
        self.topic_configs = topic_configs or {}


class NewPartitions:
    """The number of partitions that a topic is to have, and the brokers of the new ones."""

    def __init__(self, total_count: Any, new_assignments: Any = None) -> None:
        self.total_count = total_count
        self.new_assignments = new_assignments


class RecordsToDelete:
    """The offset before which records are deleted."""

    def __init__(self, before_offset: Any) -> None:
        self.before_offset = before_offset


class ConfigResourceType(IntEnum):
    """What options belong to."""

    BROKER = 4
    TOPIC = 2


class ConfigResource:
    """A topic or a broker, with options to ask for or to set."""

    def __init__(self, resource_type: Any, name: Any, configs: Any = None) -> None:
        if not isinstance(resource_type, ConfigResourceType):
            resource_type = ConfigResourceType[str(resource_type).upper()]
        self.resource_type = resource_type
        self.name = name
        self.configs = configs


class AIOKafkaAdminClient:
    """Reads and changes a cluster; arguments and methods are aiokafka's."""

    def __init__(
        self,
        *,
        loop: Any = None,
        bootstrap_servers: str | list[str] = "localhost",
        client_id: str = "aiokafka-" + VERSION,
        request_timeout_ms: int = 40000,
        connections_max_idle_ms: int = 540000,
        retry_backoff_ms: int = 100,
        metadata_max_age_ms: int = 300000,
        security_protocol: str = "PLAINTEXT",
        ssl_context: Any = None,
        api_version: Any = None,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_username: str | None = None,
        sasl_plain_password: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: Any = None,
    ) -> None:
        check_deprecated(loop, api_version)
        options = client_options(
            bootstrap_servers=bootstrap_servers,
            client_id=client_id,
            metadata_max_age_ms=metadata_max_age_ms,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
            ssl_context=ssl_context,
            security_protocol=security_protocol,
            connections_max_idle_ms=connections_max_idle_ms,
            sasl_mechanism=sasl_mechanism,
            sasl_plain_username=sasl_plain_username,
            sasl_plain_password=sasl_plain_password,
            sasl_oauth_token_provider=sasl_oauth_token_provider,
        )
        try:
            self._settings = ClientSettings.from_kwargs(options)
            self._admin = Admin(**options)
        except ours.KafkaConfigurationError as error:
            raise ValueError(error.detail) from error
        self._started = False

    async def start(self) -> None:
        """Connect to the cluster; KafkaConnectionError if no broker answers."""
        if not self._started:
            with bootstrapping(self._settings):
                await self._admin.start()
            self._started = True

    async def close(self) -> None:
        """Close all connections."""
        await self._admin.close()

    # Topics.

    @translating
    async def create_topics(
        self, new_topics: list[NewTopic], timeout_ms: int | None = None, validate_only: bool = False
    ) -> Response:
        """Create topics; the response has the error code of each."""
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in new_topics],
            timeout_ms=timeout_ms or self._settings.request_timeout_ms,
            validate_only=validate_only,
        )
        answer = await self._to_controller(Api.CREATE_TOPICS, request)
        return Response(
            "CreateTopicsResponse_v3",
            {"topic_errors": ("topic", "error_code", "error_message")},
            throttle_time_ms=answer.throttle_time_ms,
            topic_errors=[(row.name, row.error_code, row.error_message) for row in answer.topics],
        )

    @translating
    async def delete_topics(self, topics: list[str], timeout_ms: int | None = None) -> Response:
        """Delete topics; the response has the error code of each."""
        request = DeleteTopicsRequest(
            topic_names=list(topics), timeout_ms=timeout_ms or self._settings.request_timeout_ms
        )
        answer = await self._to_controller(Api.DELETE_TOPICS, request)
        return Response(
            "DeleteTopicsResponse_v3",
            {"topic_error_codes": ("topic", "error_code")},
            throttle_time_ms=answer.throttle_time_ms,
            topic_error_codes=[(row.name, row.error_code) for row in answer.responses],
        )

    @translating
    async def list_topics(self) -> list[str]:
        """Return the names of all topics, with internal ones."""
        return list((await self._admin.cluster.metadata(None)).topics)

    @translating
    async def describe_topics(self, topics: list[str] | None = None) -> list[Any]:
        """Return a dict for each topic, with its partitions."""
        snapshot = await self._admin.cluster.metadata(topics, force=True)
        names = snapshot.topics if topics is None else topics
        return [_described(name, snapshot.topics[name]) for name in names if name in snapshot.topics]

    @translating
    async def describe_cluster(self) -> dict[str, Any]:
        """Return a dict with the brokers, the controller and the id of the cluster."""
        snapshot = await self._admin.cluster.metadata((), force=True)
        return {
            "throttle_time_ms": 0,
            "brokers": [
                {"node_id": each.node_id, "host": each.host, "port": each.port, "rack": each.rack}
                for each in snapshot.brokers.values()
            ],
            "cluster_id": snapshot.cluster_id,
            "controller_id": -1 if snapshot.controller_id is None else snapshot.controller_id,
        }

    @translating
    async def create_partitions(
        self,
        topic_partitions: dict[str, NewPartitions],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> Response:
        """Increase the partitions of topics; the first error is raised."""
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(
                    name=name,
                    count=new.total_count,
                    assignments=None
                    if new.new_assignments is None
                    else [CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in new.new_assignments],
                )
                for name, new in topic_partitions.items()
            ],
            timeout_ms=timeout_ms or self._settings.request_timeout_ms,
            validate_only=validate_only,
        )
        answer = await self._to_controller(Api.CREATE_PARTITIONS, request)
        for row in answer.results:
            if row.error_code:
                raise for_code(row.error_code)(f"Could not create partitions for {row.name}: {row.error_message}")
        return Response(
            "CreatePartitionsResponse_v1",
            {"topic_errors": ("topic", "error_code", "error_message")},
            throttle_time_ms=answer.throttle_time_ms,
            topic_errors=[(row.name, row.error_code, row.error_message) for row in answer.results],
        )

    @translating
    async def delete_records(
        self, records_to_delete: dict[TopicPartition, RecordsToDelete], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset; return the first offset that each partition still has."""
        offsets = {identifiers.TopicPartition(*one): each.before_offset for one, each in records_to_delete.items()}
        results = await self._admin.delete_records(offsets)
        return {TopicPartition(one.topic, one.partition): one.low_watermark for one in results}

    # Options.

    @translating
    async def describe_configs(
        self, config_resources: list[ConfigResource], include_synonyms: bool = False
    ) -> list[Response]:
        """Return the options of topics and brokers; a response for each broker, and one for all topics."""
        responses = []
        for broker_id, resources in _by_broker(config_resources):
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=int(each.resource_type),
                        resource_name=each.name,
                        configuration_keys=list(each.configs) if each.configs else None,
                    )
                    for each in resources
                ],
                include_synonyms=include_synonyms,
            )
            answer = await self._to_broker(broker_id, Api.DESCRIBE_CONFIGS, request)
            responses.append(_configs(answer))
        return responses

    @translating
    async def alter_configs(self, config_resources: list[ConfigResource]) -> list[Response]:
        """Replace the options of topics and brokers; options that are not given get their defaults."""
        responses = []
        for broker_id, resources in _by_broker(config_resources):
            request = AlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=int(each.resource_type),
                        resource_name=each.name,
                        configs=[AlterableConfig(name=name, value=value) for name, value in each.configs.items()],
                    )
                    for each in resources
                ],
                validate_only=False,
            )
            answer = await self._to_broker(broker_id, Api.ALTER_CONFIGS, request)
            responses.append(
                Response(
                    "AlterConfigsResponse_v1",
                    {"resources": ("error_code", "error_message", "resource_type", "resource_name")},
                    throttle_time_ms=answer.throttle_time_ms,
                    resources=[
                        (row.error_code, row.error_message, row.resource_type, row.resource_name)
                        for row in answer.responses
                    ],
                )
            )
        return responses

    # Groups.

    @translating
    async def describe_consumer_groups(
        self,
        group_ids: list[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> list[Response]:
        """Describe groups; a response for each coordinator."""
        by_node: dict[int, list[str]] = defaultdict(list)
        for group_id in group_ids:
            node_id = group_coordinator_id
            by_node[await self._coordinator(group_id) if node_id is None else node_id].append(group_id)
        responses = []
        for node_id, names in by_node.items():
            request = DescribeGroupsRequest(groups=names, include_authorized_operations=include_authorized_operations)
            responses.append(_groups(await self._to_broker(node_id, Api.DESCRIBE_GROUPS, request)))
        return responses

    @translating
    async def list_consumer_groups(self, broker_ids: list[int] | None = None) -> list[tuple[Any, ...]]:
        """Return tuples of a group and its protocol type."""
        if broker_ids is None:
            broker_ids = list((await self._admin.cluster.metadata((), force=True)).brokers)
        found: set[tuple[Any, ...]] = set()
        for broker_id in broker_ids:
            answer = await self._to_broker(broker_id, Api.LIST_GROUPS, ListGroupsRequest())
            if answer.error_code:
                raise for_code(answer.error_code)("Error listing consumer groups")
            found.update((row.group_id, row.protocol_type) for row in answer.groups)
        return list(found)

    @translating
    async def find_coordinator(self, group_id: str, coordinator_type: int = 0) -> int:
        """Return the node id of the coordinator of a group, or of a transactional id (1)."""
        return await self._coordinator(group_id, coordinator_type)

    @translating
    async def list_consumer_group_offsets(
        self,
        group_id: str,
        group_coordinator_id: int | None = None,
        partitions: list[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return committed offsets; -1 for a partition that was asked for and has none."""
        wanted = None if not partitions else [identifiers.TopicPartition(*one) for one in partitions]
        node_id = await self._coordinator(group_id) if group_coordinator_id is None else group_coordinator_id
        answer = await self._admin.cluster.send(
            node_id, Api.OFFSET_FETCH, offset_fetch(group_id, wanted), version_min=FETCH_ALL_VERSION_MIN
        )
        group = fetched_group(answer)
        ours.raise_for(group.error_code, f"group {group_id!r}")
        found = {}
        for topic in group.topics:
            for row in topic.partitions:
                ours.raise_for(row.error_code, f"{topic.name}-{row.partition_index}")
                where = TopicPartition(topic.name, row.partition_index)
                found[where] = OffsetAndMetadata(row.committed_offset, row.metadata or "")
        return found

    # Private methods.

    async def _to_controller(self, api: Api, request: Any) -> Any:
        return await self._admin.cluster.send_controller(api, request, version_max=_VERSIONS[api])

    async def _to_broker(self, broker_id: int | None, api: Api, request: Any) -> Any:
        cluster = self._admin.cluster
        if broker_id is None:
            return await cluster.send_any(api, request, version_max=_VERSIONS[api])
        return await cluster.send(broker_id, api, request, version_max=_VERSIONS[api])

    async def _coordinator(self, key: str, key_type: int = 0) -> int:
        return await self._admin.cluster.coordinator(key, key_type)


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
            for partition, brokers in topic.replica_assignments.items()
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.topic_configs.items()],
    )


def _by_broker(resources: Iterable[ConfigResource]) -> list[tuple[int | None, list[ConfigResource]]]:
    """Return the resources of each broker, and those of topics, which any broker knows."""
    grouped: dict[int | None, list[ConfigResource]] = defaultdict(list)
    for each in resources:
        grouped[int(each.name) if each.resource_type is ConfigResourceType.BROKER else None].append(each)
    return list(grouped.items())


def _described(name: str, topic: Any) -> dict[str, Any]:
    return {
        "error_code": int(topic.error),
        "topic": name,
        "is_internal": topic.is_internal,
        "partitions": [
            {
                "error_code": int(each.error),
                "partition": each.partition,
                "leader": -1 if each.leader is None else each.leader,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
                "offline_replicas": list(each.offline_replicas),
            }
            for each in topic.partitions.values()
        ],
    }


def _configs(answer: Any) -> Response:
    return Response(
        "DescribeConfigsResponse_v2",
        {
            "resources": ("error_code", "error_message", "resource_type", "resource_name", "config_entries"),
            "config_entries": (
                "config_names",
                "config_value",
                "read_only",
                "config_source",
                "is_sensitive",
                "config_synonyms",
            ),
            "config_synonyms": ("config_name", "config_value", "config_source"),
        },
        throttle_time_ms=answer.throttle_time_ms,
        resources=[
            (
                row.error_code,
                row.error_message,
                row.resource_type,
                row.resource_name,
                [
                    (
                        each.name,
                        each.value,
                        each.read_only,
                        each.config_source,
                        each.is_sensitive,
                        [(synonym.name, synonym.value, synonym.source) for synonym in each.synonyms],
                    )
                    for each in row.configs
                ],
            )
            for row in answer.results
        ],
    )


def _groups(answer: Any) -> Response:
    members = ("member_id", "client_id", "client_host", "member_metadata", "member_assignment")
    return Response(
        "DescribeGroupsResponse_v3",
        {
            "groups": (
                "error_code",
                "group",
                "state",
                "protocol_type",
                "protocol",
                "members",
                "authorized_operations",
            ),
            "members": members,
        },
        throttle_time_ms=answer.throttle_time_ms,
        groups=[
            (
                row.error_code,
                row.group_id,
                row.group_state,
                row.protocol_type,
                row.protocol_data,
                [
                    (
                        member.member_id,
                        member.client_id,
                        member.client_host,
                        bytes(member.member_metadata),
                        bytes(member.member_assignment),
                    )
                    for member in row.members
                ],
                row.authorized_operations,
            )
            for row in answer.groups
        ],
    )
