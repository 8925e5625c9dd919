"""An option: one row with its type, default, bounds, documentation, and whether it can change at run time.

Rows are attributes of classes, one class per theme: `log_segment_bytes = Option(Int(at_least=14), 1 * GiB, "...")`. The
name of the attribute is Kafka's name with underscores for dots. A row checks itself when it is created.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Never, Self, TypeVar, overload

from ottla.broker.config.kinds import OptionKind, Secret

T = TypeVar("T")
V = TypeVar("V")

KiB = 1024
MiB = 1024 * KiB
GiB = 1024 * MiB

# Durations are in milliseconds, like nearly all of Kafka's.
SECONDS = 1000
MINUTES = 60 * SECONDS
HOURS = 60 * MINUTES
DAYS = 24 * HOURS

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

MS_OF_UNIT = {"ms": 1, "seconds": SECONDS, "minutes": MINUTES, "hours": HOURS}


class Dynamic(Enum):
    """Whether an option can be changed while the broker runs, and where."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


READ_ONLY = Dynamic.READ_ONLY
PER_BROKER = Dynamic.PER_BROKER
CLUSTER_WIDE = Dynamic.CLUSTER_WIDE


class Option(Generic[T]):
    """One row of the table, and the typed attribute of the config objects.

    The default may be another row; the value of that row counts if this option is not set.
    An option is a descriptor without a setter. A value in the instance's dictionary takes precedence, so reading an
    option costs no more than reading any attribute.
    """

    attribute: str
    name: str

    @overload
    def __init__(
        self: Option[V],
        kind: OptionKind[V],
        default: V | Option[Any],
        documentation: str,
        dynamic: Dynamic = ...,
        *,
        default_note: str = ...,
        kafka_default: str = ...,
        no_effect: str = ...,
    ) -> None: ...

    @overload
    def __init__(
        self: Option[V | None],
        kind: OptionKind[V],
        default: None,
        documentation: str,
        dynamic: Dynamic = ...,
        *,
        default_note: str = ...,
        kafka_default: str = ...,
        no_effect: str = ...,
    ) -> None: ...

    def __init__(
        self,
        kind: OptionKind[Any],
        default: Any,
        documentation: str,
        dynamic: Dynamic = READ_ONLY,
        *,
        default_note: str = "",
        kafka_default: str = "",
        no_effect: str = "",
    ) -> None:
        """Create a row. The notes describe a default that depends on the machine, or differs from Kafka's.

        `no_effect` is for a row that nothing reads. It is the reason, and becomes part of the documentation.
        """
        self.kind = kind
        self.fallback: Option[Any] | None = default if isinstance(default, Option) else None
        self.default: Any = None if self.fallback else default
        self.documentation = f"{documentation} No effect: {no_effect}." if no_effect else documentation
        self.dynamic = dynamic
        self.default_note = default_note
        self.kafka_default = kafka_default
        self.no_effect = no_effect
        if self.default is not None and not _is_valid(kind, default):
            raise ValueError(f"the default {default!r} is not valid for {kind.expected}")

    def __set_name__(self, owner: type, attribute: str) -> None:
        """Take the name from the attribute."""
        self.attribute = attribute
        self.name = attribute.replace("_", ".")

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> Self | T:
        """Return the row itself if it is read from the class."""
        if instance is None:
            return self
        raise AttributeError(f"{owner.__name__} has no value of {self.name}")

    if TYPE_CHECKING:

        def __set__(self, instance: object, value: Never) -> None:
            """Make mypy reject assignments."""

    def __repr__(self) -> str:
        return f"<Option {getattr(self, 'name', 'without a name')}>"

    @property
    def sensitive(self) -> bool:
        """Whether the value must not be shown."""
        return isinstance(self.kind, Secret)

    @property
    def chain(self) -> Iterator[Option[Any]]:
        """Yield this row, then the rows that count in turn if it is not set."""
        row: Option[Any] | None = self
        while row is not None:
            yield row
            row = row.fallback

    def converted(self, value: Any, row: Option[Any]) -> Any:
        """Convert the value of a row of the chain to this unit. A negative value means "unlimited" in any unit."""
        factor = MS_OF_UNIT.get(_unit(row), 1) // MS_OF_UNIT.get(_unit(self), 1)
        return value * factor if factor > 1 and value > 0 else value


class Options:
    """Base of the classes with rows, and of the frozen objects with their values."""

    theme: ClassVar[str]

    @classmethod
    def rows(cls) -> dict[str, Option[Any]]:
        """Return the rows of this class and its bases by name, in the order of the source."""
        classes = (cls, *cls.__bases__)
        return {row.name: row for owner in classes for row in vars(owner).values() if isinstance(row, Option)}

    def __setattr__(self, attribute: str, value: object) -> None:
        """Raise FrozenInstanceError: a changed config is a new object."""
        raise FrozenInstanceError(f"cannot assign to {attribute}")

    def __delattr__(self, attribute: str) -> None:
        """Raise FrozenInstanceError: a changed config is a new object."""
        raise FrozenInstanceError(f"cannot delete {attribute}")


def _is_valid(kind: OptionKind[Any], value: Any) -> bool:
    """Whether a value survives the conversion to text and back, which all values go through."""
    try:
        return bool(kind.parse(kind.format(value)) == value)
    except ValueError:
        return False


def _unit(row: Option[Any]) -> str:
    return row.name.rpartition(".")[2]
