"""Options of consumer groups, offsets and transactions."""

from __future__ import annotations

from ottla.broker.config.kinds import Boolean, Int, List, Long, Short
from ottla.broker.config.option import CLUSTER_WIDE, DAYS, HOURS, INT_MAX, MINUTES, SECONDS, KiB, MiB, Option, Options

# Options name an assignor by its name in the protocol, or by its class.
ASSIGNOR_NAMES = {
    "uniform": "uniform",
    "range": "range",
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}


class GroupOptions(Options):
    """Groups and their offsets."""

    theme = "Groups and offsets"

    group_min_session_timeout_ms = Option(Int(at_least=0), 6 * SECONDS, "Shortest session timeout of a member.")
    group_max_session_timeout_ms = Option(Int(at_least=0), 30 * MINUTES, "Longest session timeout of a member.")
    group_initial_rebalance_delay_ms = Option(
        Int(at_least=0), 3 * SECONDS, "How long an empty group waits for more members to join."
    )
    group_max_size = Option(Int(at_least=1), INT_MAX, "Maximum number of members of a group.")
    offset_metadata_max_bytes = Option(Int(at_least=0), 4 * KiB, "Maximum length of the metadata of an offset.")
    offsets_load_buffer_size = Option(Int(at_least=1), 5 * MiB, "Bytes read at a time when groups are loaded.")
    offsets_topic_replication_factor = Option(Short(at_least=1), 3, "Replicas of `__consumer_offsets`.")
    offsets_topic_num_partitions = Option(Int(at_least=1), 50, "Partitions of `__consumer_offsets`; never change it.")
    offsets_topic_segment_bytes = Option(Int(at_least=1), 100 * MiB, "Segment size of `__consumer_offsets`.")
    offsets_topic_compression_codec = Option(
        Int(at_least=0, at_most=4), 0, "Compression of `__consumer_offsets`: none, gzip, snappy, lz4, zstd."
    )
    offsets_retention_minutes = Option(
        Int(at_least=1), 7 * DAYS // MINUTES, "How long offsets are kept after their group became empty, in minutes."
    )
    offsets_retention_check_interval_ms = Option(Long(at_least=1), 10 * MINUTES, "How often old offsets are removed.")
    offsets_commit_timeout_ms = Option(
        Int(at_least=1), 5 * SECONDS, "How long a commit waits for the replicas of `__consumer_offsets`."
    )
    offsets_commit_required_acks = Option(
        Short(at_least=-1),
        -1,
        "Acknowledgements that a commit waits for; -1 means all in-sync replicas.",
        no_effect="a commit always waits for all in-sync replicas",
    )


class ConsumerGroupOptions(Options):
    """Groups of the new protocol, in which the coordinator assigns partitions."""

    theme = "Groups of the new protocol"

    group_consumer_session_timeout_ms = Option(
        Int(at_least=1), 45 * SECONDS, "Time without a heartbeat after which a member is removed from its group."
    )
    group_consumer_min_session_timeout_ms = Option(Int(at_least=1), 45 * SECONDS, "Shortest session timeout.")
    group_consumer_max_session_timeout_ms = Option(Int(at_least=1), 60 * SECONDS, "Longest session timeout.")
    group_consumer_heartbeat_interval_ms = Option(
        Int(at_least=1), 5 * SECONDS, "Time between two heartbeats of a member."
    )
    group_consumer_min_heartbeat_interval_ms = Option(Int(at_least=1), 5 * SECONDS, "Shortest heartbeat interval.")
    group_consumer_max_heartbeat_interval_ms = Option(Int(at_least=1), 15 * SECONDS, "Longest heartbeat interval.")
    group_consumer_max_size = Option(Int(at_least=1), INT_MAX, "Maximum number of members of a group.")
    group_consumer_assignors = Option(
        List(one_of=tuple(ASSIGNOR_NAMES)),
        tuple(ASSIGNOR_NAMES)[2:],
        "Assignors that members may ask for; the first one is the default.",
    )


class TransactionOptions(Options):
    """Transactions and producer ids."""

    theme = "Transactions"

    transaction_state_log_replication_factor = Option(Short(at_least=1), 3, "Replicas of `__transaction_state`.")
    transaction_state_log_min_isr = Option(Int(at_least=1), 2, "`min.insync.replicas` of `__transaction_state`.")
    transaction_state_log_num_partitions = Option(
        Int(at_least=1), 50, "Partitions of `__transaction_state`; never change it."
    )
    transaction_state_log_segment_bytes = Option(Int(at_least=1), 100 * MiB, "Segment size of `__transaction_state`.")
    transaction_state_log_load_buffer_size = Option(
        Int(at_least=1),
        5 * MiB,
        "Bytes read at a time when transactions are loaded.",
    )
    transaction_partition_verification_enable = Option(
        Boolean(),
        True,
        "Check with the coordinator that a partition is part of the transaction before a write.",
        CLUSTER_WIDE,
    )
    transaction_max_timeout_ms = Option(Int(at_least=1), 15 * MINUTES, "Maximum transaction timeout of a producer.")
    transactional_id_expiration_ms = Option(
        Int(at_least=1),
        7 * DAYS,
        "Idle time after which a transactional id expires.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms = Option(
        Int(at_least=1),
        10 * SECONDS,
        "How often transactions that have timed out are aborted.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = Option(
        Int(at_least=1),
        1 * HOURS,
        "How often expired transactional ids are removed.",
    )
    producer_id_expiration_ms = Option(
        Int(at_least=1), 1 * DAYS, "Idle time after which a partition forgets a producer.", CLUSTER_WIDE
    )
    producer_id_expiration_check_interval_ms = Option(
        Int(at_least=1), 10 * MINUTES, "How often partitions look for producers to forget."
    )
