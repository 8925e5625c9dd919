"""The options of a consumer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from ottla.client.errors import KafkaConfigurationError
from ottla.client.net.settings import MINUTES, SECONDS, ClientSettings, IsolationLevel, MiB

OffsetReset = Literal["earliest", "latest", "none"]
GroupProtocol = Literal["classic", "consumer"]


@dataclass(frozen=True, kw_only=True)
class ConsumerSettings(ClientSettings):
    """How records are fetched, and how the consumer shares them with the others of its group."""

    group_id: str | None = None
    # Makes this a static member, which keeps its partitions over a restart that is shorter than the session timeout.
    group_instance_id: str | None = None
    group_protocol: GroupProtocol = "classic"
    # The assignor that the coordinator shall use, with group_protocol="consumer"; None leaves it the choice.
    group_remote_assignor: str | None = None
    # Names of assignors, the first that all members have is used; with group_protocol="classic".
    partition_assignment_strategy: Sequence[str] = ("range", "cooperative-sticky")
    key_deserializer: Callable[[bytes], Any] | None = None
    value_deserializer: Callable[[bytes], Any] | None = None
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 50 * MiB
    fetch_max_wait_ms: int = 500
    max_partition_fetch_bytes: int = 1 * MiB
    max_poll_records: int | None = None
    # How long the caller may take between two calls for records before its partitions go to other members.
    max_poll_interval_ms: int = 5 * MINUTES
    auto_offset_reset: OffsetReset = "latest"
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5 * SECONDS
    check_crcs: bool = True
    session_timeout_ms: int = 45 * SECONDS
    heartbeat_interval_ms: int = 3 * SECONDS
    isolation_level: IsolationLevel = "read_uncommitted"
    # With it, records come from a replica in the same rack where there is one.
    client_rack: str = ""
    # Whether topics like __consumer_offsets may match a pattern.
    exclude_internal_topics: bool = True
    allow_auto_create_topics: bool = False

    DOTTED_NAMES: ClassVar[Mapping[str, str]] = {
        **ClientSettings.DOTTED_NAMES,
        "fetch.wait.max.ms": "fetch_max_wait_ms",
        "fetch.message.max.bytes": "max_partition_fetch_bytes",
        "allow.auto.create.topics": "allow_auto_create_topics",
    }

    def __post_init__(self) -> None:
        """Refuse what cannot work, with KafkaConfigurationError."""
        super().__post_init__()
        self._check_choice("auto_offset_reset", get_args(OffsetReset))
        self._check_choice("isolation_level", get_args(IsolationLevel))
        self._check_choice("group_protocol", get_args(GroupProtocol))
        if isinstance(self.partition_assignment_strategy, str):
            names = tuple(name.strip() for name in self.partition_assignment_strategy.split(","))
            object.__setattr__(self, "partition_assignment_strategy", names)
        for name in ("fetch_max_bytes", "max_partition_fetch_bytes", "max_poll_records"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise KafkaConfigurationError(f"{name} must be a whole number from 1, not {value!r}")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise KafkaConfigurationError("heartbeat_interval_ms must be less than session_timeout_ms")
        if self.group_instance_id is not None and not self.group_id:
            raise KafkaConfigurationError("group_instance_id needs group_id")

    @property
    def reads_committed(self) -> bool:
        """Whether records of transactions that did not commit are left out."""
        return self.isolation_level == "read_committed"

    @property
    def isolation(self) -> int:
        """The isolation level as it goes on the wire."""
        return int(self.reads_committed)
