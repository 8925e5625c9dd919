"""`audit`: proves that an archive is complete, or says what is wrong with it.

The archive is compared with its manifests, file by file, and with its source. There, checksums of ranges of offsets are
compared first; records are only looked at one by one in the ranges where these differ. The offsets alone would prove
nothing: compaction and transactions leave holes in them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ottla.pipeline.archives.files import Files
from ottla.pipeline.archives.manifest import Piece
from ottla.pipeline.archives.reading import Manifests, archive_rows, decided_files, listed_files, read_manifests
from ottla.pipeline.audit_output import print_report
from ottla.pipeline.errors import EXIT_FAILED, ArchiveError, AuditError, reason_of
from ottla.pipeline.session import SPARK_ERRORS
from ottla.pipeline.settings import AuditSettings
from ottla.pipeline.topics import table_of
from ottla.pipeline.transforms.comparison import (
    BEHIND,
    BOUNDS,
    BUCKETS,
    COVERED,
    archive_summaries,
    differences,
    out_of_order,
    source_summaries,
    with_zone,
)
from ottla.pipeline.transforms.findings import (
    NOTHING,
    AuditFinding,
    AuditReport,
    PartitionReport,
    Summary,
    checksum_text,
    differing,
    ranges,
)

Buckets = dict[tuple[str, int, int], Summary]


def run(spark: SparkSession, settings: AuditSettings) -> int:
    """Print the report; return 0 where all is well, 1 where something was found."""
    try:
        report = Audit(spark, settings).report()
    except (*SPARK_ERRORS, ArchiveError) as error:
        raise AuditError(f"the audit could not be made: {reason_of(error)}") from error
    print_report(report, settings.format)
    return 0 if report.is_complete else EXIT_FAILED


class Audit:
    """One comparison of an archive."""

    def __init__(self, spark: SparkSession, settings: AuditSettings) -> None:
        self._spark = spark
        self._settings = settings
        self._files = Files(spark, str(settings.archive))
        self._manifests: Manifests = read_manifests(self._files)
        if not self._manifests.read and not self._manifests.problems:
            raise AuditError(f"there is no archive at {self._files.path()}: it has no manifests")
        self._rows = archive_rows(spark, self._files)
        begins = self._manifests.begins()
        self._partitions = {
            (topic, int(partition)): PartitionReport(topic, int(partition), begins.get((topic, int(partition)), 0), end)
            for topic, partitions in self._manifests.ends.items()
            for partition, end in partitions.items()
        }
        self._findings = [AuditFinding("manifest", detail=problem) for problem in self._manifests.problems]

    def report(self) -> AuditReport:
        """Make the comparison."""
        buckets = self._check_files()
        for row in out_of_order(self._rows).limit(self._settings.findings_max).collect():
            file = self._files.relative(row["file"])
            self._add(AuditFinding("order", row["topic"], row["partition"], row["offset"], row["offset"], 1, file))
        if self._settings.against != "manifests":
            self._check_source(buckets)
        listed = self._findings[: self._settings.findings_max]
        return AuditReport([self._partitions[key] for key in sorted(self._partitions)], sorted(listed, key=_order))

    def _add(self, finding: AuditFinding) -> None:
        self._findings.append(finding)
        if finding.topic is not None and finding.partition is not None:
            key = (finding.topic, finding.partition)
            report = self._partitions.setdefault(key, PartitionReport(*key, begin=0, end=0))
            report.findings += 1

    def _check_files(self) -> Buckets:
        """Compare the files with the manifests, and return what is in them by range of offsets."""
        written: dict[tuple[str, str, int], list[tuple[int, int, Summary]]] = defaultdict(list)
        buckets: Buckets = defaultdict(lambda: NOTHING)
        listed = listed_files(self._files)
        summaries = archive_summaries(self._rows).collect()
        known = {piece.file for piece in self._manifests.pieces}
        # Batches that a job has added since the audit began are none of its business.
        newer = decided_files(self._files) - known
        for row in summaries:
            file = self._files.relative(row["file"])
            if file in newer:
                continue
            summary = Summary(row["rows"], int(row["checksum"]))
            written[file, row["topic"], row["partition"]].append((row["first_offset"], row["last_offset"], summary))
            buckets[row["topic"], row["partition"], row["bucket"]] += summary
            if (row["topic"], row["partition"]) in self._partitions:
                report = self._partitions[row["topic"], row["partition"]]
                report.rows += summary.rows
                report.checksum += summary.checksum
        if newer:
            names = [name.rpartition("/")[2] for name in newer]
            self._rows = self._rows.filter(~F.element_at(F.split("file", "/"), -1).isin(names))
        for file in sorted(listed - known - newer):
            self._findings.append(AuditFinding("unknown-file", file=file, detail="no manifest has it"))
        for piece in self._manifests.pieces:
            self._check_piece(piece, listed, written.get((piece.file, piece.topic, piece.partition), ()))
        return buckets

    def _check_piece(self, piece: Piece, listed: set[str], found: Iterable[tuple[int, int, Summary]]) -> None:
        place = (piece.topic, piece.partition, piece.first_offset, piece.last_offset, piece.rows, piece.file)
        found = list(found)
        if piece.file not in listed:
            self._add(AuditFinding("missing-file", *place))
            return
        summary = sum((each for _, _, each in found), NOTHING)
        if summary.rows != piece.rows:
            self._add(AuditFinding("changed-file", *place, f"{summary.rows} records can be read of {piece.rows}"))
        elif checksum_text(summary.checksum) != checksum_text(int(piece.checksum)) or (
            (min(first for first, _, _ in found), max(last for _, last, _ in found))
            != (piece.first_offset, piece.last_offset)
        ):
            self._add(AuditFinding("changed-file", *place, "the content is not what was written"))

    def _check_source(self, ours: Buckets) -> None:
        """Compare the archive with its source."""
        bounds = [(report.topic, report.partition, report.begin, report.end) for report in self._partitions.values()]
        source = with_zone(self._source(), self._spark.createDataFrame(bounds, BOUNDS))
        theirs: Buckets = {}
        for report in self._partitions.values():
            report.source_rows = report.behind = 0
        behind: dict[tuple[str, int], list[tuple[int, int, int]]] = defaultdict(list)
        for row in source_summaries(source).collect():
            key = (row["topic"], row["partition"])
            report = self._partitions.setdefault(key, PartitionReport(*key, begin=0, end=0, source_rows=0, behind=0))
            if row["zone"] == COVERED:
                theirs[*key, row["bucket"]] = Summary(row["rows"], int(row["checksum"]))
                report.source_rows = (report.source_rows or 0) + row["rows"]
            elif row["zone"] == BEHIND:
                report.behind = (report.behind or 0) + row["rows"]
                behind[key].append((row["first_offset"], row["last_offset"], row["rows"]))
        for key, found in behind.items() if not self._settings.allow_behind else ():
            first, last = min(each[0] for each in found), max(each[1] for each in found)
            self._add(AuditFinding("behind", *key, first, last, sum(each[2] for each in found)))
        if suspects := differing(ours, theirs):
            self._look_closely(source.filter(source["zone"] == COVERED), suspects)

    def _look_closely(self, source: DataFrame, suspects: list[tuple[str, int, int]]) -> None:
        """Find the offsets that are wrong in some ranges."""
        wrong = differences(self._rows, source, self._spark.createDataFrame(suspects, BUCKETS))
        offsets: dict[tuple[str, str, int], list[int]] = defaultdict(list)
        for row in wrong.limit(self._settings.findings_max).collect():
            offsets[row["kind"], row["topic"], row["partition"]].append(row["offset"])
        for (kind, topic, partition), found in offsets.items():
            for finding in ranges(kind, topic, partition, found):
                self._add(finding)

    def _source(self) -> DataFrame:
        topics = sorted({topic for topic, _ in self._partitions})
        if self._settings.against == "broker":
            return table_of(self._spark, self._settings, topics)
        options = {"includeHeaders": "true", "subscribe": ",".join(topics)}
        return self._spark.read.format("ottla-log").options(**options).load(str(self._settings.log_dir))


def _order(finding: AuditFinding) -> tuple[str, int, int, str, str]:
    return (
        finding.topic or "",
        -1 if finding.partition is None else finding.partition,
        -1 if finding.first_offset is None else finding.first_offset,
        finding.kind,
        finding.file or "",
    )
