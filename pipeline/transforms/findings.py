"""What an audit found: by partition, and each thing that is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

CHECKSUM_BITS = 64


@dataclass(frozen=True, order=True)
class AuditFinding:
    """Something that is wrong: in a file, or with records from one offset to another."""

    kind: str
    topic: str | None = None
    partition: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    records: int | None = None
    file: str | None = None
    detail: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return what is known of it, for JSON."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass
class PartitionReport:
    """What an archive has of one partition."""

    topic: str
    partition: int
    begin: int
    end: int
    rows: int = 0
    checksum: int = 0
    source_rows: int | None = None
    """Those of the source that the archive must have; None where there is no source."""
    behind: int | None = None
    """Those of the source that came after the last batch."""
    findings: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON; the checksum is 16 hexadecimal digits."""
        return asdict(self) | {"checksum": checksum_text(self.checksum), "complete": not self.findings}


@dataclass
class AuditReport:
    """The result of an audit."""

    partitions: list[PartitionReport] = field(default_factory=list)
    findings: list[AuditFinding] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


class Summary(NamedTuple):
    """Some records of a partition."""

    rows: int
    checksum: int

    def __add__(self, other: object) -> Summary:
        assert isinstance(other, Summary)
        return Summary(self.rows + other.rows, self.checksum + other.checksum)


NOTHING = Summary(0, 0)


def checksum_text(checksum: int) -> str:
    """Return a checksum as text of a fixed length."""
    return f"{checksum & ((1 << CHECKSUM_BITS) - 1):016x}"


def differing(
    ours: Mapping[tuple[str, int, int], Summary], theirs: Mapping[tuple[str, int, int], Summary]
) -> list[tuple[str, int, int]]:
    """Return the ranges of offsets that are not the same on both sides."""
    return sorted(key for key in ours.keys() | theirs.keys() if ours.get(key, NOTHING) != theirs.get(key, NOTHING))


def ranges(kind: str, topic: str, partition: int, offsets: Iterable[int]) -> Iterator[AuditFinding]:
    """Put offsets that follow each other together."""
    first = last = None
    for offset in sorted(offsets):
        if first is None or last is None:
            first = last = offset
        elif offset == last + 1:
            last = offset
        else:
            yield AuditFinding(kind, topic, partition, first, last, last - first + 1)
            first = last = offset
    if first is not None and last is not None:
        yield AuditFinding(kind, topic, partition, first, last, last - first + 1)
