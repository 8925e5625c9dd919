"""`format("ottla")`: topics as tables and streams, from and to the brokers."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from ottla.pipeline.sources.rows import row_schema


class TopicSource(DataSource):
    """What Spark makes for each use of the format."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "ottla"

    def schema(self) -> StructType:
        """Return the schema of the rows."""
        return row_schema(with_headers=self.options.get("includeHeaders", "false").lower() == "true")
