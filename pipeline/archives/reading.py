"""An archive as readers see it: its rows, and what its manifests say of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ottla.pipeline.archives.archive import REJECTED, ROWS, STAGING, manifest_numbers, read_manifest
from ottla.pipeline.archives.files import Files
from ottla.pipeline.archives.manifest import Manifest, Offsets, Piece, decode
from ottla.pipeline.errors import ArchiveError

PARQUET = ".parquet"


@dataclass
class Manifests:
    """All manifests of an archive, and what is wrong with them."""

    read: list[Manifest]
    problems: list[str] = field(default_factory=list)

    @property
    def pieces(self) -> Iterator[Piece]:
        """Return all pieces of the archive."""
        return (piece for manifest in self.read for piece in manifest.pieces)

    @property
    def ends(self) -> Offsets:
        """Return the offset behind the last one of each partition."""
        return self.read[-1].ends if self.read else {}

    def begins(self) -> dict[tuple[str, int], int]:
        """Return the offset that the archive must have each partition from: 0 where it was to begin at the earliest."""
        found: dict[tuple[str, int], int] = {}
        for manifest in self.read:
            for topic, partitions in manifest.begins.items():
                for partition, begin in partitions.items():
                    first = 0 if manifest.starting_offsets == "earliest" else begin
                    found.setdefault((topic, int(partition)), first)
        return found


def read_manifests(files: Files) -> Manifests:
    """Read all manifests, and check that each begins where the one before it ends."""
    found = Manifests([])
    expected = 0
    for number in manifest_numbers(files):
        found.problems += [f"manifest {missing} is missing" for missing in range(expected, number)]
        expected = number + 1
        try:
            manifest = read_manifest(files, number)
        except ArchiveError as error:
            found.problems.append(str(error))
            continue
        found.problems += _breaks(found.ends, manifest)
        found.read.append(manifest)
    return found


def _breaks(ends: Offsets, manifest: Manifest) -> Iterator[str]:
    for topic, partitions in manifest.begins.items():
        for partition, begin in partitions.items():
            end = ends.get(topic, {}).get(partition, begin)
            if begin != end:
                yield f"manifest {manifest.number} begins {topic}-{partition} at {begin}, the one before ends at {end}"


def decided_files(files: Files) -> set[str]:
    """Return the files of all batches, also of one whose files are being moved to their places."""
    names = {piece.file for piece in read_manifests(files).pieces}
    for staged in files.names(STAGING):
        name = f"{STAGING}/{staged}/manifest.json"
        if files.exists(name):
            names |= {piece.file for piece in decode(files.read(name), name).pieces}
    return names


def archive_rows(spark: SparkSession, files: Files) -> DataFrame:
    """Return all rows that stand in the folder, rejected ones as well, with `file` and their `row_index` in it.

    Which files these are is settled now. What cannot be read of them is passed over.
    """
    rows = _rows(spark, files, "")
    return rows.unionByName(_rows(spark, files, REJECTED)) if files.exists(REJECTED) else rows


def _rows(spark: SparkSession, files: Files, folder: str) -> DataFrame:
    options = {"ignoreCorruptFiles": "true", "ignoreMissingFiles": "true", "pathGlobFilter": f"*{PARQUET}"}
    table = spark.read.schema(ROWS).options(**options).parquet(files.path(folder))
    return table.withColumns({"file": F.col("_metadata.file_path"), "row_index": F.col("_metadata.row_index")})


def listed_files(files: Files) -> set[str]:
    """Return the Parquet files in the folder."""
    return {name for name in (*files.walk(), *files.walk(REJECTED)) if name.endswith(PARQUET)}
