"""Records as the sources give them, made up for tests of what comes after."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEGIN = datetime(2026, 11, 16, 12, tzinfo=UTC)


@dataclass
class Record:
    """A record with defaults for what a test does not care about; its timestamp is so many seconds after BEGIN."""

    offset: int
    value: bytes | None = b"{}"
    key: bytes | None = b"key"
    topic: str = "orders"
    partition: int = 0
    seconds: float = 0
    headers: list[tuple[str, bytes | None]] | None = field(default_factory=list)


def rows_of(spark: SparkSession, records: Iterable[Record]) -> DataFrame:
    """Return records as a table, in the order given."""
    from ottla.pipeline.sources.rows import row_schema

    tuples = [
        (
            each.key,
            each.value,
            each.topic,
            each.partition,
            each.offset,
            BEGIN + timedelta(seconds=each.seconds),
            0,
            each.headers,
        )
        for each in records
    ]
    return spark.createDataFrame(tuples, row_schema(with_headers=True))
