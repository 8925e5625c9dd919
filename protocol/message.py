"""How a message is declared: once, for all its versions.

    @message("0-11", flexible="9+")
    class ProduceRequest(Message):
        transactional_id: str | None = wire(String, "3+", nullable="3+", default=None)
        acks: int = wire(Int16)
        topics: list[TopicProduceData] = wire(Array(TopicProduceData))

The order of the lines is the order on the wire. A class without its own version range (`@struct`) is a part of other
messages and takes their version. One object serves every version: a field that a version lacks has its default there.
Writing another value in that version is an error, unless the field is `ignorable`.

Messages have no behaviour and are frozen dataclasses for the type checker. At run time they are plain classes with
slots, because the `__init__` of a frozen dataclass costs three times as much, and the broker creates several per
request; and because there are 360 of them, which `dataclass` would take a fifth of a second of every start to make. The
`__init__` of a class is compiled by its first call. `dataclasses.replace` works.
"""

from __future__ import annotations

from dataclasses import MISSING
from functools import cache
from typing import Any, ClassVar, Final, NamedTuple, TypeVar, dataclass_transform

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


@cache
def versions(text: str) -> Versions:
    """Read a range as written in declarations: `3`, `2-5`, `4+` or `none`."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return Versions(int(text[:-1]), LAST_VERSION)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


class WireField(NamedTuple):
    """One line of a declaration."""

    # Empty until the class is made.
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
    def init(self) -> bool:
        """What `dataclasses.replace` asks of a field: whether to hand it to `__init__`."""
        return True

    @property
    def _field_type(self) -> None:
        """What `dataclasses.replace` asks as well: it is neither a class variable nor an argument alone."""
        return

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
    # A message as default is one shared object: messages are frozen for their users, and the encoder can compare it by
    # identity.
    return WireField(
        "", wire_type, versions(in_versions), versions(nullable), tag, ignorable, classic, default, factory
    )


class _MessageType(type):
    """Takes the lines of a declaration out of the class and makes slots of them.

    A decorator cannot do that: `dataclass(slots=True)` makes every class a second time.
    """

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> _MessageType:
        fields = {key: line._replace(name=key) for key, line in namespace.items() if isinstance(line, WireField)}
        rest = {key: value for key, value in namespace.items() if key not in fields}
        described = {"wire_fields": tuple(fields.values()), "__dataclass_fields__": fields}
        return super().__new__(cls, name, bases, {**rest, **described, "__slots__": tuple(fields)})


class Message(metaclass=_MessageType):  # noqa: PLW1641 - compared by value, never a key
    """What all messages share: equality by value and a repr that leaves out defaults."""

    wire_fields: ClassVar[tuple[WireField, ...]]
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


@dataclass_transform(kw_only_default=True, frozen_default=True, eq_default=False, field_specifiers=(wire,))
def message(in_versions: str, *, flexible: str = "none") -> Any:
    """Declare a message with its versions, and those that use the flexible encoding."""

    def declare(cls: M) -> M:
        cls.versions = versions(in_versions)
        cls.flexible = versions(flexible)
        return cls

    return declare


@dataclass_transform(kw_only_default=True, frozen_default=True, eq_default=False, field_specifiers=(wire,))
def struct(cls: M) -> M:
    """Declare a part of messages. It has the versions of the message around it."""
    return cls
