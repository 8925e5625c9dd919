"""How a message is declared: once, for all its versions.

    @message("0-11", flexible="9+")
    class ProduceRequest(Message):
        transactional_id: str | None = wire(String, "3+", nullable="3+", default=None)
        acks: int = wire(Int16)
        topics: list[TopicProduceData] = wire(Array(TopicProduceData))

The order of the lines is the order on the wire. A class without its own version range (`@struct`) is a part of other
messages and takes their version. One object serves every version: a field that a version lacks has its default there.
Writing another value in that version is an error, unless the field is `ignorable`.

Messages have no behaviour and are frozen for the type checker. At run time they are plain slotted dataclasses, because
the `__init__` of a frozen one costs three times as much, and the broker creates several per request. The `__init__` of
a class is compiled by its first call: compiling those of all 330 classes would take a tenth of a second of every start.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar, Final, NamedTuple, TypeVar, cast, dataclass_transform

from ottla.protocol.primitives import Array, WireType

M = TypeVar("M", bound="type[Message]")


class Versions(NamedTuple):
    """A closed range of versions; empty if `first` is greater than `last`."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


LAST_VERSION = 32767
ALL_VERSIONS = Versions(0, LAST_VERSION)
NO_VERSIONS = Versions(1, 0)

# Tagged fields that Kafka does not have begin here. Its brokers and clients skip them.
FIRST_OWN_TAG: Final = 10_000


def versions(text: str) -> Versions:
    """Read a range as written in declarations: `3`, `2-5`, `4+` or `none`."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return Versions(int(text[:-1]), LAST_VERSION)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


@dataclass(frozen=True, slots=True)
class WireField:
    """One line of a declaration."""

    name: str
    type: Any  # a WireType, an Array, or a struct class
    versions: Versions
    nullable: Versions
    tag: int | None
    ignorable: bool
    classic: bool  # keeps the classic encoding in flexible versions
    default: Any  # MISSING if the field is in every version and must be given
    factory: Any

    @property
    def is_own(self) -> bool:
        """Whether Kafka does not have the field."""
        return self.tag is not None and self.tag >= FIRST_OWN_TAG

    @property
    def absent(self) -> Any:
        """The value of the field in a version that lacks it; a new object if it is mutable."""
        if self.factory is not MISSING:
            return self.factory()
        if self.default is not MISSING:
            return self.default
        if isinstance(self.type, Array):
            return []
        return self.type.zero if isinstance(self.type, WireType) else self.type()


def wire(
    wire_type: Any,
    in_versions: str = "0+",
    *,
    nullable: str = "none",
    tag: int | None = None,
    ignorable: bool = False,
    classic: bool = False,
    default: Any = MISSING,
    factory: Any = MISSING,
) -> Any:
    """Declare a field: its wire type, the versions that have it, those in which it may be null, its tag."""
    if isinstance(default, Message):
        # One shared object: messages are frozen for their users, and the encoder can compare it by identity.
        shared, default = default, MISSING
        factory = lambda: shared  # noqa: E731
    metadata = {
        "wire": (wire_type, versions(in_versions), versions(nullable), tag, ignorable, classic, default, factory),
    }
    if factory is not MISSING:
        return dataclasses.field(default_factory=factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class Message:  # noqa: PLW1641 - compared by value, never a key
    """What all messages share: equality by value and a repr that leaves out defaults."""

    __slots__ = ()
    wire_fields: ClassVar[tuple[WireField, ...]] = ()
    versions: ClassVar[Versions] = ALL_VERSIONS
    flexible: ClassVar[Versions] = NO_VERSIONS

    def __init__(self, **values: Any) -> None:
        # The first call of a class. From the next one on, the class has its own.
        constructor = _constructor(type(self))
        type(self).__init__ = constructor  # type: ignore[method-assign]
        constructor(self, **values)

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.wire_fields)

    def __repr__(self) -> str:
        shown = (
            f"{field.name}={value!r}"
            for field in self.wire_fields
            if (value := getattr(self, field.name)) != field.default or field.default is MISSING
        )
        return f"{type(self).__name__}({', '.join(shown)})"


def _constructor(cls: type[Message]) -> Any:
    """Compile the `__init__` that `dataclass` would make."""
    names: dict[str, Any] = {"MISSING": MISSING}
    parameters, lines = [], []
    for field in cls.wire_fields:
        name, given = field.name, f"given_{field.name}"
        if field.factory is not MISSING:
            names[given] = field.factory
            parameters.append(f"{name}=MISSING")
            lines.append(f"self.{name} = {given}() if {name} is MISSING else {name}")
            continue
        if field.default is not MISSING:
            names[given] = field.default
            parameters.append(f"{name}={given}")
        else:
            parameters.append(name)
        lines.append(f"self.{name} = {name}")
    head = f"def __init__({', '.join(['self', '*', *parameters] if parameters else ['self'])}):"
    exec("\n    ".join([head, *(lines or ["pass"])]), names)  # noqa: S102 - made of declarations
    made = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _declared(cls: M, in_versions: Versions, flexible: Versions) -> M:
    # `dataclass` would make a docstring of the signature, which is slow.
    cls.__doc__ = cls.__doc__ or cls.__name__
    made: Any = dataclass(slots=True, kw_only=True, init=False, eq=False, repr=False, match_args=False)(cls)
    made.wire_fields = tuple(WireField(field.name, *field.metadata["wire"]) for field in dataclasses.fields(made))
    made.versions = in_versions
    made.flexible = flexible
    return cast(M, made)


@dataclass_transform(kw_only_default=True, frozen_default=True, eq_default=False, field_specifiers=(wire,))
def message(in_versions: str, *, flexible: str = "none") -> Any:
    """Declare a message with its versions, and those that use the flexible encoding."""

    def declare(cls: M) -> M:
        return _declared(cls, versions(in_versions), versions(flexible))

    return declare


@dataclass_transform(kw_only_default=True, frozen_default=True, eq_default=False, field_specifiers=(wire,))
def struct(cls: M) -> M:
    """Declare a part of messages. It has the versions of the message around it."""
    return _declared(cls, ALL_VERSIONS, NO_VERSIONS)
