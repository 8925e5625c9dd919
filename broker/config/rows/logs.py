"""Options of logs: directories, segments, retention, flush, checks of batches, compaction.

Most of them are the defaults of the topic options in `topics.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

from ottla.broker.config.addresses import DirectoriesKind
from ottla.broker.config.kinds import Boolean, Double, Int, List, Long, String
from ottla.broker.config.option import (
    CLUSTER_WIDE,
    DAYS,
    LONG_MAX,
    MINUTES,
    SECONDS,
    GiB,
    KiB,
    MiB,
    Option,
    Options,
)


class LogOptions(Options):
    """Directories, segments, retention and flush."""

    theme = "Logs"

    log_dir = Option(
        DirectoriesKind(),
        (Path(os.environ.get("TMPDIR", "/tmp")) / "kafka-logs",),  # noqa: S108 - as in Kafka
        "Directory of the logs if `log.dirs` is not set.",
        default_note="`kafka-logs` in the system's temporary directory",
    )
    log_dirs = Option(DirectoriesKind(), log_dir, "Directories of the logs; a new partition goes to the emptiest.")
    ottla_log_min_free_bytes = Option(
        Long(at_least=0),
        256 * MiB,
        "Free space on the disk of a log directory below which records of producers are refused; 0 means no limit.",
        CLUSTER_WIDE,
    )
    ottla_log_min_free_percent = Option(
        Double(at_least=0, at_most=100),
        1.0,
        "The same as a share of the disk, in percent; the larger of the two counts. Followers stop copying at half of "
        "that space, groups and transactions at a quarter.",
        CLUSTER_WIDE,
    )
    ottla_log_open_files_max = Option(Int(at_least=1), 1000, "Segment files kept open at once; others open on demand.")

    log_segment_bytes = Option(Int(at_least=14), 1 * GiB, "Size at which a segment is closed.", CLUSTER_WIDE)
    log_roll_hours = Option(Int(at_least=1), 168, "Age at which a segment is closed, in hours.")
    log_roll_ms = Option(Long(at_least=1), log_roll_hours, "Age at which a segment is closed.", CLUSTER_WIDE)
    log_roll_jitter_hours = Option(Int(at_least=0), 0, "Random time subtracted from that age, in hours.")
    log_roll_jitter_ms = Option(
        Long(at_least=0),
        log_roll_jitter_hours,
        "Random time subtracted from that age, so that segments do not all roll at once.",
        CLUSTER_WIDE,
    )
    log_index_size_max_bytes = Option(Int(at_least=4), 10 * MiB, "Maximum size of a segment's index.", CLUSTER_WIDE)
    log_index_interval_bytes = Option(
        Int(at_least=0), 4 * KiB, "Bytes of records between two index entries.", CLUSTER_WIDE
    )
    log_preallocate = Option(
        Boolean(),
        False,
        "Reserve the disk space of a whole segment at once.",
        CLUSTER_WIDE,
        no_effect="space is always reserved ahead of the writes, in pieces that grow with the segment",
    )
    log_segment_delete_delay_ms = Option(
        Long(at_least=0), 1 * MINUTES, "Delay before the files of a deleted segment are removed.", CLUSTER_WIDE
    )
    num_recovery_threads_per_data_dir = Option(
        Int(at_least=1), 1, "Threads per log directory for loading at the start and flushing at the stop.", CLUSTER_WIDE
    )
    log_initial_task_delay_ms = Option(Long(at_least=0), 30 * SECONDS, "Delay after the start before retention runs.")

    log_retention_hours = Option(
        Int(at_least=1, or_exactly=-1), 168, "How long records are kept, in hours; -1 means forever."
    )
    log_retention_minutes = Option(
        Int(at_least=1, or_exactly=-1), log_retention_hours, "How long records are kept, in minutes; -1 means forever."
    )
    log_retention_ms = Option(
        Long(at_least=1, or_exactly=-1),
        log_retention_minutes,
        "How long records are kept; -1 means forever.",
        CLUSTER_WIDE,
    )
    log_retention_bytes = Option(Long(), -1, "Size up to which a partition is kept; -1 means no limit.", CLUSTER_WIDE)
    log_retention_check_interval_ms = Option(Long(at_least=1), 5 * MINUTES, "How often to look for segments to delete.")
    log_cleanup_policy = Option(
        List(one_of=("compact", "delete")),
        ("delete",),
        "Delete old segments, compact to the last value of each key, or both.",
        CLUSTER_WIDE,
    )

    log_flush_interval_messages = Option(
        Long(at_least=1), LONG_MAX, "Number of records after which a log is flushed to disk.", CLUSTER_WIDE
    )
    log_flush_scheduler_interval_ms = Option(Long(at_least=0), LONG_MAX, "How often to look for logs to flush.")
    log_flush_interval_ms = Option(
        Long(at_least=0),
        log_flush_scheduler_interval_ms,
        "Age of unflushed records at which a log is flushed.",
        CLUSTER_WIDE,
    )
    ottla_log_flush_before_ack = Option(
        Boolean(), False, "Flush records to disk before they are acknowledged, many at a time.", CLUSTER_WIDE
    )
    ottla_log_check_records = Option(
        Boolean(),
        False,
        "Decode every batch and refuse it if a record is malformed. Makes an append several times as expensive.",
        CLUSTER_WIDE,
    )
    log_flush_offset_checkpoint_interval_ms = Option(
        Int(at_least=0), 1 * MINUTES, "How often the recovery points are written to disk."
    )
    log_flush_start_offset_checkpoint_interval_ms = Option(
        Int(at_least=0), 1 * MINUTES, "How often the log start offsets are written to disk."
    )


class RecordOptions(Options):
    """Requirements for topics and batches."""

    theme = "Topics and records"

    auto_create_topics_enable = Option(Boolean(), True, "Create a missing topic when a client asks for its metadata.")
    delete_topic_enable = Option(Boolean(), True, "Allow clients to delete topics.")
    ottla_topic_undelete_ms = Option(
        Long(at_least=0),
        0,
        "How long the records of a deleted topic are kept, so that `ottla topic undelete` can bring it back; 0: not at "
        "all. A disk below its watermark gets the space back earlier.",
        CLUSTER_WIDE,
    )
    num_partitions = Option(Int(at_least=1), 1, "Default number of partitions of a new topic.")
    ottla_topic_max_partitions = Option(
        Int(at_least=1),
        10_000,
        "Maximum partitions of a topic, and of those that one request may create together.",
    )
    default_replication_factor = Option(Int(at_least=1), 1, "Default number of replicas of a new topic.")
    min_insync_replicas = Option(
        Int(at_least=1), 1, "In-sync replicas below which a write with acks=all is refused.", CLUSTER_WIDE
    )
    message_max_bytes = Option(Int(at_least=0), 1 * MiB + 12, "Maximum size of a compressed batch.", CLUSTER_WIDE)
    compression_type = Option(
        String(one_of=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
        "producer",
        "Compression of the log; `producer` keeps the producer's compression.",
        CLUSTER_WIDE,
    )
    compression_gzip_level = Option(
        Int(at_least=1, at_most=9, or_exactly=-1), -1, "Level if the broker compresses with gzip.", CLUSTER_WIDE
    )
    compression_lz4_level = Option(
        Int(at_least=1, at_most=17), 9, "Level if the broker compresses with lz4.", CLUSTER_WIDE
    )
    compression_zstd_level = Option(
        Int(at_least=-131072, at_most=22), 3, "Level if the broker compresses with zstd.", CLUSTER_WIDE
    )
    log_message_timestamp_type = Option(
        String(one_of=("CreateTime", "LogAppendTime")), "CreateTime", "Timestamp from producer or broker.", CLUSTER_WIDE
    )
    log_message_timestamp_before_max_ms = Option(
        Long(at_least=0), LONG_MAX, "How far a timestamp may be behind the broker's clock.", CLUSTER_WIDE
    )
    log_message_timestamp_after_max_ms = Option(
        Long(at_least=0), LONG_MAX, "How far a timestamp may be ahead of the broker's clock.", CLUSTER_WIDE
    )
    log_message_timestamp_difference_max_ms = Option(
        Long(at_least=0), LONG_MAX, "Old limit; it counts if the limit for before or after is not set.", CLUSTER_WIDE
    )
    log_message_downconversion_enable = Option(
        Boolean(),
        True,
        "Convert batches for consumers that only know older formats.",
        CLUSTER_WIDE,
        no_effect="batches are never converted, and fetches below version 4 are refused",
    )


class CleanerOptions(Options):
    """Compaction."""

    theme = "Compaction"

    log_cleaner_enable = Option(Boolean(), True, "Run compaction; compacted topics, such as the offsets, need it.")
    log_cleaner_threads = Option(Int(at_least=0), 1, "Number of compaction threads.", CLUSTER_WIDE)
    log_cleaner_io_max_bytes_per_second = Option(
        Double(at_least=0), 1.7976931348623157e308, "Bytes per second that compaction may read and write.", CLUSTER_WIDE
    )
    log_cleaner_dedupe_buffer_size = Option(
        Long(at_least=1), 128 * MiB, "Memory for the keys that compaction has seen, for all threads.", CLUSTER_WIDE
    )
    log_cleaner_io_buffer_size = Option(
        Int(at_least=0), 512 * KiB, "Memory for reading and writing in compaction, for all threads.", CLUSTER_WIDE
    )
    log_cleaner_io_buffer_load_factor = Option(
        Double(at_least=0, at_most=1), 0.9, "How full the memory for keys may get, from 0 to 1.", CLUSTER_WIDE
    )
    log_cleaner_backoff_ms = Option(
        Long(at_least=0), 15 * SECONDS, "Pause of a compaction thread that found nothing to do.", CLUSTER_WIDE
    )
    log_cleaner_min_cleanable_ratio = Option(
        Double(at_least=0, at_most=1), 0.5, "Share of dirty bytes from which a log is compacted.", CLUSTER_WIDE
    )
    log_cleaner_delete_retention_ms = Option(
        Long(at_least=0), 1 * DAYS, "How long a tombstone stays after it is compacted.", CLUSTER_WIDE
    )
    log_cleaner_min_compaction_lag_ms = Option(
        Long(at_least=0), 0, "Age below which a record is not compacted.", CLUSTER_WIDE
    )
    log_cleaner_max_compaction_lag_ms = Option(
        Long(at_least=1), LONG_MAX, "Age from which a record is compacted at any dirty ratio.", CLUSTER_WIDE
    )
