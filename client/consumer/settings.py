"""The options of a consumer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from ottla.client.errors import KafkaConfigurationError
from ottla.client.net.settings import MINUTES, SECONDS, ClientOptions, ClientSettings, IsolationLevel, MiB

if TYPE_CHECKING:
    from ottla.client.consumer.group.assignors import Assignor
    from ottla.client.consumer.interceptors import ConsumerInterceptor

OffsetReset = Literal["earliest", "latest", "none"]
GroupProtocol = Literal["classic", "consumer"]


class ConsumerOptions(ClientOptions, total=False):
    """The keyword arguments of a consumer: the fields of ConsumerSettings, for editors and type checkers."""

    group_id: str | None
    group_instance_id: str | None
    group_protocol: GroupProtocol
    group_remote_assignor: str | None
    partition_assignment_strategy: str | Sequence[str | type[Assignor]]
    key_deserializer: Callable[[bytes], Any] | None
    value_deserializer: Callable[[bytes], Any] | None
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    max_poll_records: int | None
    max_poll_interval_ms: int
    auto_offset_reset: OffsetReset
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    check_crcs: bool
    session_timeout_ms: int
    heartbeat_interval_ms: int
    isolation_level: IsolationLevel
    client_rack: str
    exclude_internal_topics: bool
    allow_auto_create_topics: bool
    interceptors: Sequence[ConsumerInterceptor]


@dataclass(frozen=True, kw_only=True)
class ConsumerSettings(ClientSettings):
    """How records are fetched, and how the consumer shares them with the others of its group."""

    group_id: str | None = None
    """The group to share partitions with and to commit offsets for."""
    group_instance_id: str | None = None
    """Makes this a static member, which keeps its partitions across restarts shorter than the session timeout."""
    group_protocol: GroupProtocol = "classic"
    """The group protocol to speak: classic, or that of KIP-848 (consumer)."""
    group_remote_assignor: str | None = None
    """The assignor that the coordinator should use, with group_protocol="consumer"; None lets it choose."""
    partition_assignment_strategy: str | Sequence[str | type[Assignor]] = ("range", "cooperative-sticky")
    """Assignors, by preference; the group uses the first that all members have. With group_protocol="classic"."""
    key_deserializer: Callable[[bytes], Any] | None = None
    """Turns the bytes of keys into the keys of records."""
    value_deserializer: Callable[[bytes], Any] | None = None
    """Turns the bytes of values into the values of records."""
    fetch_min_bytes: int = 1
    """A broker answers a fetch when it has this many bytes, or after fetch_max_wait_ms."""
    fetch_max_bytes: int = 50 * MiB
    """The most bytes that one fetch returns, and that all partitions together buffer."""
    fetch_max_wait_ms: int = 500
    """How long a broker may wait for fetch_min_bytes."""
    max_partition_fetch_bytes: int = 4 * MiB
    """The most bytes that one fetch returns for each partition."""
    max_poll_records: int | None = None
    """The most records that one call returns; None sets no limit but about 512 KiB of each partition."""
    max_poll_interval_ms: int = 5 * MINUTES
    """How long the caller may take between two calls before its partitions go to other members."""
    auto_offset_reset: OffsetReset = "latest"
    """Where to start without a committed offset, or if it is out of range; none raises an error."""
    enable_auto_commit: bool = True
    """Whether the offsets of processed records are committed in the background."""
    auto_commit_interval_ms: int = 5 * SECONDS
    """The time between two commits in the background."""
    check_crcs: bool = True
    """Whether the checksums of batches are checked."""
    session_timeout_ms: int = 45 * SECONDS
    """A member without a heartbeat for this long loses its partitions."""
    heartbeat_interval_ms: int = 3 * SECONDS
    """The time between two heartbeats to the coordinator."""
    isolation_level: IsolationLevel = "read_uncommitted"
    """Whether records of open and aborted transactions are returned."""
    client_rack: str = ""
    """The rack of this client; records come from a replica in the same rack if there is one."""
    exclude_internal_topics: bool = True
    """Whether a pattern skips internal topics such as __consumer_offsets."""
    allow_auto_create_topics: bool = False
    """Whether subscribing to a missing topic may create it."""
    interceptors: Sequence[ConsumerInterceptor] = ()
    """See records before the caller gets them, and offsets when they are committed; called in this order."""

    DOTTED_NAMES: ClassVar[Mapping[str, str]] = {
        **ClientSettings.DOTTED_NAMES,
        "fetch.wait.max.ms": "fetch_max_wait_ms",
        "fetch.message.max.bytes": "max_partition_fetch_bytes",
        "allow.auto.create.topics": "allow_auto_create_topics",
    }

    def __post_init__(self) -> None:
        """Raise KafkaConfigurationError for values that cannot work."""
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
                raise KafkaConfigurationError(f"{name} must be a whole number of at least 1, not {value!r}")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise KafkaConfigurationError("heartbeat_interval_ms must be less than session_timeout_ms")
        if self.group_instance_id is not None and not self.group_id:
            raise KafkaConfigurationError("group_instance_id needs group_id")

    @property
    def reads_committed(self) -> bool:
        """Whether only committed records are returned."""
        return self.isolation_level == "read_committed"

    @property
    def isolation(self) -> int:
        """The isolation level in wire format."""
        return int(self.reads_committed)
