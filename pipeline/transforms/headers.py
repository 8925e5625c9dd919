"""Headers that are added to those of a record."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812


def with_headers(added: Mapping[str, Column]) -> Column:
    """Return the headers of a record and further ones, whose values are text."""
    own = F.coalesce(F.col("headers"), F.array().cast("array<struct<key:string,value:binary>>"))
    further = (
        F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
        for name, value in added.items()
    )
    return F.concat(own, F.array(*further))


def places(prefix: str) -> dict[str, Column]:
    """Return where a record stands, by the names of headers."""
    return {prefix + name: F.col(name) for name in ("topic", "partition", "offset")}
