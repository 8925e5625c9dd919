"""`format("ottla")`: topics as tables and streams, from and to the brokers."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ottla.pipeline.sources.errors import SourceOptionError
from ottla.pipeline.sources.kafka_options import kafka_config, reader_settings, writer_settings
from ottla.pipeline.sources.options import (
    ExactlyOnce,
    check_names,
    parse_boolean,
    parse_exactly_once,
    parse_read_options,
)
from ottla.pipeline.sources.rows import check_schema, row_schema
from ottla.pipeline.sources.topic_reader import TopicReader
from ottla.pipeline.sources.topic_stream import TopicStreamReader
from ottla.pipeline.sources.topic_writer import TopicStreamWriter, TopicWriter, check_columns


class TopicSource(DataSource):
    """What Spark makes for each use of the format; wrong options are told when they are first looked at."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "ottla"

    def schema(self) -> StructType:
        """Return the schema of the rows."""
        return row_schema(parse_boolean(self.options, "includeHeaders", default=False))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads a batch."""
        options = parse_read_options(self.options, streaming=False)
        check_schema(schema, options.include_headers)
        config = kafka_config(self.options)
        reader_settings(config)
        return TopicReader(config, options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return what reads a stream."""
        options = parse_read_options(self.options, streaming=True)
        check_schema(schema, options.include_headers)
        config = kafka_config(self.options)
        reader_settings(config)
        return TopicStreamReader(config, options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return what writes a batch."""
        if overwrite:
            raise SourceOptionError('A topic cannot be overwritten: write with mode("append").')
        exactly_once = parse_exactly_once(self.options, streaming=False)
        return TopicWriter(self._writer_config(schema, exactly_once), self.options.get("topic"), exactly_once)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return what writes a stream."""
        if overwrite:
            raise SourceOptionError('A topic cannot be overwritten: use outputMode("append") or outputMode("update").')
        exactly_once = parse_exactly_once(self.options, streaming=True)
        return TopicStreamWriter(self._writer_config(schema, exactly_once), self.options.get("topic"), exactly_once)

    def _writer_config(self, schema: StructType, exactly_once: ExactlyOnce | None) -> dict[str, str]:
        check_names({name.lower(): value for name, value in self.options.items()})
        config = kafka_config(self.options)
        writer_settings(config, "some id" if exactly_once else None)
        check_columns(schema, self.options.get("topic"), exactly_once)
        return config
