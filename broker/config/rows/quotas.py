"""Options of quotas: the windows over which rates are measured, and the throttles of replication."""

from __future__ import annotations

from ottla.broker.config.kinds import Int, Long
from ottla.broker.config.option import CLUSTER_WIDE, LONG_MAX, Option, Options


class QuotaOptions(Options):
    """Windows and throttles."""

    theme = "Quotas"

    quota_window_num = Option(Int(at_least=1), 11, "Samples kept for client quotas.")
    quota_window_size_seconds = Option(Int(at_least=1), 1, "Length of a sample for client quotas, in seconds.")
    replication_quota_window_num = Option(Int(at_least=1), 11, "Samples kept for replication throttles.")
    replication_quota_window_size_seconds = Option(
        Int(at_least=1), 1, "Length of a sample for replication throttles, in seconds."
    )
    alter_log_dirs_replication_quota_window_num = Option(
        Int(at_least=1), 11, "Samples kept for the throttle of moves between log directories."
    )
    alter_log_dirs_replication_quota_window_size_seconds = Option(
        Int(at_least=1), 1, "Length of a sample for the throttle of moves between log directories, in seconds."
    )
    controller_quota_window_num = Option(Int(at_least=1), 11, "Samples kept for quotas on changes of topics.")
    controller_quota_window_size_seconds = Option(
        Int(at_least=1), 1, "Length of a sample for quotas on changes of topics, in seconds."
    )
    leader_replication_throttled_rate = Option(
        Long(at_least=0), LONG_MAX, "Bytes per second that leaders send to throttled replicas.", CLUSTER_WIDE
    )
    follower_replication_throttled_rate = Option(
        Long(at_least=0), LONG_MAX, "Bytes per second that throttled followers fetch.", CLUSTER_WIDE
    )
    replica_alter_log_dirs_io_max_bytes_per_second = Option(
        Long(at_least=0),
        LONG_MAX,
        "Bytes per second at which replicas are copied between log directories.",
        CLUSTER_WIDE,
    )
