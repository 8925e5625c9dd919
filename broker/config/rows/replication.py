"""Options of replication, the controller, and purgatory."""

from __future__ import annotations

from ottla.broker.config.kinds import Boolean, Int, List, Long, String
from ottla.broker.config.option import CLUSTER_WIDE, SECONDS, MiB, Option, Options

_NO_SWEEP = "finished requests leave purgatory at once"


class ReplicationOptions(Options):
    """Followers and the ISR."""

    theme = "Replication"

    replica_lag_time_max_ms = Option(
        Long(at_least=1), 30 * SECONDS, "How long a follower may be behind the leader before it leaves the ISR."
    )
    replica_fetch_max_bytes = Option(Int(at_least=0), 1 * MiB, "Bytes that a follower fetches per partition.")
    replica_fetch_response_max_bytes = Option(Int(at_least=0), 10 * MiB, "Bytes that a follower fetches per request.")
    replica_fetch_min_bytes = Option(Int(at_least=0), 1, "Bytes that a follower's fetch waits for.")
    replica_fetch_wait_max_ms = Option(Int(at_least=0), 500, "How long a follower's fetch waits for these bytes.")
    replica_fetch_backoff_ms = Option(
        Int(at_least=0), 1 * SECONDS, "Pause of a follower after an error in a partition."
    )
    replica_socket_timeout_ms = Option(Int(at_least=1), 30 * SECONDS, "Timeout of a follower's requests to its leader.")
    replica_socket_receive_buffer_bytes = Option(
        Int(at_least=-1),
        -1,
        "Receive buffer of a follower's socket; -1 lets the system choose.",
        kafka_default="65536",
    )
    replica_high_watermark_checkpoint_interval_ms = Option(
        Long(at_least=1), 5 * SECONDS, "How often the high watermarks are written to disk."
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
        "Where consumers read: from the leader, or (rack-aware, for short) from a replica in their rack.",
    )
    num_replica_fetchers = Option(Int(at_least=1), 1, "Fetcher threads for each leader.", CLUSTER_WIDE)
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
        Boolean(), False, "Elect an out-of-sync replica if no other is alive; records may be lost.", CLUSTER_WIDE
    )
    auto_leader_rebalance_enable = Option(Boolean(), True, "Move leadership back to the preferred replicas.")
    leader_imbalance_per_broker_percentage = Option(
        Int(at_least=0), 10, "Percentage of a broker's preferred partitions led by others that starts a rebalance."
    )
    leader_imbalance_check_interval_seconds = Option(
        Long(at_least=1), 300, "How often the controller checks for imbalance, in seconds."
    )
    ottla_drained_brokers = Option(
        List(matching=r"(\d{1,9}(,\d{1,9})*)?", explained="broker ids, separated by commas"),
        (),
        "Brokers that get no new replicas, and give theirs away; `ottla broker drain` changes it.",
        CLUSTER_WIDE,
    )
    ottla_balance = Option(
        String(one_of=("off", "auto")),
        "off",
        "With `auto`, the controller moves replicas and leaders by itself: new brokers fill, drained ones empty.",
        CLUSTER_WIDE,
    )
    ottla_balance_interval_ms = Option(
        Long(at_least=100),
        60 * SECONDS,
        "How often the controller checks whether brokers have about the same load, with `ottla.balance=auto`.",
        CLUSTER_WIDE,
    )
    ottla_balance_moves_per_broker = Option(
        Int(at_least=1),
        5,
        "Moves that copy from or to one broker at a time, with `ottla.balance=auto`.",
        CLUSTER_WIDE,
    )
    ottla_balance_bytes_per_second = Option(
        Long(at_least=0),
        20 * MiB,
        "How fast these moves copy, for each broker; 0 for no limit.",
        CLUSTER_WIDE,
    )
    controller_socket_timeout_ms = Option(
        Int(at_least=1), 30 * SECONDS, "Timeout of the controller's requests to a broker."
    )
