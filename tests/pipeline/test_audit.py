"""An audit says that a complete archive is complete, and finds whatever is wrong with another."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.records import Record, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.pipeline.transforms.findings import AuditReport

RECORDS = [Record(n, f"value {n}".encode(), partition=n % 2) for n in range(20)]


@pytest.fixture(scope="module")
def complete(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of two batches, not to be changed."""
    from ottla.pipeline.archives.archive import Archive
    from ottla.pipeline.archives.files import Files

    root = tmp_path_factory.mktemp("archives") / "complete"
    archive = Archive(spark, Files(spark, str(root)), starting_offsets="earliest")
    archive.append(rows_of(spark, RECORDS[:10]), 0)
    archive.append(rows_of(spark, RECORDS[10:]), 1)
    return root


def audited(spark: SparkSession, root: Path, source: list[Record] | None, **settings: Any) -> AuditReport:
    """Compare an archive with records that stand for its source."""
    from ottla.pipeline.jobs.audit import Audit
    from ottla.pipeline.settings import AuditSettings

    against = "broker" if source is not None else "manifests"
    audit = Audit(spark, AuditSettings(archive=str(root), against=against, **settings))
    if source is not None:
        rows = rows_of(spark, source)
        audit._source = lambda: rows  # type: ignore[method-assign]
    return audit.report()


def found(report: AuditReport) -> set[tuple[Any, ...]]:
    """Return the findings that are about records."""
    return {(each.kind, each.partition, each.first_offset, each.last_offset) for each in report.findings}


def file_with(root: Path, offset: int) -> Path:
    """Return the file that has a record."""
    from pyarrow import parquet

    (file,) = (
        file
        for file in root.glob("topic=*/*/*.parquet")
        if offset in parquet.ParquetFile(file).read(["offset"])["offset"].to_pylist()
    )
    return file


def rewrite(root: Path, offset: int, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Change the rows of the file that has a record, as a faulty tool would."""
    import pyarrow as pa
    from pyarrow import parquet

    file = file_with(root, offset)
    table = parquet.ParquetFile(file).read()
    parquet.write_table(pa.Table.from_pylist(change(table.to_pylist()), table.schema), file)
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)


def copy_of(complete: Path, tmp_path: Path) -> Path:
    """Return an archive that may be harmed."""
    return Path(shutil.copytree(complete, tmp_path / "archive"))


def test_a_complete_archive_has_no_findings(spark: SparkSession, complete: Path) -> None:
    """The report has rows and checksums of each partition."""
    report = audited(spark, complete, RECORDS)

    assert report.is_complete
    assert [(each.partition, each.end, each.rows, each.source_rows, each.behind) for each in report.partitions] == [
        (0, 19, 10, 10, 0),
        (1, 20, 10, 10, 0),
    ]
    assert len({each.checksum for each in report.partitions}) == 2


def test_a_seeded_gap_a_duplicate_and_a_corrupted_row_are_found(
    spark: SparkSession, complete: Path, tmp_path: Path
) -> None:
    """Each is named with its partition and offsets, and so is the file that is not as it was written."""
    root = copy_of(complete, tmp_path)
    rewrite(root, 2, lambda rows: [row for row in rows if row["offset"] != 2])
    rewrite(root, 7, lambda rows: [{**row, "value": b"other"} if row["offset"] == 7 else row for row in rows])
    rewrite(root, 9, lambda rows: [row for row in rows for _ in range(1 + (row["offset"] == 9))])

    report = audited(spark, root, RECORDS)

    assert found(report) >= {("gap", 0, 2, 2), ("duplicate", 1, 9, 9), ("different", 1, 7, 7)}
    assert {each.kind for each in report.findings} == {"gap", "duplicate", "different", "changed-file"}
    assert len(found(report)) < 8


def test_harm_shows_without_the_source_too(spark: SparkSession, complete: Path, tmp_path: Path) -> None:
    """Files are compared with what the manifests say of them; rows that changed places break the order."""
    root = copy_of(complete, tmp_path)
    rewrite(root, 2, lambda rows: list(reversed(rows)))
    rewrite(root, 12, lambda rows: [{**row, "key": None} if row["offset"] == 12 else row for row in rows])

    report = audited(spark, root, None)

    assert {each.kind for each in report.findings} == {"order", "changed-file"}
    assert all(each.file for each in report.findings)


def test_missing_unknown_and_unreadable_files_are_found(spark: SparkSession, complete: Path, tmp_path: Path) -> None:
    """Also a copy of a file, which every reader of the folder would take for more records."""
    root = copy_of(complete, tmp_path)
    first, second = file_with(root, 0), file_with(root, 10)
    shutil.copy(second, second.with_name("copy.parquet"))
    second.write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    first.unlink()

    report = audited(spark, root, RECORDS)

    assert {"missing-file", "unknown-file", "changed-file", "gap"} <= {each.kind for each in report.findings}
    assert ("gap", 0, 0, 0) in found(report)


def test_a_manifest_that_is_missing_breaks_the_chain(spark: SparkSession, complete: Path, tmp_path: Path) -> None:
    """Its files belong to nobody then."""
    root = copy_of(complete, tmp_path)
    (root / "_manifests" / f"{0:020d}.json").unlink()

    report = audited(spark, root, None)

    assert {each.kind for each in report.findings} == {"manifest", "unknown-file"}


def test_holes_in_the_source_are_no_gaps(spark: SparkSession, complete: Path) -> None:
    """Compaction and retention remove what the archive keeps."""
    source = [record for record in RECORDS if record.offset > 5 and record.offset % 3]

    assert audited(spark, complete, source).is_complete


def test_what_came_after_the_last_batch_counts_unless_it_is_allowed(spark: SparkSession, complete: Path) -> None:
    """Also a partition that the archive does not know at all."""
    source = [*RECORDS, Record(20), Record(22), Record(0, partition=5)]

    assert found(audited(spark, complete, source)) == {("behind", 0, 20, 22), ("behind", 5, 0, 0)}
    assert audited(spark, complete, source, allow_behind=True).is_complete


def test_an_archive_that_is_not_there_cannot_be_audited(spark: SparkSession, tmp_path: Path) -> None:
    """That is another exit code than a finding."""
    from ottla.pipeline.errors import AuditError

    with pytest.raises(AuditError, match="no archive") as raised:
        audited(spark, tmp_path, None)

    assert raised.value.exit_code == 2


def test_brokers_that_do_not_answer_are_no_finding(spark: SparkSession, complete: Path) -> None:
    """The comparison could not be made, which is another exit code, too."""
    from ottla.pipeline.errors import AuditError
    from ottla.pipeline.jobs.audit import run
    from ottla.pipeline.settings import AuditSettings

    # Nobody listens at port 1.
    settings = AuditSettings(
        archive=str(complete), bootstrap_servers="127.0.0.1:1", client={"default.api.timeout.ms": "1000"}
    )

    with pytest.raises(AuditError, match=r"could not be made: .*127\.0\.0\.1:1") as raised:
        run(spark, settings)

    assert raised.value.exit_code == 2
