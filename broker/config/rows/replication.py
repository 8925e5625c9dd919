"""Replication, the controller, and purgatory."""

from __future__ import annotations

from ottla.broker.config.kinds import Boolean, Int, Long, String
from ottla.broker.config.option import CLUSTER_WIDE, SECONDS, MiB, Option, Options

_NO_SWEEP = "finished requests leave purgatory at once"


class ReplicationOptions(Options):
    """Followers and the in-sync set."""

    theme = "Replication"

    replica_lag_time_max_ms = Option(
        Long(at_least=1), 30 * SECONDS, "Time behind the leader after which a follower is out of sync."
    )
    replica_fetch_max_bytes = Option(Int(at_least=0), 1 * MiB, "Bytes that a follower asks for in one partition.")
    replica_fetch_response_max_bytes = Option(Int(at_least=0), 10 * MiB, "Bytes that a follower asks for in one fetch.")
    replica_fetch_min_bytes = Option(Int(at_least=0), 1, "Bytes that a follower's fetch waits for.")
    replica_fetch_wait_max_ms = Option(Int(at_least=0), 500, "How long a follower's fetch waits for its bytes.")
    replica_fetch_backoff_ms = Option(
        Int(at_least=0), 1 * SECONDS, "Pause of a follower after an error in a partition."
    )
    replica_socket_timeout_ms = Option(Int(at_least=1), 30 * SECONDS, "Limit for the leader's answer to a fetch.")
    replica_socket_receive_buffer_bytes = Option(
        Int(at_least=-1),
        -1,
        "Receive buffer of a follower's socket; -1 is the system's, which grows.",
        kafka_default="65536",
    )
    replica_high_watermark_checkpoint_interval_ms = Option(
        Long(at_least=1), 5 * SECONDS, "How often the high watermarks are written down."
    )
    replica_selector_class = Option(
        String(
            one_of=(
                "org.apache.kafka.common.replica.LeaderSelector",
                "org.apache.kafka.common.replica.RackAwareReplicaSelector",
                "rack-aware",
            )
        ),
        None,
        "Where consumers are sent to read: to the leader, or (rack-aware, for short) to a replica of their rack.",
    )
    num_replica_fetchers = Option(Int(at_least=1), 1, "Fetchers for each broker that is followed.", CLUSTER_WIDE)
    num_replica_alter_log_dirs_threads = Option(
        Int(at_least=1),
        None,
        "Threads that move replicas between log directories.",
        default_note="one for each log directory",
    )
    fetch_purgatory_purge_interval_requests = Option(
        Int(at_least=1), 1000, "Finished fetches after which purgatory is swept.", no_effect=_NO_SWEEP
    )
    producer_purgatory_purge_interval_requests = Option(
        Int(at_least=1), 1000, "Finished produce requests after which purgatory is swept.", no_effect=_NO_SWEEP
    )
    delete_records_purgatory_purge_interval_requests = Option(
        Int(at_least=1), 1, "Finished record deletions after which purgatory is swept.", no_effect=_NO_SWEEP
    )


class ControllerOptions(Options):
    """Leaders and the controller."""

    theme = "Controller"

    unclean_leader_election_enable = Option(
        Boolean(), False, "Let an out-of-sync replica lead if no other lives, at the price of records.", CLUSTER_WIDE
    )
    auto_leader_rebalance_enable = Option(Boolean(), True, "Give leadership back to the preferred replicas.")
    leader_imbalance_per_broker_percentage = Option(
        Int(at_least=0), 10, "Share of partitions led by others from which a broker's are given back, in percent."
    )
    leader_imbalance_check_interval_seconds = Option(
        Long(at_least=1), 300, "How often the controller looks for imbalance, in seconds."
    )
    controller_socket_timeout_ms = Option(
        Int(at_least=1), 30 * SECONDS, "Limit for a broker's answer to the controller."
    )
