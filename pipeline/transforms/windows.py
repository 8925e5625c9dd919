"""JSON events, and what is counted of them by key and window of time."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812


def events(rows: DataFrame, *, key_field: str | None, value_field: str | None, time_field: str | None) -> DataFrame:
    """Return key, number and time of each event; what is not JSON, or has no key or time, is left out.

    A field may be in another: `customer.id`. The record's own key and timestamp stand in where no field is named.
    """
    parsed = rows.withColumn("event", F.try_parse_json(F.col("value").cast("string")))
    key = _field(key_field, "string") if key_field else F.col("key").cast("string")
    number = _field(value_field, "double") if value_field else F.lit(None).cast("double")
    time = F.try_to_timestamp(_field(time_field, "string")) if time_field else F.col("timestamp")
    found = parsed.filter(F.col("event").isNotNull()).select(
        key.alias("key"), number.alias("number"), time.alias("time")
    )
    return found.filter(F.col("key").isNotNull() & F.col("time").isNotNull())


def _field(name: str, kind: str) -> Column:
    return F.try_variant_get("event", f"$.{name}", kind)


def windowed(
    found: DataFrame, *, window: str, slide: str | None, watermark: str, quantiles: Sequence[float]
) -> DataFrame:
    """Return count, sum, extremes and quantiles of the numbers of each key in each window."""
    columns = [
        F.count("*").alias("count"),
        F.sum("number").alias("sum"),
        F.min("number").alias("min"),
        F.max("number").alias("max"),
    ]
    if quantiles:
        columns.append(F.percentile_approx("number", list(quantiles)).alias("quantiles"))
    grouped = (
        found.withWatermark("time", watermark)
        .groupBy("key", F.window("time", window, slide) if slide else F.window("time", window))
        .agg(*columns)
    )
    names = F.array(*(F.lit(str(quantile)) for quantile in quantiles))
    results = [
        F.map_from_arrays(names, "quantiles").alias("quantiles") if name == "quantiles" else F.col(name)
        for name in ("count", "sum", "min", "max", *(["quantiles"] if quantiles else []))
    ]
    return grouped.select(
        "key", F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end"), *results
    )


def as_records(results: DataFrame) -> DataFrame:
    """Return results as records of a compacted topic: the key has key and window, so that the last result stays."""
    options = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"}
    return results.select(
        F.to_json(F.struct("key", "window_start", "window_end"), options).alias("key"),
        F.to_json(F.struct("*"), options).alias("value"),
    )
