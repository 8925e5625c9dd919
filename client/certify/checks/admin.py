"""Administration: topics, partitions, options, quotas, ACLs."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from ottla.client.certify.check import Checks, NotApplicable, expect, expect_error, expect_that
from ottla.client.certify.trial import REQUEST_TIMEOUT_MS, Topic, Trial
from ottla.protocol.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.protocol.api import Api
from ottla.protocol.config_resources import ConfigResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Message
from ottla.protocol.messages import alter_configs, incremental_alter_configs
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.primitives import UUID_ZERO

CHECKS: Final = Checks("admin", "Topics, options, quotas and ACLs")

_CREATE: Final = {Api.CREATE_TOPICS: 2}
_INCREMENTAL: Final = {Api.INCREMENTAL_ALTER_CONFIGS: 0, Api.DESCRIBE_CONFIGS: 1}
_TOPIC: Final = ConfigResourceType.TOPIC
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_TOPIC_CONFIG_SOURCE: Final = 1
_DELETE_BY_ID_VERSION: Final = 6
_PAUSE_S: Final = 0.05
_MOVED_RECORDS: Final = 60
_QUOTA: Final = "producer_byte_rate"
_NOBODY: Final = "User:ottla-certify-nobody"


async def _create(
    trial: Trial,
    name: str,
    *,
    partitions: int = 1,
    replicas: int = 1,
    configs: dict[str, str] | None = None,
    assignments: list[CreatableReplicaAssignment] | None = None,
    validate_only: bool = False,
) -> Any:
    rows = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=assignments or [],
        configs=rows,
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=REQUEST_TIMEOUT_MS, validate_only=validate_only)
    trial.will_delete(name)
    return (await trial.ask(Api.CREATE_TOPICS, request, node=trial.controller)).topics[0]


@CHECKS.check(_CREATE)
async def creating(trial: Trial) -> None:
    """A topic is created once: the second time it is TOPIC_ALREADY_EXISTS."""
    name = trial.name("topic")
    expect_error("CreateTopics", (await _create(trial, name, partitions=2)).error_code, ErrorCode.NONE)
    await trial.existing(name, 2)
    expect_error("the same again", (await _create(trial, name)).error_code, ErrorCode.TOPIC_ALREADY_EXISTS)


@CHECKS.check({Api.CREATE_TOPICS: 7})
async def told_about_a_new_topic(trial: Trial) -> None:
    """The answer to CreateTopics names the id, the partitions and the replicas of the new topic."""
    name = trial.name("topic")
    row = await _create(trial, name, partitions=2)
    expect("partitions and replicas", (row.num_partitions, row.replication_factor), (2, 1))
    topic = await trial.existing(name, 2)
    expect("the id", row.topic_id, topic.topic_id)


@CHECKS.check(_CREATE)
async def validating(trial: Trial) -> None:
    """With validate_only, a topic is checked and not created."""
    name = trial.name("topic")
    expect_error("validate_only", (await _create(trial, name, validate_only=True)).error_code, ErrorCode.NONE)
    snapshot = await trial.client.metadata((name,), force=True)
    found = snapshot.topics.get(name)
    code = ErrorCode.NONE if found is None else found.error
    expect_error("the topic afterwards", code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@CHECKS.check(_CREATE)
async def refused_topics(trial: Trial) -> None:
    """Impossible names, partitions, replicas and options are refused, each with its own error."""
    many = len(trial.brokers) + 1
    cases: list[tuple[str, dict[str, Any], ErrorCode]] = [
        ("no/topic", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (trial.name("a"), {"partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        (trial.name("b"), {"replicas": many}, ErrorCode.INVALID_REPLICATION_FACTOR),
        (trial.name("c"), {"configs": {"retention.ms": "soon"}}, ErrorCode.INVALID_CONFIG),
        (trial.name("d"), {"configs": {"no.such.option": "1"}}, ErrorCode.INVALID_CONFIG),
    ]
    for name, options, code in cases:
        row = await _create(trial, name, **options)
        expect_error(f"a topic with {options or name}", row.error_code, code)


@CHECKS.check(_CREATE)
async def assignments(trial: Trial) -> None:
    """A topic is created with the replicas that the request assigns; an unknown broker is refused."""
    broker = trial.brokers[-1]
    wanted = [CreatableReplicaAssignment(partition_index=0, broker_ids=[broker])]
    name = trial.name("topic")
    row = await _create(trial, name, partitions=-1, replicas=-1, assignments=wanted)
    expect_error("an assignment", row.error_code, ErrorCode.NONE)
    topic = await trial.existing(name, 1)
    expect("the leader", await trial.leader(topic), broker)
    wrong = [CreatableReplicaAssignment(partition_index=0, broker_ids=[broker, broker])]
    row = await _create(trial, trial.name("twice"), partitions=-1, replicas=-1, assignments=wrong)
    expect_error("the same broker twice", row.error_code, ErrorCode.INVALID_REPLICA_ASSIGNMENT)


@CHECKS.check({Api.CREATE_PARTITIONS: 0})
async def more_partitions(trial: Trial) -> None:
    """CreatePartitions adds partitions; fewer than there are is INVALID_PARTITIONS, and records stay."""
    topic = await trial.topic(partitions=2)
    await trial.write(topic, b"value")

    async def grow(name: str, count: int) -> int:
        row = CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[row], timeout_ms=REQUEST_TIMEOUT_MS, validate_only=False)
        response = await trial.ask(Api.CREATE_PARTITIONS, request, node=trial.controller)
        return int(response.results[0].error_code)

    expect_error("fewer partitions", await grow(topic.name, 1), ErrorCode.INVALID_PARTITIONS)
    expect_error("more partitions", await grow(topic.name, 4), ErrorCode.NONE)
    grown = await trial.existing(topic.name, 4)
    expect("the offset in a new partition", await trial.write(grown, b"value", partition=3), 0)
    expect("the records that were there", len(await trial.read(grown, 1)), 1)
    unknown = await grow(trial.name("unknown"), 2)
    expect_error("an unknown topic", unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def _delete(trial: Trial, name: str) -> int:
    def build(version: int) -> Message:
        if version < _DELETE_BY_ID_VERSION:
            return DeleteTopicsRequest(topic_names=[name], timeout_ms=REQUEST_TIMEOUT_MS)
        return DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=UUID_ZERO)], timeout_ms=REQUEST_TIMEOUT_MS
        )

    response = await trial.ask(Api.DELETE_TOPICS, build, node=trial.controller)
    return int(response.responses[0].error_code)


async def _until_gone(trial: Trial, name: str) -> None:
    while True:
        snapshot = await trial.client.metadata((name,), force=True)
        found = snapshot.topics.get(name)
        if found is None or found.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return
        trial.waiting_for = f"{name} to disappear from Metadata"
        await asyncio.sleep(_PAUSE_S)


@CHECKS.check({Api.DELETE_TOPICS: 1})
async def deleting(trial: Trial) -> None:
    """A deleted topic disappears; an unknown one is UNKNOWN_TOPIC_OR_PARTITION."""
    topic = await trial.topic()
    expect_error("DeleteTopics", await _delete(trial, topic.name), ErrorCode.NONE)
    await _until_gone(trial, topic.name)
    for name in (trial.name("unknown"), "no/topic"):
        expect_error(f"the topic {name}", await _delete(trial, name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@CHECKS.check({Api.DELETE_TOPICS: 1, Api.PRODUCE: 3})
async def creating_again(trial: Trial) -> None:
    """A topic that is deleted and created again is empty, and has another id."""
    first = await trial.topic()
    await trial.write(first, b"old")
    await _delete(trial, first.name)
    await _until_gone(trial, first.name)
    while (row := await _create(trial, first.name)).error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
        trial.waiting_for = "the old topic to be gone"
        await asyncio.sleep(_PAUSE_S)
    expect_error("CreateTopics", row.error_code, ErrorCode.NONE)
    while (second := await trial.existing(first.name, 1)).topic_id == first.topic_id != UUID_ZERO:
        trial.waiting_for = "the new topic to have another id"
        await asyncio.sleep(_PAUSE_S)
    expect("the end offset of the new topic", await trial.end_offset(second), 0)


async def _trim(trial: Trial, topic: Topic, offset: int) -> Any:
    rows = [DeleteRecordsPartition(partition_index=0, offset=offset)]
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic.name, partitions=rows)], timeout_ms=REQUEST_TIMEOUT_MS
    )
    response = await trial.ask(Api.DELETE_RECORDS, request, node=await trial.leader(topic))
    return response.topics[0].partitions[0]


@CHECKS.check({Api.DELETE_RECORDS: 0, Api.PRODUCE: 3, Api.FETCH: 4})
async def deleting_records(trial: Trial) -> None:
    """DeleteRecords moves the start of a log; what is before it is OFFSET_OUT_OF_RANGE."""
    topic = await trial.topic()
    for number in range(4):
        await trial.write(topic, b"%d" % number)
    row = await _trim(trial, topic, 2)
    expect_error("DeleteRecords", row.error_code, ErrorCode.NONE)
    expect("the low watermark", row.low_watermark, 2)
    fetched = await trial.fetch(topic, 1)
    expect_error("a deleted offset", fetched.error_code, ErrorCode.OFFSET_OUT_OF_RANGE)
    expect("what is left", await trial.values(topic, 2, start=2), [b"2", b"3"])
    expect("the low watermark after deleting all", (await _trim(trial, topic, -1)).low_watermark, 4)
    beyond = await _trim(trial, topic, 100)
    expect_error("an offset behind the end", beyond.error_code, ErrorCode.OFFSET_OUT_OF_RANGE)


async def _configs(trial: Trial, topic: str, *names: str) -> Any:
    resource = DescribeConfigsResource(
        resource_type=_TOPIC, resource_name=topic, configuration_keys=list(names) or None
    )
    response = await trial.ask(Api.DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[resource]))
    return response.results[0]


async def _until_config(trial: Trial, topic: str, name: str, value: str) -> Any:
    """Wait until all that was changed has reached the broker that is asked; return the row."""
    while True:
        found = {row.name: row for row in (await _configs(trial, topic, name)).configs}
        if name in found and found[name].value == value:
            return found[name]
        seen = found[name].value if name in found else "not listed"
        trial.waiting_for = f"{name} of {topic} to be {value}; it is {seen}"
        await asyncio.sleep(_PAUSE_S)


async def _alter(trial: Trial, topic: str, name: str, operation: int, value: str | None) -> int:
    row = incremental_alter_configs.AlterableConfig(name=name, config_operation=operation, value=value)
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=_TOPIC, resource_name=topic, configs=[row])
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    response = await trial.ask(Api.INCREMENTAL_ALTER_CONFIGS, request, node=trial.controller)
    return int(response.responses[0].error_code)


@CHECKS.check({Api.DESCRIBE_CONFIGS: 1})
async def describing_options(trial: Trial) -> None:
    """The options of a topic are described with their values, and those that were set say so."""
    topic = await trial.topic(configs={"retention.ms": "1234567"})
    row = await _until_config(trial, topic.name, "retention.ms", "1234567")
    expect("the source of retention.ms", row.config_source, _TOPIC_CONFIG_SOURCE)
    everything = {each.name for each in (await _configs(trial, topic.name)).configs}
    common = {"cleanup.policy", "retention.ms", "retention.bytes", "segment.bytes", "max.message.bytes"}
    expect_that(common <= everything, "the common options", f"missing: {', '.join(sorted(common - everything))}")
    unknown = await _configs(trial, trial.name("unknown"))
    expect_error("an unknown topic", unknown.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@CHECKS.check(_INCREMENTAL)
async def changing_options(trial: Trial) -> None:
    """Options are set, extended, shortened and reset one by one."""
    topic = await trial.topic()
    steps: list[tuple[str, int, str | None, str]] = [
        ("retention.ms", _SET, "1234567", "1234567"),
        ("cleanup.policy", _SET, "delete", "delete"),
        ("cleanup.policy", _APPEND, "compact", "delete,compact"),
        ("cleanup.policy", _SUBTRACT, "delete", "compact"),
    ]
    for name, operation, value, expected in steps:
        expect_error(f"{name}={value}", await _alter(trial, topic.name, name, operation, value), ErrorCode.NONE)
        await _until_config(trial, topic.name, name, expected)
    expect_error("a reset", await _alter(trial, topic.name, "retention.ms", _DELETE, None), ErrorCode.NONE)
    while (row := (await _configs(trial, topic.name, "retention.ms")).configs[0]).config_source == _TOPIC_CONFIG_SOURCE:
        trial.waiting_for = f"retention.ms to be reset; it is {row.value}"
        await asyncio.sleep(_PAUSE_S)


@CHECKS.check(_INCREMENTAL)
async def refused_options(trial: Trial) -> None:
    """A wrong value and an unknown option are INVALID_CONFIG, and change nothing."""
    topic = await trial.topic()
    for name, value in (("retention.ms", "soon"), ("no.such.option", "1")):
        code = await _alter(trial, topic.name, name, _SET, value)
        expect_error(f"{name}={value}", code, ErrorCode.INVALID_CONFIG)


@CHECKS.check({Api.ALTER_CONFIGS: 0, Api.DESCRIBE_CONFIGS: 1})
async def replacing_options(trial: Trial) -> None:
    """AlterConfigs replaces all options that were set."""
    topic = await trial.topic(configs={"retention.ms": "1234567"})
    row = alter_configs.AlterableConfig(name="segment.ms", value="7654321")
    resource = alter_configs.AlterConfigsResource(resource_type=_TOPIC, resource_name=topic.name, configs=[row])
    request = alter_configs.AlterConfigsRequest(resources=[resource], validate_only=False)
    response = await trial.ask(Api.ALTER_CONFIGS, request, node=trial.controller)
    expect_error("AlterConfigs", response.responses[0].error_code, ErrorCode.NONE)
    await _until_config(trial, topic.name, "segment.ms", "7654321")
    left = (await _configs(trial, topic.name, "retention.ms")).configs[0]
    expect_that(left.config_source != _TOPIC_CONFIG_SOURCE, "retention.ms to be reset", f"it is {left.value}")


@CHECKS.check({Api.DESCRIBE_LOG_DIRS: 1, Api.PRODUCE: 3})
async def log_directories(trial: Trial) -> None:
    """The leader reports the partition in one of its log directories, with its size."""
    topic = await trial.topic()
    await trial.write(topic, bytes(10_000))
    request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic.name, partitions=[0])])
    response = await trial.ask(Api.DESCRIBE_LOG_DIRS, request, node=await trial.leader(topic))
    rows = [row for each in response.results for name in each.topics for row in name.partitions]
    expect("the copies of the partition", len(rows), 1)
    expect_that(rows[0].partition_size >= 10_000, "a size of 10,000 bytes or more", rows[0].partition_size)


@CHECKS.check({Api.ELECT_LEADERS: 1})
async def needless_election(trial: Trial) -> None:
    """Electing the preferred leader of a partition that has it is ELECTION_NOT_NEEDED."""
    topic = await trial.topic()
    rows = [TopicPartitions(topic=topic.name, partitions=[0])]
    request = ElectLeadersRequest(topic_partitions=rows, timeout_ms=REQUEST_TIMEOUT_MS)
    response = await trial.ask(Api.ELECT_LEADERS, request, node=trial.controller)
    row = response.replica_election_results[0].partition_result[0]
    expect_error("an election", row.error_code, ErrorCode.ELECTION_NOT_NEEDED)


@CHECKS.check({Api.ALTER_PARTITION_REASSIGNMENTS: 0, Api.PRODUCE: 3, Api.FETCH: 4, Api.INIT_PRODUCER_ID: 0}, brokers=2)
async def moving_a_partition(trial: Trial) -> None:
    """A partition that is moved to another broker under load has all records of an idempotent producer, in order."""
    topic = await trial.topic()
    leader = await trial.leader(topic)
    target = next(node for node in trial.brokers if node != leader)
    values = [b"%d" % number for number in range(_MOVED_RECORDS)]
    writing = asyncio.create_task(trial.write_all(topic, values))
    try:
        row = ReassignablePartition(partition_index=0, replicas=[target])
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=REQUEST_TIMEOUT_MS, topics=[ReassignableTopic(name=topic.name, partitions=[row])]
        )
        response = await trial.ask(Api.ALTER_PARTITION_REASSIGNMENTS, request, node=trial.controller)
        expect_error("the reassignment", response.responses[0].partitions[0].error_code, ErrorCode.NONE)
        while await trial.leader(topic) != target:
            trial.waiting_for = f"broker {target} to lead the partition"
            await asyncio.sleep(_PAUSE_S)
            await trial.client.metadata((topic.name,), force=True)
        await writing
    finally:
        writing.cancel()
    expect("the values after the move", await trial.values(topic, len(values), node=target), values)


@CHECKS.check({Api.ALTER_CLIENT_QUOTAS: 0, Api.DESCRIBE_CLIENT_QUOTAS: 0})
async def quotas(trial: Trial) -> None:
    """A quota of a client id is set, described and removed."""
    client_id = trial.name("client")

    async def alter(*, remove: bool) -> int:
        row = RequestEntryData(
            entity=[RequestEntityData(entity_type="client-id", entity_name=client_id)],
            ops=[OpData(key=_QUOTA, value=0.0 if remove else 1_000_000.0, remove=remove)],
        )
        request = AlterClientQuotasRequest(entries=[row], validate_only=False)
        response = await trial.ask(Api.ALTER_CLIENT_QUOTAS, request, node=trial.controller)
        return int(response.entries[0].error_code)

    async def until(expected: dict[str, float]) -> None:
        while True:
            component = ComponentData(entity_type="client-id", match_type=0, match=client_id)
            request = DescribeClientQuotasRequest(components=[component], strict=True)
            response = await trial.ask(Api.DESCRIBE_CLIENT_QUOTAS, request)
            expect_error("DescribeClientQuotas", response.error_code, ErrorCode.NONE)
            found = {each.key: each.value for row in response.entries or () for each in row.values}
            if found == expected:
                return
            trial.waiting_for = f"the quotas to be {expected}; they are {found}"
            await asyncio.sleep(_PAUSE_S)

    expect_error("setting a quota", await alter(remove=False), ErrorCode.NONE)
    try:
        await until({_QUOTA: 1_000_000.0})
    finally:
        code = await alter(remove=True)
    expect_error("removing a quota", code, ErrorCode.NONE)
    await until({})


@CHECKS.check({Api.DESCRIBE_ACLS: 1, Api.CREATE_ACLS: 1, Api.DELETE_ACLS: 1})
async def acls(trial: Trial) -> None:
    """An ACL is created, described and deleted, where the cluster has an authorizer."""
    name = trial.name("topic")
    what = {"principal": _NOBODY, "host": "*", "operation": AclOperation.READ}
    asked = DescribeAclsRequest(
        resource_type_filter=ResourceType.TOPIC,
        resource_name_filter=name,
        pattern_type_filter=PatternType.LITERAL,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=AclPermissionType.ANY,
    )

    async def until(count: int) -> None:
        while True:
            response = await trial.ask(Api.DESCRIBE_ACLS, asked)
            if response.error_code == ErrorCode.SECURITY_DISABLED:
                raise NotApplicable("the cluster has no authorizer")
            expect_error("DescribeAcls", response.error_code, ErrorCode.NONE)
            found = [(name, row.principal) for each in response.resources for row in each.acls]
            if found == [(name, _NOBODY)] * count:
                return
            trial.waiting_for = f"{count} ACLs to be described; {len(found)} are"
            await asyncio.sleep(_PAUSE_S)

    await until(0)
    creation = AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=name,
        resource_pattern_type=PatternType.LITERAL,
        permission_type=AclPermissionType.ALLOW,
        **what,  # type: ignore[arg-type]
    )
    created = await trial.ask(Api.CREATE_ACLS, CreateAclsRequest(creations=[creation]), node=trial.controller)
    expect_error("CreateAcls", created.results[0].error_code, ErrorCode.NONE)
    row = DeleteAclsFilter(
        resource_type_filter=ResourceType.TOPIC,
        resource_name_filter=name,
        pattern_type_filter=PatternType.LITERAL,
        principal_filter=_NOBODY,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=AclPermissionType.ANY,
    )
    try:
        await until(1)
    finally:
        deleted = await trial.ask(Api.DELETE_ACLS, DeleteAclsRequest(filters=[row]), node=trial.controller)
    expect_error("DeleteAcls", deleted.filter_results[0].error_code, ErrorCode.NONE)
    await until(0)
