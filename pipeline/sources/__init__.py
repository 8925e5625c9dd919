"""Data sources for PySpark that need no jar: `format("ottla")` for topics, `format("ottla-log")` for files of logs.

    from ottla.pipeline.sources import register

    register(spark)
    options = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
    rows = spark.read.format("ottla").options(**options).load()

Options and rows are those of Spark's own `format("kafka")`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make both formats known to a session."""
    from ottla.pipeline.sources.log_source import LogSource
    from ottla.pipeline.sources.topic_source import TopicSource

    spark.dataSource.register(TopicSource)
    spark.dataSource.register(LogSource)
