"""A number for the content of each record, and one for the content of many, whatever the order they come in.

The checksum of some records is the sum of their hashes. So that of a partition is the sum of those of its pieces,
however they were cut, and a record that is there twice, is missing or is another changes it.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

# Differences are looked for in ranges of so many offsets.
BUCKET_OFFSETS: Final = 1 << 16


def content_hash() -> Column:
    """Return the hash of what a record says: all but where it stands.

    A null is passed over by the hash function, so whether there is one is hashed as well: else a record without a key
    would be like one without a value.
    """
    headers = F.coalesce(F.col("headers"), F.array().cast("array<struct<key:string,value:binary>>"))
    return F.xxhash64(
        F.col("key").isNull(),
        F.col("key"),
        F.col("value").isNull(),
        F.col("value"),
        F.col("timestamp"),
        F.col("timestampType"),
        F.size(headers),
        headers,
    )


def checksum() -> Column:
    """Return the checksum of a group of records, as text."""
    # Decimals, since a sum of 64-bit numbers would overflow.
    return F.sum(content_hash().cast("decimal(20,0)")).cast("string")


def summarised(rows: DataFrame, *by: str) -> DataFrame:
    """Return how many records each group has, from which offset to which, and their checksum."""
    return rows.groupBy(*by).agg(
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
        F.count("*").alias("rows"),
        checksum().alias("checksum"),
    )


def with_bucket(rows: DataFrame) -> DataFrame:
    """Add `bucket`, the range of offsets that a record belongs to."""
    return rows.withColumn("bucket", F.shiftright("offset", BUCKET_OFFSETS.bit_length() - 1))
