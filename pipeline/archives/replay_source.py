"""What a replay reads: an archive, any other Parquet files with its columns, or the files of a log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ottla.pipeline.archives.archive import REJECTED, ROWS, manifest_numbers
from ottla.pipeline.archives.files import Files
from ottla.pipeline.archives.manifest import Offsets
from ottla.pipeline.archives.reading import read_manifests
from ottla.pipeline.errors import SettingsError
from ottla.pipeline.settings import ReplaySettings
from ottla.pipeline.transforms.pacing import ReplayStep, Slice


class ReplaySource(Protocol):
    """Records by offset range."""

    def table(self) -> DataFrame:
        """Return all records."""

    def rows(self, step: ReplayStep) -> DataFrame:
        """Return the records of a step."""


def replay_source(spark: SparkSession, settings: ReplaySettings) -> ReplaySource:
    """Return what the settings name; files with manifests are an archive, of which only whole batches are read."""
    path = str(settings.source)
    if settings.source_format == "ottla-log":
        return LogFiles(spark, path, settings.topics)
    files = Files(spark, path)
    if manifest_numbers(files):
        return ArchiveFiles(spark, files, settings.topics)
    if next(files.walk(), None) is None:
        raise SettingsError(f"there is nothing at {path}: neither an archive nor Parquet files. Check --from.")
    return ParquetFiles(spark, path, settings.topics)


class ParquetFiles:
    """A folder of Parquet with the columns of an archive."""

    def __init__(self, spark: SparkSession, path: str, topics: tuple[str, ...]) -> None:
        self._table = spark.read.parquet(path)
        if topics:
            self._table = self._table.filter(F.col("topic").isin(list(topics)))

    def table(self) -> DataFrame:
        """Return all records."""
        return self._table

    def rows(self, step: ReplayStep) -> DataFrame:
        """Return the records of a step."""
        return self._table.filter(_within(step))


class ArchiveFiles:
    """The batches of an archive; for a step, only files that have records of it are opened."""

    def __init__(self, spark: SparkSession, files: Files, topics: tuple[str, ...]) -> None:
        self._spark = spark
        self._files = files
        self._pieces = [
            piece
            for piece in read_manifests(files).pieces
            if not piece.file.startswith(f"{REJECTED}/") and (not topics or piece.topic in topics)
        ]

    def table(self) -> DataFrame:
        """Return all records."""
        return self._of({piece.file for piece in self._pieces})

    def rows(self, step: ReplayStep) -> DataFrame:
        """Return the records of a step."""
        files = set()
        for piece in self._pieces:
            wanted = step.slices.get((piece.topic, piece.partition))
            if wanted is not None and piece.first_offset < wanted.end and piece.last_offset >= wanted.begin:
                files.add(piece.file)
        return self._of(files).filter(_within(step))

    def _of(self, names: set[str]) -> DataFrame:
        if not names:
            return self._spark.createDataFrame([], ROWS)
        paths = [self._files.path(name) for name in sorted(names)]
        return self._spark.read.schema(ROWS).option("basePath", self._files.path()).parquet(*paths)


class LogFiles:
    """Segment files; a step is found in them by their indexes."""

    def __init__(self, spark: SparkSession, path: str, topics: tuple[str, ...]) -> None:
        self._spark = spark
        self._path = path
        self._topics = topics

    def table(self) -> DataFrame:
        """Return all records."""
        return self._load({"subscribe": ",".join(self._topics)} if self._topics else {})

    def rows(self, step: ReplayStep) -> DataFrame:
        """Return the records of a step."""
        assigned: dict[str, list[int]] = {}
        bounds: dict[str, dict[str, dict[str, int]]] = {"startingOffsets": {}, "endingOffsets": {}}
        for piece in step.slices.values():
            assigned.setdefault(piece.topic, []).append(piece.partition)
            bounds["startingOffsets"].setdefault(piece.topic, {})[str(piece.partition)] = piece.begin
            bounds["endingOffsets"].setdefault(piece.topic, {})[str(piece.partition)] = piece.end
        options = {name: json.dumps(offsets) for name, offsets in bounds.items()}
        return self._load({"assign": json.dumps(assigned), **options})

    def _load(self, options: Mapping[str, str]) -> DataFrame:
        return self._spark.read.format("ottla-log").options(includeHeaders="true", **options).load(self._path)


def slices(table: DataFrame, progress: Offsets, width: int) -> list[Slice]:
    """Return what is left to replay, cut into pieces of at most so many offsets.

    A piece ends with its last record, and not where the next one begins: there may be more when the replay goes on.
    """
    piece = F.floor(F.col("offset") / width).alias("piece")
    counts = table.groupBy("topic", "partition", piece).agg(F.count("*").alias("rows"), F.max("offset").alias("last"))
    found = []
    for row in counts.collect():
        done = progress.get(row["topic"], {}).get(str(row["partition"]), 0)
        begin, end = row["piece"] * width, row["last"] + 1
        if end > done:
            found.append(Slice(row["topic"], row["partition"], max(begin, done), end, row["rows"]))
    return found


def _within(step: ReplayStep) -> Column:
    wanted = F.lit(False)
    for piece in step.slices.values():
        wanted = wanted | (
            (F.col("topic") == piece.topic)
            & (F.col("partition") == piece.partition)
            & (F.col("offset") >= piece.begin)
            & (F.col("offset") < piece.end)
        )
    return wanted
