"""`format("ottla-log")`: the files of logs as tables, without a broker."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from ottla.pipeline.sources.rows import row_schema


class LogSource(DataSource):
    """What Spark makes for each use of the format."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "ottla-log"

    def schema(self) -> StructType:
        """Return the schema of the rows."""
        return row_schema(with_headers=self.options.get("includeHeaders", "false").lower() == "true")
