"""The options of a topic, each with the broker option that gives its default."""

from __future__ import annotations

from typing import TypeVar

from ottla.broker.config.kinds import List, Long
from ottla.broker.config.option import Option, Options
from ottla.broker.config.rows.logs import CleanerOptions, LogOptions, RecordOptions
from ottla.broker.config.rows.replication import ControllerOptions

T = TypeVar("T")


def _same(row: Option[T], documentation: str) -> Option[T]:
    """Return a topic option of the same kind as the broker option that is its default."""
    return Option(row.kind, row, documentation, no_effect=row.no_effect)


class TopicOptions(Options):
    """The options of one topic. All of them can be changed while the brokers run."""

    theme = "Topics"

    segment_bytes = _same(LogOptions.log_segment_bytes, "Size at which a segment is closed.")
    segment_ms = _same(LogOptions.log_roll_ms, "Age at which a segment is closed.")
    segment_jitter_ms = _same(LogOptions.log_roll_jitter_ms, "Random time subtracted from that age.")
    segment_index_bytes = _same(LogOptions.log_index_size_max_bytes, "Maximum size of a segment's index.")
    index_interval_bytes = _same(LogOptions.log_index_interval_bytes, "Bytes of records between two index entries.")
    preallocate = _same(LogOptions.log_preallocate, "Reserve the disk space of a whole segment at once.")
    file_delete_delay_ms = _same(LogOptions.log_segment_delete_delay_ms, "Delay before deleted files are removed.")
    flush_messages = _same(LogOptions.log_flush_interval_messages, "Number of records after which the log is flushed.")
    flush_ms = _same(LogOptions.log_flush_interval_ms, "Age of unflushed records at which the log is flushed.")
    ottla_flush_before_ack = _same(
        LogOptions.ottla_log_flush_before_ack,
        "Flush records to disk before they are acknowledged, many at a time.",
    )
    ottla_check_records = _same(
        LogOptions.ottla_log_check_records,
        "Decode every batch and refuse it if a record is malformed. Makes an append several times as expensive.",
    )

    cleanup_policy = _same(LogOptions.log_cleanup_policy, "Delete old segments, compact by key, or both.")
    retention_bytes = _same(LogOptions.log_retention_bytes, "Size up to which a partition is kept; -1 means no limit.")
    retention_ms = Option(
        Long(at_least=-1), LogOptions.log_retention_ms, "How long records are kept; -1 means forever, 0 not at all."
    )
    delete_retention_ms = _same(
        CleanerOptions.log_cleaner_delete_retention_ms, "How long a tombstone stays after it is compacted."
    )
    min_cleanable_dirty_ratio = _same(
        CleanerOptions.log_cleaner_min_cleanable_ratio, "Share of dirty bytes from which the log is compacted."
    )
    min_compaction_lag_ms = _same(
        CleanerOptions.log_cleaner_min_compaction_lag_ms, "Age below which a record is not compacted."
    )
    max_compaction_lag_ms = _same(
        CleanerOptions.log_cleaner_max_compaction_lag_ms,
        "Age from which a record is compacted at any dirty ratio.",
    )

    ottla_undelete_ms = _same(
        RecordOptions.ottla_topic_undelete_ms,
        "How long the records are kept after the topic is deleted, so that it can be brought back; 0: not at all.",
    )

    max_message_bytes = _same(RecordOptions.message_max_bytes, "Maximum size of a compressed batch.")
    min_insync_replicas = _same(
        RecordOptions.min_insync_replicas, "In-sync replicas below which a write with acks=all is refused."
    )
    unclean_leader_election_enable = _same(
        ControllerOptions.unclean_leader_election_enable, "Elect an out-of-sync replica if no other is alive."
    )
    compression_type = _same(RecordOptions.compression_type, "Compression of the log; `producer` keeps the producer's.")
    compression_gzip_level = _same(RecordOptions.compression_gzip_level, "Level if the broker compresses with gzip.")
    compression_lz4_level = _same(RecordOptions.compression_lz4_level, "Level if the broker compresses with lz4.")
    compression_zstd_level = _same(RecordOptions.compression_zstd_level, "Level if the broker compresses with zstd.")
    message_timestamp_type = _same(RecordOptions.log_message_timestamp_type, "Timestamp from producer or broker.")
    message_timestamp_before_max_ms = _same(
        RecordOptions.log_message_timestamp_before_max_ms, "How far a timestamp may be behind the broker's clock."
    )
    message_timestamp_after_max_ms = _same(
        RecordOptions.log_message_timestamp_after_max_ms, "How far a timestamp may be ahead of the broker's clock."
    )
    message_timestamp_difference_max_ms = _same(
        RecordOptions.log_message_timestamp_difference_max_ms,
        "Old limit; it counts if the limit for before or after is not set.",
    )
    message_downconversion_enable = _same(
        RecordOptions.log_message_downconversion_enable,
        "Convert batches for consumers that only know older formats.",
    )

    leader_replication_throttled_replicas = Option(
        List(matching=r"\*|(\d+:\d+(,\d+:\d+)*)?", explained="`*`, or partition:broker, separated by commas"),
        (),
        "Replicas to which the leader sends no faster than `leader.replication.throttled.rate`.",
    )
    follower_replication_throttled_replicas = Option(
        List(matching=r"\*|(\d+:\d+(,\d+:\d+)*)?", explained="`*`, or partition:broker, separated by commas"),
        (),
        "Replicas that fetch no faster than `follower.replication.throttled.rate`.",
    )


TOPIC_OPTIONS = TopicOptions.rows()
