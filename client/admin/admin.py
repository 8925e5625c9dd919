"""The admin client.

    async with Admin(bootstrap_servers="localhost:9092") as admin:
        await admin.create_topics([NewTopic("orders", num_partitions=6)])
        for topic in await admin.list_topics():
            print(topic.name, topic.num_partitions)

Calls about several things return one result for each. If one of them failed, its error is raised. With
`raise_errors=False` all results are returned, each with its `error`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Self, Unpack

from ottla.client.admin.lazy_module import LazyModule
from ottla.client.admin.routing import AdminRequests, raised
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.net.settings import ClientOptions, ClientSettings, Config, IsolationLevel

if TYPE_CHECKING:
    from ottla.client.admin import (
        cluster_requests,
        config_requests,
        group_requests,
        partition_requests,
        record_times,
        security_requests,
        token_requests,
        topic_requests,
        transaction_requests,
    )
    from ottla.client.admin.config_requests import ConfigValue
    from ottla.client.admin.group_results import GroupDescription, GroupListing, GroupOffset, GroupOutcome
    from ottla.client.admin.partition_requests import ElectionType
    from ottla.client.admin.results import (
        ApiSupport,
        ClusterDescription,
        ConfigDescription,
        ConfigOutcome,
        ConfigResource,
        CreatedTopic,
        DeletedRecords,
        DeletedTopic,
        ElectionOutcome,
        ListedOffset,
        LogDirDescription,
        NewTopic,
        PartitionOutcome,
        Reassignment,
        ReplicaOutcome,
        TopicDescription,
        TopicListing,
        TopicOutcome,
        TopicPartitionReplica,
        UndeletedTopic,
    )
    from ottla.client.admin.security_results import (
        AclBinding,
        AclFilter,
        AclOutcome,
        ClientQuota,
        ClientQuotaOutcome,
        DelegationTokenDescription,
        DeletedAcls,
        ScramCredentialDeletion,
        ScramCredentialUpsertion,
        UserOutcome,
        UserScramCredentials,
    )
    from ottla.client.admin.transaction_results import (
        FencedProducer,
        OpenTransaction,
        PartitionProducers,
        TransactionDescription,
        TransactionListing,
    )
    from ottla.client.net.client_metrics import Metrics
    from ottla.client.types import OffsetAndMetadata, TopicPartition
else:
    cluster_requests = LazyModule("ottla.client.admin.cluster_requests")
    config_requests = LazyModule("ottla.client.admin.config_requests")
    group_requests = LazyModule("ottla.client.admin.group_requests")
    partition_requests = LazyModule("ottla.client.admin.partition_requests")
    record_times = LazyModule("ottla.client.admin.record_times")
    security_requests = LazyModule("ottla.client.admin.security_requests")
    token_requests = LazyModule("ottla.client.admin.token_requests")
    topic_requests = LazyModule("ottla.client.admin.topic_requests")
    transaction_requests = LazyModule("ottla.client.admin.transaction_requests")

# The default of the brokers' transaction.max.timeout.ms.
MAX_TRANSACTION_TIMEOUT_MS: Final = 15 * 60 * 1000


class Admin:
    """Reads and changes a cluster; use it on one event loop, with `async with` or with `start` and `close`."""

    def __init__(self, **options: Unpack[ClientOptions]) -> None:
        """Take options; KafkaConfigurationError if one is unknown or not valid. Does not connect yet."""
        self._requests = AdminRequests(ClientSettings.from_kwargs(options))

    @classmethod
    def from_config(cls, config: Config, **overrides: Unpack[ClientOptions]) -> Self:
        """Take options with dotted names, from a mapping or a .properties file."""
        return cls(**ClientSettings.kwargs_from_config(config, overrides))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def cluster(self) -> ClusterClient:
        """Connections and metadata, for requests that have no method here."""
        return self._requests.cluster

    async def start(self) -> None:
        """Connect to the cluster; NoBrokersAvailable if no bootstrap server answers."""
        await self._requests.cluster.start()
        self._requests.cluster.report(self.metrics)

    async def close(self) -> None:
        """Close all connections."""
        await self._requests.cluster.close()

    def metrics(self) -> Metrics:
        """Return what the client has measured, by group and name as in Kafka's documentation."""
        return {"admin-client-metrics": self._requests.cluster.connection_metrics()}

    # Topics.

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, raise_errors: bool = True
    ) -> tuple[CreatedTopic, ...]:
        """Create topics; with `validate_only`, only check whether that would work."""
        results = await topic_requests.create_topics(self._requests, topics, validate_only=validate_only)
        return raised(results, raise_errors)

    async def delete_topics(self, names: Sequence[str], *, raise_errors: bool = True) -> tuple[TopicOutcome, ...]:
        """Delete topics and all their records."""
        results = await topic_requests.delete_topics(self._requests, names)
        return raised(results, raise_errors)

    async def list_deleted_topics(self) -> tuple[DeletedTopic, ...]:
        """List deleted topics that can be brought back, those deleted last first. Only our brokers know this."""
        return await topic_requests.list_deleted_topics(self._requests)

    async def undelete_topics(
        self, topics: Mapping[str, str | None], *, validate_only: bool = False, raise_errors: bool = True
    ) -> tuple[UndeletedTopic, ...]:
        """Bring deleted topics back with their records, options and committed offsets. Only our brokers can do this.

        `topics` has their ids, as `list_deleted_topics` returns them, each with a new name, or None for the old one.
        """
        results = await topic_requests.undelete_topics(self._requests, topics, validate_only=validate_only)
        return raised(results, raise_errors)

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> tuple[TopicOutcome, ...]:
        """Increase the partitions of topics to these numbers; `assignments` has the brokers of the new partitions."""
        results = await topic_requests.create_partitions(
            self._requests, counts, assignments=assignments, validate_only=validate_only
        )
        return raised(results, raise_errors)

    async def list_topics(self, *, include_internal: bool = False) -> tuple[TopicListing, ...]:
        """List all topics, sorted by name; internal topics only on request."""
        return await topic_requests.list_topics(self._requests, include_internal=include_internal)

    async def describe_topics(
        self, names: Collection[str] | None = None, *, raise_errors: bool = True
    ) -> tuple[TopicDescription, ...]:
        """Describe topics with their partitions; all topics if no names are given."""
        results = await topic_requests.describe_topics(self._requests, names)
        return raised(results, raise_errors)

    # The cluster, and options of topics and brokers.

    async def describe_cluster(self) -> ClusterDescription:
        """Return the id of the cluster, its controller and its live brokers."""
        return await cluster_requests.describe_cluster(self._requests)

    async def api_versions(self, broker_id: int) -> tuple[ApiSupport, ...]:
        """Return the APIs that a broker serves, with their versions."""
        return await cluster_requests.api_versions(self._requests, broker_id)

    async def describe_configs(
        self,
        resources: Sequence[ConfigResource],
        *,
        names: Collection[str] | None = None,
        include_documentation: bool = False,
        include_synonyms: bool = False,
        raise_errors: bool = True,
    ) -> tuple[ConfigDescription, ...]:
        """Return the options of topics and brokers: all options, or those with these names."""
        results = await config_requests.describe_configs(
            self._requests,
            resources,
            names=names,
            include_documentation=include_documentation,
            include_synonyms=include_synonyms,
        )
        return raised(results, raise_errors)

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, ConfigValue]],
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> tuple[ConfigOutcome, ...]:
        """Change options; others keep their values. None resets an option to its default."""
        results = await config_requests.alter_configs(self._requests, changes, validate_only=validate_only)
        return raised(results, raise_errors)

    # Partitions.

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, raise_errors: bool = True
    ) -> tuple[DeletedRecords, ...]:
        """Delete the records before an offset; -1 means all records."""
        results = await partition_requests.delete_records(self._requests, offsets)
        return raised(results, raise_errors)

    async def list_offsets(
        self,
        times: Mapping[TopicPartition, int],
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        raise_errors: bool = True,
    ) -> tuple[ListedOffset, ...]:
        """Look up the first offset at or after a time in milliseconds, or an OffsetSpec."""
        results = await partition_requests.list_offsets(self._requests, times, isolation_level=isolation_level)
        return raised(results, raise_errors)

    async def record_times(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the time of the record at or after each offset, in milliseconds; what cannot be read is left out.

        Each takes a batch from its leader, and the time is that of the first record in the batch.
        """
        return await record_times.record_times(self._requests.cluster, offsets)

    async def elect_leaders(
        self,
        partitions: Collection[TopicPartition] | None = None,
        *,
        election_type: ElectionType = "preferred",
        raise_errors: bool = True,
    ) -> tuple[ElectionOutcome, ...]:
        """Make the preferred replicas leaders, in all partitions if none are given.

        An unclean election elects any live replica where there is no leader; records may be lost. A partition that
        already has the right leader is missing in the result, or has no error there.
        """
        results = await partition_requests.elect_leaders(self._requests, partitions, election_type=election_type)
        return raised(results, raise_errors)

    async def alter_partition_reassignments(
        self,
        replicas: Mapping[TopicPartition, Sequence[int] | None],
        *,
        moves_per_broker: int = 0,
        bytes_per_second: int = 0,
        raise_errors: bool = True,
    ) -> tuple[PartitionOutcome, ...]:
        """Start to move partitions to these brokers, the preferred leader first; None cancels a move.

        With `moves_per_broker`, the controller starts so many for each broker at a time, and limits how fast each
        broker copies. Controllers of Apache Kafka do not know these limits, and start all moves at once.
        """
        results = await partition_requests.alter_partition_reassignments(
            self._requests, replicas, moves_per_broker=moves_per_broker, bytes_per_second=bytes_per_second
        )
        return raised(results, raise_errors)

    async def list_partition_reassignments(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> tuple[Reassignment, ...]:
        """List the current moves of these partitions, or of all."""
        return await partition_requests.list_partition_reassignments(self._requests, partitions)

    async def describe_log_dirs(
        self,
        partitions: Collection[TopicPartition] | None = None,
        *,
        brokers: Collection[int] | None = None,
        raise_errors: bool = True,
    ) -> tuple[LogDirDescription, ...]:
        """Describe the log directories of all brokers or of these, with these partitions or with all."""
        results = await partition_requests.describe_log_dirs(self._requests, partitions, brokers)
        return raised(results, raise_errors)

    async def alter_replica_log_dirs(
        self, moves: Mapping[TopicPartitionReplica, str], *, raise_errors: bool = True
    ) -> tuple[ReplicaOutcome, ...]:
        """Start to move replicas to other log directories of their brokers; `describe_log_dirs` shows the progress.

        Naming the current directory of a replica cancels its move. A replica that the broker does not have yet will be
        created in the directory; until then the outcome is ReplicaNotAvailableError.
        """
        results = await partition_requests.alter_replica_log_dirs(self._requests, moves)
        return raised(results, raise_errors)

    # Consumer groups.

    async def list_groups(self, *, brokers: Collection[int] | None = None) -> tuple[GroupListing, ...]:
        """List the groups of all coordinators, or of these brokers, sorted by name."""
        return await group_requests.list_groups(self._requests, brokers)

    async def describe_groups(
        self, group_ids: Sequence[str], *, raise_errors: bool = True
    ) -> tuple[GroupDescription, ...]:
        """Describe groups of both protocols, with their members."""
        results = await group_requests.describe_groups(self._requests, group_ids)
        return raised(results, raise_errors)

    async def delete_groups(self, group_ids: Sequence[str], *, raise_errors: bool = True) -> tuple[GroupOutcome, ...]:
        """Delete groups that have no members, with all their committed offsets."""
        results = await group_requests.delete_groups(self._requests, group_ids)
        return raised(results, raise_errors)

    async def list_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> tuple[GroupOffset, ...]:
        """Return the committed offsets of a group, for these partitions or for all; skips partitions without one."""
        return raised(await group_requests.list_group_offsets(self._requests, group_id, partitions), raise_errors=True)

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        raise_errors: bool = True,
    ) -> tuple[PartitionOutcome, ...]:
        """Set the committed offsets of a group that has no members; creates the group if needed."""
        results = await group_requests.alter_group_offsets(self._requests, group_id, offsets)
        return raised(results, raise_errors)

    async def delete_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition], *, raise_errors: bool = True
    ) -> tuple[PartitionOutcome, ...]:
        """Delete the committed offsets of partitions that no member of the group reads."""
        results = await group_requests.delete_group_offsets(self._requests, group_id, partitions)
        return raised(results, raise_errors)

    # Transactions.

    async def list_transactions(
        self,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        duration_ms: int | None = None,
        *,
        brokers: Collection[int] | None = None,
    ) -> tuple[TransactionListing, ...]:
        """List the transactional ids of all coordinators, or of these brokers, sorted by id.

        Filters select by state (Empty, Ongoing, PrepareCommit, ...), by producer id, and by the time since the
        transaction began. Ids that never began a transaction count as older than any `duration_ms`.
        """
        return await transaction_requests.list_transactions(self._requests, states, producer_ids, duration_ms, brokers)

    async def describe_transactions(
        self, ids: Sequence[str], *, raise_errors: bool = True
    ) -> tuple[TransactionDescription, ...]:
        """Describe transactional ids, each with its current or last transaction."""
        results = await transaction_requests.describe_transactions(self._requests, ids)
        return raised(results, raise_errors)

    async def describe_producers(
        self, partitions: Collection[TopicPartition], broker_id: int | None = None, *, raise_errors: bool = True
    ) -> tuple[PartitionProducers, ...]:
        """Return the producers that partitions remember, by their leaders or by one broker that has replicas."""
        results = await transaction_requests.describe_producers(self._requests, partitions, broker_id)
        return raised(results, raise_errors)

    async def list_open_transactions(
        self, partitions: Collection[TopicPartition], *, raise_errors: bool = True
    ) -> tuple[OpenTransaction, ...]:
        """Return the transactions that are open in partitions, with what their coordinators know of them.

        Transactional ids that the caller may not describe look as if there were none.
        """
        results = await transaction_requests.list_open_transactions(self._requests, partitions)
        return raised(results, raise_errors)

    async def find_hanging_transactions(
        self,
        topics: Collection[str] | None = None,
        *,
        broker_id: int | None = None,
        max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
        raise_errors: bool = True,
    ) -> tuple[OpenTransaction, ...]:
        """Find transactions that no coordinator will end, in these topics or in all; `abort_transaction` ends them.

        Looks at transactions whose last record is older than `max_transaction_timeout_ms`. With `broker_id`, looks at
        the replicas of that broker. Transactional ids that the caller may not describe look as if there were none.
        """
        results = await transaction_requests.find_hanging_transactions(
            self._requests, topics, broker_id, max_transaction_timeout_ms
        )
        return raised(results, raise_errors)

    async def abort_transaction(
        self,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int | None = None,
        *,
        raise_errors: bool = True,
    ) -> PartitionOutcome:
        """Abort the open transaction of a producer in one partition; `describe_producers` has the numbers.

        Only for a transaction that hangs. If a coordinator knows it, use `fence_producers`: it may be committed in its
        other partitions.
        """
        results = await transaction_requests.abort_transaction(
            self._requests, partition, producer_id, producer_epoch, coordinator_epoch
        )
        (outcome,) = raised(results, raise_errors)
        return outcome

    async def fence_producers(self, ids: Sequence[str], *, raise_errors: bool = True) -> tuple[FencedProducer, ...]:
        """Abort the open transactions of transactional ids, and shut out the producers that use these ids now.

        An id that does not exist is created.
        """
        results = await transaction_requests.fence_producers(self._requests, ids)
        return raised(results, raise_errors)

    # ACLs, quotas and users.

    async def create_acls(self, acls: Sequence[AclBinding], *, raise_errors: bool = True) -> tuple[AclOutcome, ...]:
        """Add ACLs; an existing one is not an error."""
        results = await security_requests.create_acls(self._requests, acls)
        return raised(results, raise_errors)

    async def describe_acls(self, matching: AclFilter | None = None) -> tuple[AclBinding, ...]:
        """Return the ACLs that a filter matches; all of them without a filter."""
        return await security_requests.describe_acls(self._requests, matching)

    async def delete_acls(self, filters: Sequence[AclFilter], *, raise_errors: bool = True) -> tuple[DeletedAcls, ...]:
        """Delete the ACLs that each filter matches."""
        results = await security_requests.delete_acls(self._requests, filters)
        return raised(results, raise_errors)

    async def describe_client_quotas(
        self, entity: Mapping[str, str | None] | None = None, *, strict: bool = False
    ) -> tuple[ClientQuota, ...]:
        """Return the quotas of all entities that have these names; None means the default, ANY_NAME any name.

        With `strict`, only those of entities that have no further names.
        """
        return await security_requests.describe_client_quotas(self._requests, entity, strict=strict)

    async def alter_client_quotas(
        self,
        changes: Sequence[tuple[Mapping[str, str | None], Mapping[str, float | None]]],
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> tuple[ClientQuotaOutcome, ...]:
        """Change quotas of entities; others keep their values. None removes a quota."""
        results = await security_requests.alter_client_quotas(self._requests, changes, validate_only=validate_only)
        return raised(results, raise_errors)

    async def describe_user_scram_credentials(
        self, users: Sequence[str] | None = None, *, raise_errors: bool = True
    ) -> tuple[UserScramCredentials, ...]:
        """Return the SCRAM credentials of these users, or of all users."""
        results = await security_requests.describe_user_scram_credentials(self._requests, users)
        return raised(results, raise_errors)

    async def alter_user_scram_credentials(
        self,
        alterations: Sequence[ScramCredentialUpsertion | ScramCredentialDeletion],
        *,
        raise_errors: bool = True,
    ) -> tuple[UserOutcome, ...]:
        """Set and delete SCRAM credentials; all changes to one user are applied at once."""
        results = await security_requests.alter_user_scram_credentials(self._requests, alterations)
        return raised(results, raise_errors)

    async def create_delegation_token(
        self, *, owner: str | None = None, renewers: Sequence[str] = (), max_lifetime_ms: int = -1
    ) -> DelegationTokenDescription:
        """Create a delegation token of our own, or of an owner such as `User:alice` if we have the right to.

        The connection must be authenticated, and not by a token. -1 is the longest lifetime that brokers allow.
        """
        return await token_requests.create_delegation_token(self._requests, owner, renewers, max_lifetime_ms)

    async def renew_delegation_token(self, hmac: str, *, period_ms: int = -1) -> int:
        """Have a token last for so long from now, by default as brokers say; return its new time of expiry."""
        return await token_requests.renew_delegation_token(self._requests, hmac, period_ms)

    async def expire_delegation_token(self, hmac: str, *, period_ms: int = -1) -> int:
        """Have a token expire after so long, by default at once; return its time of expiry."""
        return await token_requests.expire_delegation_token(self._requests, hmac, period_ms)

    async def describe_delegation_tokens(
        self, owners: Sequence[str] | None = None
    ) -> tuple[DelegationTokenDescription, ...]:
        """Return the tokens of these owners, such as `User:alice`, or of all, as far as we may see them."""
        return await token_requests.describe_delegation_tokens(self._requests, owners)
