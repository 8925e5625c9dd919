"""The settings of each job; `ottla.pipeline.config` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.pipeline.config import option
from ottla.pipeline.errors import SettingsError

LOG_LEVELS: Final = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "OFF")


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """What all jobs have: where the cluster is, and where Spark runs."""

    bootstrap_servers: str = option(
        "localhost:9092",
        "Brokers to ask for the cluster; by default OTTLA_BOOTSTRAP_SERVERS, or the cluster that `ottla up` runs here.",
        flag="--bootstrap-server",
    )
    client: Mapping[str, str] = option({}, "An option of the client, by Kafka's name; may be given again.", flag="-X")
    connector: str = option("ottla", "The data source; kafka is Spark's own.", choices=("ottla", "kafka"))
    master: str | None = option(None, "Where Spark runs; local[*], or what spark-submit was told.")
    spark: Mapping[str, str] = option({}, "An option of Spark; may be given again.", flag="--conf")
    shuffle_partitions: int = option(4, "Tasks of a shuffle.", minimum=1)
    driver_memory: str = option("1g", "Memory of the driver.")
    ui: bool = option(False, "Serve the pages of Spark.")
    log_level: str = option("WARN", "Least important lines of Spark's log.", choices=LOG_LEVELS)
    metrics_port: int | None = option(None, "Serve metrics for Prometheus at this port; 0 finds one.", minimum=0)
    metrics_host: str = option("127.0.0.1", "The address that metrics are served at.")

    @property
    def needs_cluster(self) -> bool:
        """Whether the job cannot do anything without brokers."""
        return True


@dataclass(frozen=True, kw_only=True)
class StreamSettings(JobSettings):
    """What streaming jobs have: which topics, from where, and how often."""

    topics: tuple[str, ...] = option((), "Topics to read, with commas.")
    topic_pattern: str | None = option(None, "Read all topics whose whole names match this regular expression.")
    starting_offsets: str = option("earliest", "Where a new query begins: earliest, latest, or JSON by partition.")
    max_offsets_per_trigger: int | None = option(None, "Records of a batch at most.", minimum=1)
    min_partitions: int | None = option(None, "Split what is read into so many tasks at least.", minimum=1)
    fail_on_data_loss: bool = option(True, "Stop where records were deleted before they were read.")
    checkpoint: str | None = option(None, "Where the query keeps its progress; _checkpoint in its output by default.")
    interval_seconds: float = option(5.0, "A batch as often as this.", minimum=0)
    once: bool = option(False, "Read what is there now, and end.")
    exactly_once: bool = option(True, "Topics are written exactly once, for readers of committed records.")
    attempts: int = option(5, "Give up after so many failures without a batch in between.", minimum=1)
    stop_timeout_seconds: float = option(45.0, "On a signal, so long a batch may take to finish.", minimum=0)

    def __post_init__(self) -> None:
        """Refuse what cannot work, with SettingsError."""
        if bool(self.topics) == bool(self.topic_pattern):
            raise SettingsError("say what to read: either --topics or --topic-pattern")

    @property
    def sends_once(self) -> bool:
        """Whether topics are written exactly once, which only our connector can."""
        return self.exactly_once and self.connector != "kafka"


@dataclass(frozen=True, kw_only=True)
class ArchiveSettings(StreamSettings):
    """Topics to Parquet."""

    archive: str | None = option(None, "The folder of the archive: a path, or a URI that Spark knows.")
    reject: str = option("none", "Which records are bad: none, what is not JSON.", choices=("none", "json"))
    schema: str | None = option(None, "Records whose JSON is not so are bad, too: 'id BIGINT NOT NULL, name STRING'.")
    dead_letter_topic: str | None = option(None, "Where bad records go, with the reason in a header.")
    compression: str = option("zstd", "The codec of the files.", choices=("zstd", "snappy", "gzip", "lz4_raw", "none"))

    def __post_init__(self) -> None:
        """Refuse what cannot work, with SettingsError."""
        super().__post_init__()
        require(self, "archive")
        if self.dead_letter_topic and not self.rejects:
            raise SettingsError("nothing can get to --dead-letter-topic: say with --reject or --schema what is bad")

    @property
    def rejects(self) -> bool:
        """Whether a record may be bad."""
        return self.reject != "none" or self.schema is not None


@dataclass(frozen=True, kw_only=True)
class AggregateSettings(StreamSettings):
    """Windows over JSON events."""

    key_field: str | None = option(None, "The field of an event that it is grouped by; the record's key by default.")
    value_field: str | None = option(None, "The field with the number that is summed up.")
    time_field: str | None = option(None, "The field with the time, ISO 8601; the record's timestamp by default.")
    window: str = option("1 minute", "How long a window is.")
    slide: str | None = option(None, "A window begins as often as this; windows do not overlap by default.")
    watermark: str = option("1 minute", "How late an event may be.")
    quantiles: tuple[float, ...] = option((0.5, 0.95, 0.99), "Quantiles of the number, with commas.")
    output_topic: str | None = option(None, "The topic for the results; made with cleanup.policy=compact.")
    output: str | None = option(None, "The folder for the results, as Parquet.")
    output_mode: str = option(
        "append", "append: a window when it is final; update: whenever it changes.", choices=("append", "update")
    )

    def __post_init__(self) -> None:
        """Refuse what cannot work, with SettingsError."""
        super().__post_init__()
        if not self.output_topic and not self.output:
            raise SettingsError("say where the results go: --output-topic, --output, or both")
        if not self.output and not self.checkpoint:
            raise SettingsError("without --output, --checkpoint says where the query keeps its progress")
        if any(not 0 <= quantile <= 1 for quantile in self.quantiles):
            raise SettingsError("--quantiles are between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class ReplaySettings(JobSettings):
    """An archive, Parquet or files of a log, into a topic."""

    source: str | None = option(None, "What is replayed: an archive, a folder of Parquet, or of logs.", flag="--from")
    source_format: str = option("parquet", "What it is.", choices=("parquet", "ottla-log"))
    topics: tuple[str, ...] = option((), "Replay only these topics, with commas.")
    target_topic: str | None = option(None, "The topic that everything goes to.")
    own_topics: bool = option(False, "Each record goes to the topic that it was in: to another cluster, as a rule.")
    keep_partitions: bool = option(True, "Records keep their partitions; else they go by their keys.")
    records_per_second: int | None = option(None, "Not faster than this.", minimum=1)
    chunk_records: int = option(100_000, "Progress is kept after so many records, about.", minimum=1)
    progress: str | None = option(None, "A file where progress is kept, so that another run goes on.")
    exactly_once: bool = option(
        True, "With --progress, a run that goes on sends no record twice, for readers of committed records."
    )
    place_headers: bool = option(False, "Headers say where and when a record was before.")

    def __post_init__(self) -> None:
        """Refuse what cannot work, with SettingsError."""
        require(self, "source")
        if bool(self.target_topic) == self.own_topics:
            raise SettingsError("say where records go: either --target-topic or --own-topics")

    @property
    def sends_once(self) -> bool:
        """Whether records are sent exactly once: our connector can, and a file keeps what was under way."""
        return self.exactly_once and self.connector == "ottla" and self.progress is not None


@dataclass(frozen=True, kw_only=True)
class AuditSettings(JobSettings):
    """An archive against its source."""

    archive: str | None = option(None, "The folder of the archive.")
    against: str = option(
        "broker", "What it is compared with; manifests: with itself alone.", choices=("broker", "log", "manifests")
    )
    log_dir: str | None = option(None, "The data directory of a broker, or a copy of it, for --against log.")
    allow_behind: bool = option(False, "What came after the archive's last batch does not count.")
    findings_max: int = option(1000, "List so many findings at most.", minimum=1)
    format: str = option("table", "How to print the result.", choices=("table", "json"))

    @property
    def needs_cluster(self) -> bool:
        """Whether the archive is compared with brokers."""
        return self.against == "broker"

    def __post_init__(self) -> None:
        """Refuse what cannot work, with SettingsError."""
        require(self, "archive")
        if (self.against == "log") != (self.log_dir is not None):
            raise SettingsError("--log-dir and --against log go together")


JOBS: Final[Mapping[str, type[JobSettings]]] = {
    "archive": ArchiveSettings,
    "aggregate": AggregateSettings,
    "replay": ReplaySettings,
    "audit": AuditSettings,
}


def require(settings: Any, name: str) -> None:
    """SettingsError where a setting that has no default was not given."""
    if not getattr(settings, name):
        flag = type(settings).__dataclass_fields__[name].metadata["flag"] or "--" + name.replace("_", "-")
        raise SettingsError(f"{flag} is missing: {type(settings).__dataclass_fields__[name].metadata['help']}")
