"""What an archive says of itself: a manifest for each batch, as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from ottla.pipeline.errors import ArchiveError

VERSION: Final = 1

# By topic, then by partition; partitions are text, as they are names in JSON.
Offsets = Mapping[str, Mapping[str, int]]


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """The records of one partition in one file."""

    file: str
    """Relative to the archive."""
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    rows: int
    checksum: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One batch of an archive. That of number n + 1 begins where that of number n ends, in every partition."""

    version: int = VERSION
    number: int
    batch_id: int
    """Of the query that wrote it."""
    starting_offsets: str
    """Where the query began with partitions that the archive did not have before."""
    begins: dict[str, dict[str, int]]
    """The first offset of the batch, of each partition that it has records of."""
    ends: dict[str, dict[str, int]]
    """The offset behind the last one that the archive has, of every partition that it has."""
    pieces: list[Piece]


def encode(manifest: Manifest) -> bytes:
    """Return a manifest as JSON."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def decode(data: bytes, name: str) -> Manifest:
    """Read a manifest; ArchiveError where it is not one, or is of a version to come."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise ArchiveError(f"{name} is not a manifest: {error}") from error
    if manifest.version != VERSION:
        raise ArchiveError(f"{name} has version {manifest.version}, and this program knows {VERSION}")
    return manifest


def following(
    previous: Manifest | None, pieces: Iterable[Piece], *, number: int, batch_id: int, starting_offsets: str
) -> Manifest:
    """Return the manifest of a batch of pieces; ArchiveError where one has records that are in the archive already."""
    pieces = sorted(pieces, key=lambda piece: (piece.topic, piece.partition, piece.first_offset))
    ends: dict[str, dict[str, int]] = {
        t: dict(partitions) for t, partitions in (previous.ends if previous else {}).items()
    }
    begins: dict[str, dict[str, int]] = {}
    for piece in pieces:
        partition = str(piece.partition)
        end = ends.setdefault(piece.topic, {}).get(partition)
        if end is not None and piece.first_offset < end and partition not in begins.get(piece.topic, {}):
            raise ArchiveError(
                f"batch {batch_id} has {piece.topic}-{partition} from offset {piece.first_offset}, and the archive has "
                f"it up to {end} already: does another job write to it?"
            )
        begins.setdefault(piece.topic, {}).setdefault(partition, piece.first_offset if end is None else end)
        ends[piece.topic][partition] = max(end or 0, piece.last_offset + 1)
    return Manifest(
        number=number,
        batch_id=batch_id,
        starting_offsets=starting_offsets,
        begins=begins,
        ends=ends,
        pieces=list(pieces),
    )
