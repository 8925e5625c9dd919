"""An archive gets every record once, wherever the process that writes it dies."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.records import Record, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.pipeline.archives.archive import Archive

DAY = 24 * 60 * 60


def opened(spark: SparkSession, root: Path, **options: Any) -> Archive:
    """Return an archive in a folder."""
    from ottla.pipeline.archives.archive import Archive
    from ottla.pipeline.archives.files import Files

    return Archive(spark, Files(spark, str(root)), starting_offsets="earliest", **options)


def archived(root: Path) -> list[tuple[str, int, int]]:
    """Return topic, partition and offset of all that a reader of Parquet finds."""
    from pyarrow import parquet

    found = []
    for file in root.glob("topic=*/date=*/*.parquet"):
        topic = file.parts[-3].removeprefix("topic=")
        table = parquet.ParquetFile(file).read(["partition", "offset"])
        found += [(topic, row["partition"], row["offset"]) for row in table.to_pylist()]
    return sorted(found)


def test_records_are_found_by_topic_and_date(spark: SparkSession, tmp_path: Path) -> None:
    """A folder for each topic, and in it one for each day in UTC."""
    archive = opened(spark, tmp_path / "archive")

    archive.append(rows_of(spark, [Record(0), Record(1, seconds=DAY), Record(0, topic="123")]), 0)

    folders = sorted(str(each.relative_to(tmp_path / "archive")) for each in (tmp_path / "archive").glob("topic=*/*"))
    assert folders == ["topic=123/date=2026-11-16", "topic=orders/date=2026-11-16", "topic=orders/date=2026-11-17"]
    assert archived(tmp_path / "archive") == [("123", 0, 0), ("orders", 0, 0), ("orders", 0, 1)]


def test_records_come_back_as_they_were(spark: SparkSession, tmp_path: Path) -> None:
    """Nulls, headers and timestamps are kept."""
    from ottla.pipeline.archives.archive import ROWS

    rows = rows_of(
        spark,
        [
            Record(0, key=None, value=None, headers=[("a", b"1"), ("a", None)]),
            Record(1, key=b"", value=b"\x00\xff", seconds=0.001),
        ],
    )

    opened(spark, tmp_path).append(rows, 0)

    assert spark.read.schema(ROWS).parquet(str(tmp_path)).select(*rows.columns).collect() == rows.collect()


def test_a_batch_that_comes_again_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    """A query that died after the archive had its batch brings it once more."""
    opened(spark, tmp_path).append(rows_of(spark, [Record(0), Record(1)]), 0)

    again = opened(spark, tmp_path)

    assert again.append(rows_of(spark, [Record(0), Record(1)]), 0) is None
    assert archived(tmp_path) == [("orders", 0, 0), ("orders", 0, 1)]


def test_a_query_that_lost_its_checkpoint_adds_only_what_is_new(spark: SparkSession, tmp_path: Path) -> None:
    """It is offsets that count, and not numbers of batches."""
    opened(spark, tmp_path).append(rows_of(spark, [Record(0), Record(1)]), 7)

    manifest = opened(spark, tmp_path).append(rows_of(spark, [Record(n) for n in range(4)]), 0)

    assert manifest is not None
    assert (manifest.begins, manifest.ends) == ({"orders": {"0": 2}}, {"orders": {"0": 4}})
    assert archived(tmp_path) == [("orders", 0, n) for n in range(4)]


def test_a_second_writer_is_found_out(spark: SparkSession, tmp_path: Path) -> None:
    """Records below the end of the archive cannot come from the query that wrote it."""
    from ottla.pipeline.errors import ArchiveError

    archive = opened(spark, tmp_path)
    archive.append(rows_of(spark, [Record(5)]), 0)

    with pytest.raises(ArchiveError, match="another job"):
        archive.append(rows_of(spark, [Record(5)]), 1)


def test_bad_records_are_kept_apart_with_their_reasons(spark: SparkSession, tmp_path: Path) -> None:
    """Readers of the archive do not see them, and its manifest does."""
    from ottla.pipeline.archives.archive import REJECTED_ROWS
    from ottla.pipeline.transforms.quality import with_reason

    rows = with_reason(rows_of(spark, [Record(0), Record(1, b"not JSON"), Record(2)]), json=True, schema=None)

    manifest = opened(spark, tmp_path).append(rows, 0)

    assert manifest is not None
    assert manifest.ends == {"orders": {"0": 3}}
    assert archived(tmp_path) == [("orders", 0, 0), ("orders", 0, 2)]
    (bad,) = spark.read.schema(REJECTED_ROWS).parquet(str(tmp_path / "_rejected")).collect()
    assert (bad["offset"], bad["reason"]) == (1, "the value is not JSON")


def test_a_death_at_any_step_leaves_a_whole_batch_or_none(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each change to the folder its state is kept; whoever opens that finds all of the batch or nothing."""
    from ottla.pipeline.archives.files import Files

    root, kept = tmp_path / "archive", tmp_path / "kept"
    states: list[Path] = []

    def keeping(name: str) -> Any:
        real = getattr(Files, name)

        def step(self: Files, *arguments: str) -> Any:
            states.append(kept / str(len(states)))
            shutil.copytree(root, states[-1])
            return real(self, *arguments)

        return step

    root.mkdir()
    archive = opened(spark, root)
    with monkeypatch.context() as patches:
        for name in ("rename", "delete"):
            patches.setattr(Files, name, keeping(name))
        archive.append(rows_of(spark, [Record(0), Record(1, seconds=DAY)]).coalesce(1), 0)

    found = []
    for state in states:
        last = opened(spark, state).last
        found.append(None if last is None else last.ends)
        assert archived(state) == ([] if last is None else [("orders", 0, 0), ("orders", 0, 1)])
        assert not list((state / "_staging").glob("*"))
    whole = {"orders": {"0": 2}}
    assert found == [None] * found.count(None) + [whole] * found.count(whole)
    assert min(found.count(None), found.count(whole)) > 3


def test_a_replay_of_nothing_says_so(spark: SparkSession, tmp_path: Path) -> None:
    """Not in Spark's words for a folder without files."""
    from ottla.pipeline.archives.replay_source import replay_source
    from ottla.pipeline.errors import SettingsError
    from ottla.pipeline.settings import ReplaySettings

    settings = ReplaySettings(source=str(tmp_path / "missing"), target_topic="t")
    with pytest.raises(SettingsError, match="neither an archive nor Parquet files"):
        replay_source(spark, settings)
