"""A folder of Parquet files, to which batches are added exactly once.

    topic=T/date=D/<number>-<part>.parquet   records, as Spark's Kafka source has them
    _rejected/topic=T/...                    bad records, and why they are bad
    _manifests/<number>.json                 each batch: its files, offset ranges and checksums
    _staging/<number>/                       a batch on its way

Readers of Parquet pass over names that begin with an underscore. A batch is written in four steps, and a process may
die between any two, or within one:

    a. its files are written to _staging/<number>/data and _staging/<number>/rejected
    b. its manifest is written to _staging/<number>/manifest.json: from here on the batch is part of the archive
    c. the files are moved to their places, whose names the manifest has
    d. the manifest is moved to _manifests

What is found in _staging on start is finished where there is a manifest, and removed where there is none. So a file in
its place is one of a batch that is decided. The batch may come again with the next start, as the query does not know
what became of it: records below the ends in the last manifest are left out of it.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DateType, StringType, StructField, StructType

from ottla.pipeline.archives.files import Files
from ottla.pipeline.archives.manifest import Manifest, Piece, decode, encode, following
from ottla.pipeline.errors import ArchiveError
from ottla.pipeline.sources.rows import row_schema
from ottla.pipeline.transforms.checksums import summarised
from ottla.pipeline.transforms.quality import REASON

MANIFESTS: Final = "_manifests"
STAGING: Final = "_staging"
REJECTED: Final = "_rejected"
CHECKPOINT: Final = "_checkpoint"
_DATA_FOLDER: Final = "data"
_REJECTED_FOLDER: Final = "rejected"

ROWS: Final = StructType([*row_schema(with_headers=True).fields, StructField("date", DateType())])
REJECTED_ROWS: Final = StructType([*ROWS.fields, StructField(REASON, StringType())])


class Archive:
    """An archive that is open for adding to. One process at a time may have it so."""

    def __init__(self, spark: SparkSession, files: Files, *, starting_offsets: str, compression: str = "zstd") -> None:
        """Open an archive, which may be a folder that is not there yet; finish or remove what a dead process left."""
        self._spark = spark
        self._files = files
        self._starting_offsets = starting_offsets
        self._compression = compression
        for name in files.names(STAGING):
            self._settle(name)
        numbers = manifest_numbers(files)
        self.last = read_manifest(files, numbers[-1]) if numbers else None
        # Later batches of a query follow each other; the first one may be one that is in the archive already.
        self._may_repeat = True

    def append(self, rows: DataFrame, batch_id: int) -> Manifest | None:
        """Add a batch; return its manifest, or None where all of it is in the archive already.

        Rows whose `reason` is not null are kept apart.
        """
        number = self.last.number + 1 if self.last else 0
        staging = f"{STAGING}/{number:020d}"
        self._files.delete(staging)
        pieces = self._stage(self.unseen(rows), staging)
        manifest = following(
            self.last, pieces.values(), number=number, batch_id=batch_id, starting_offsets=self._starting_offsets
        )
        self._may_repeat = False
        if not pieces:
            self._files.delete(staging)
            return None
        self._files.write(f"{staging}/manifest.json", encode(manifest))
        self._settle(f"{number:020d}")
        self.last = manifest
        return manifest

    def unseen(self, rows: DataFrame) -> DataFrame:
        """Leave out what the archive has already."""
        if self.last is None or not self._may_repeat:
            return rows
        return rows.filter(~_below(self.last.ends))

    def _stage(self, rows: DataFrame, staging: str) -> dict[tuple[str, int], Piece]:
        """Write the files of a batch, and return what is in them."""
        dated = rows.withColumn("date", F.to_date("timestamp"))
        good, schema = dated, ROWS
        found: dict[tuple[str, int], Piece] = {}
        if REASON in rows.columns:
            good = dated.filter(F.col(REASON).isNull()).drop(REASON)
            bad = dated.filter(F.col(REASON).isNotNull())
            found |= self._write(bad, f"{staging}/{_REJECTED_FOLDER}", f"{REJECTED}/", REJECTED_ROWS)
        return found | self._write(good, f"{staging}/{_DATA_FOLDER}", "", schema)

    def _write(self, rows: DataFrame, staging: str, place: str, schema: StructType) -> dict[tuple[str, int], Piece]:
        ordered = rows.select(*schema.fieldNames()).sortWithinPartitions("topic", "date", "partition", "offset")
        path = self._files.path(staging)
        # Not the 96-bit times that Spark writes by itself, which others read as something else, or not at all.
        rows.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        ordered.write.partitionBy("topic", "date").option("compression", self._compression).parquet(path)
        # What counts is what is in the files, so it is read from them.
        written = self._spark.read.schema(schema).parquet(path).withColumn("file", F.col("_metadata.file_path"))
        summaries = summarised(written, "file", "topic", "partition").collect()
        number = staging.split("/")[1]
        marker = f"/{staging}/"
        names = {row["file"]: row["file"].rpartition(marker)[2] for row in summaries}
        places = {
            file: f"{place}{name.rpartition('/')[0]}/{number}-{part:05d}.parquet"
            for part, (file, name) in enumerate(sorted(names.items(), key=lambda item: item[1]))
        }
        for file, name in names.items():
            self._files.rename(f"{staging}/{name}", f"{staging}/{places[file].removeprefix(place)}")
        return {
            (places[row["file"]], row["partition"]): Piece(
                file=places[row["file"]],
                topic=row["topic"],
                partition=row["partition"],
                first_offset=row["first_offset"],
                last_offset=row["last_offset"],
                rows=row["rows"],
                checksum=row["checksum"],
            )
            for row in summaries
        }

    def _settle(self, name: str) -> None:
        """Finish a batch that is decided, and remove one that is not: steps c and d."""
        staging = f"{STAGING}/{name}"
        if self._files.exists(f"{staging}/manifest.json"):
            manifest = decode(self._files.read(f"{staging}/manifest.json"), f"{staging}/manifest.json")
            for file in dict.fromkeys(piece.file for piece in manifest.pieces):
                staged = f"{staging}/{_DATA_FOLDER}/{file}"
                if file.startswith(f"{REJECTED}/"):
                    staged = f"{staging}/{_REJECTED_FOLDER}/{file.removeprefix(f'{REJECTED}/')}"
                if self._files.exists(staged):
                    self._files.rename(staged, file)
                elif not self._files.exists(file):
                    raise ArchiveError(f"{file} of batch {manifest.number} is neither staged nor in its place")
            self._files.rename(f"{staging}/manifest.json", manifest_name(manifest.number))
        self._files.delete(staging)


def _below(ends: dict[str, dict[str, int]]) -> Column:
    """Return whether a record is below the end of its partition."""
    below = F.lit(False)
    for topic, partitions in ends.items():
        pairs = ((F.lit(int(partition)), F.lit(end).cast("long")) for partition, end in partitions.items())
        numbers = F.create_map(*(each for pair in pairs for each in pair))
        end = F.coalesce(F.try_element_at(numbers, F.col("partition")), F.lit(0))
        below = below | ((F.col("topic") == topic) & (F.col("offset") < end))
    return below


def manifest_name(number: int) -> str:
    """Return the name of a manifest."""
    return f"{MANIFESTS}/{number:020d}.json"


def manifest_numbers(files: Files) -> list[int]:
    """Return the numbers of all manifests, sorted."""
    names = (name.removesuffix(".json") for name in files.names(MANIFESTS) if name.endswith(".json"))
    return sorted(int(name) for name in names if name.isdecimal())


def read_manifest(files: Files, number: int) -> Manifest:
    """Return a manifest; ArchiveError where it is not there, or damaged."""
    name = manifest_name(number)
    return decode(files.read(name), name)
