"""The options of a producer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from ottla.client.errors import KafkaConfigurationError
from ottla.client.net.settings import MINUTES, SECONDS, ClientOptions, ClientSettings, KiB, MiB
from ottla.client.producer.partitioner import Partitioner

if TYPE_CHECKING:
    from ottla.client.producer.interceptors import ProducerInterceptor

CompressionType = Literal["none", "gzip", "snappy", "lz4", "zstd"]

ACKS_ALL: Final = -1
# The broker remembers this many batches of a producer to detect duplicates.
IDEMPOTENT_IN_FLIGHT_MAX: Final = 5


class ProducerOptions(ClientOptions, total=False):
    """The keyword arguments of a producer: the fields of ProducerSettings, for editors and type checkers."""

    acks: int | Literal["all"]
    enable_idempotence: bool | None
    transactional_id: str | None
    transaction_timeout_ms: int
    key_serializer: Callable[[Any], bytes | None] | None
    value_serializer: Callable[[Any], bytes | None] | None
    compression_type: CompressionType | None
    compression_gzip_level: int | None
    compression_lz4_level: int | None
    compression_zstd_level: int | None
    max_batch_size: int
    linger_ms: int
    max_request_size: int
    buffer_memory: int
    max_block_ms: int
    max_in_flight_requests_per_connection: int
    delivery_timeout_ms: int
    partitioner: Partitioner | None
    interceptors: Sequence[ProducerInterceptor]


@dataclass(frozen=True, kw_only=True)
class ProducerSettings(ClientSettings):
    """Safe by default: acknowledged by all in-sync replicas, written once, and in order."""

    acks: int | Literal["all"] = "all"
    """The replicas that must acknowledge a record: all in-sync replicas ("all"), the leader (1), none (0)."""
    enable_idempotence: bool | None = None
    """Whether retries write no duplicates and keep the order; None means yes if acks allow it."""
    transactional_id: str | None = None
    """The name under which this producer writes transactions. A new producer with the same name replaces this one."""
    transaction_timeout_ms: int = 1 * MINUTES
    """The time from the first record of a transaction until the brokers abort it and refuse this producer."""
    key_serializer: Callable[[Any], bytes | None] | None = None
    """Turns the keys given to send() into bytes."""
    value_serializer: Callable[[Any], bytes | None] | None = None
    """Turns the values given to send() into bytes."""
    compression_type: CompressionType | None = None
    """How batches are compressed."""
    compression_gzip_level: int | None = None
    """From 1, the fastest, to 9, the smallest; -1 and None mean the default of zlib, 6."""
    compression_lz4_level: int | None = None
    """From 1, the fastest, to 17, the smallest; None means Kafka's default, 9."""
    compression_zstd_level: int | None = None
    """From -131072, the fastest, to 22, the smallest; None means Kafka's default, 3."""
    max_batch_size: int = 64 * KiB
    """A batch is sent when it has this many bytes before compression, or has waited for linger_ms.

    Larger than Kafka's 16 KiB: a batch costs as much time here as a few hundred records.
    """
    linger_ms: int = 0
    """How long a batch waits for more records."""
    max_request_size: int = 1 * MiB
    """The largest request to send, and so the largest record."""
    buffer_memory: int = 32 * MiB
    """The most bytes of unsent and unacknowledged batches; send() waits up to max_block_ms for free space."""
    max_block_ms: int = 60 * SECONDS
    """How long send() may wait for metadata or for space in the buffer, and a transaction for its coordinator."""
    max_in_flight_requests_per_connection: int = 5
    """How many requests to one broker may be unanswered; at most 5 with idempotence."""
    delivery_timeout_ms: int = 2 * MINUTES
    """The time from send() until a record is written or has failed, retries included."""
    partitioner: Partitioner | None = None
    """Chooses the partition of a record; the default is Kafka's hash of the key."""
    interceptors: Sequence[ProducerInterceptor] = ()
    """See records before they are sent, and when they are written or have failed; called in this order."""

    DOTTED_NAMES: ClassVar[Mapping[str, str]] = {
        **ClientSettings.DOTTED_NAMES,
        "batch.size": "max_batch_size",
        "queue.buffering.max.ms": "linger_ms",
        "max.in.flight": "max_in_flight_requests_per_connection",
        "max.in.flight.requests.per.connection": "max_in_flight_requests_per_connection",
        "compression.codec": "compression_type",
        "message.timeout.ms": "delivery_timeout_ms",
        "request.required.acks": "acks",
    }

    def __post_init__(self) -> None:
        """Raise KafkaConfigurationError for values that cannot work."""
        super().__post_init__()
        self._check_choice("acks", (0, 1, -1, "all"))
        self._check_choice("compression_type", (None, "none", "gzip", "snappy", "lz4", "zstd"))
        self._check_levels()
        for name in ("max_batch_size", "max_request_size", "buffer_memory", "max_in_flight_requests_per_connection"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise KafkaConfigurationError(f"{name} must be a whole number of at least 1, not {value!r}")
        if self.max_request_size > self.buffer_memory:
            raise KafkaConfigurationError("max_request_size does not fit in buffer_memory")
        if self.enable_idempotence and self.acks_number != ACKS_ALL:
            raise KafkaConfigurationError(f"enable_idempotence needs acks='all', not {self.acks!r}")
        if self.transactional_id is not None and not self.is_idempotent:
            raise KafkaConfigurationError("transactional_id needs acks='all' and idempotence")
        if self.transactional_id == "":
            raise KafkaConfigurationError("transactional_id must not be empty")
        if self.transaction_timeout_ms < 1:
            raise KafkaConfigurationError(
                f"transaction_timeout_ms must be at least 1, not {self.transaction_timeout_ms}"
            )
        if self.is_idempotent and self.max_in_flight_requests_per_connection > IDEMPOTENT_IN_FLIGHT_MAX:
            raise KafkaConfigurationError(
                f"with idempotence at most {IDEMPOTENT_IN_FLIGHT_MAX} requests may be in flight on a connection"
            )
        if self.delivery_timeout_ms < self.linger_ms:
            raise KafkaConfigurationError("delivery_timeout_ms is less than linger_ms")

    def _check_levels(self) -> None:
        from ottla.protocol.compression import LEVELS

        for codec, allowed in LEVELS.items():
            name = f"compression_{codec.config_name}_level"
            level = getattr(self, name)
            if level is not None and level not in allowed:
                zero = "" if 0 in range(min(allowed)) or 0 in allowed else " without 0"
                raise KafkaConfigurationError(
                    f"{name} must be from {min(allowed)} to {max(allowed)}{zero}, not {level!r}"
                )

    @property
    def compression_level(self) -> int | None:
        """The level for the codec of this producer; None means Kafka's default."""
        level: int | None = getattr(self, f"compression_{self.compression_type}_level", None)
        return level

    @property
    def acks_number(self) -> int:
        """The acks in wire format."""
        return ACKS_ALL if self.acks == "all" else self.acks

    @property
    def is_idempotent(self) -> bool:
        """Whether batches carry sequence numbers, which let the broker detect duplicates."""
        return self.acks_number == ACKS_ALL if self.enable_idempotence is None else self.enable_idempotence
