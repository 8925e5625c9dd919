"""What an audit asks of the records of an archive and of its source."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from ottla.pipeline.transforms.checksums import content_hash, summarised, with_bucket

# Where a record of the source stands: before the archive begins, where the archive must have it, behind its end.
BEFORE: Final = "before"
COVERED: Final = "covered"
BEHIND: Final = "behind"

GAP: Final = "gap"
DUPLICATE: Final = "duplicate"
DIFFERENT: Final = "different"

BOUNDS: Final = "topic string, partition int, begin long, end long"
BUCKETS: Final = "topic string, partition int, bucket long"
_PLACE: Final = ["topic", "partition", "offset"]


def with_zone(source: DataFrame, bounds: DataFrame) -> DataFrame:
    """Add `zone` and `bucket` to the records of a source; all of a partition without bounds is behind the archive."""
    offset = F.col("offset")
    zone = (
        F.when(offset >= F.coalesce("end", F.lit(0)), BEHIND)
        .when(offset < F.coalesce("begin", F.lit(0)), BEFORE)
        .otherwise(COVERED)
    )
    joined = source.join(F.broadcast(bounds), ["topic", "partition"], "left")
    return with_bucket(joined.withColumn("zone", zone).drop("begin", "end"))


def source_summaries(zoned: DataFrame) -> DataFrame:
    """Return rows and checksum of each range of offsets."""
    return summarised(zoned, "topic", "partition", "bucket", "zone")


def archive_summaries(archived: DataFrame) -> DataFrame:
    """Return rows and checksum of each range of offsets in each file."""
    return summarised(with_bucket(archived), "file", "topic", "partition", "bucket")


def out_of_order(archived: DataFrame) -> DataFrame:
    """Return the records that come after one with a higher offset in the same file: file, topic, partition, offset."""
    order = Window.partitionBy("file", "topic", "partition").orderBy("row_index")
    return (
        archived.select("file", "row_index", *_PLACE)
        .withColumn("previous", F.lag("offset").over(order))
        .filter(F.col("offset") < F.col("previous"))
        .select("file", *_PLACE)
    )


def differences(archived: DataFrame, source: DataFrame, buckets: DataFrame) -> DataFrame:
    """Return what is wrong in some ranges of offsets: kind, topic, partition, offset.

    A record that only the archive has is not wrong: the source may have been compacted, or trimmed.
    """
    wanted = F.broadcast(buckets)
    ours = (
        with_bucket(archived)
        .join(wanted, ["topic", "partition", "bucket"], "left_semi")
        .groupBy(*_PLACE)
        .agg(F.count("*").alias("copies"), F.min(content_hash()).alias("low"), F.max(content_hash()).alias("high"))
    )
    theirs = with_bucket(source).join(wanted, ["topic", "partition", "bucket"], "left_semi")
    theirs = theirs.select(*_PLACE, content_hash().alias("hash"))
    kind = (
        F.when(F.col("copies") > 1, DUPLICATE)
        .when(F.col("copies").isNull(), GAP)
        .when((F.col("low") != F.col("hash")) | (F.col("high") != F.col("hash")), DIFFERENT)
    )
    return (
        ours.join(theirs, _PLACE, "full_outer")
        .withColumn("kind", kind)
        .filter(F.col("kind").isNotNull())
        .select("kind", *_PLACE)
    )
