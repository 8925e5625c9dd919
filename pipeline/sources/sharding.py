"""Which task writes which rows, for sinks that write exactly once.

A row has the number of its shard in a column, made from its content. So a batch that is repeated has the same rows in
each shard, and a task can tell whether a row is where it belongs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHARD: Final = "shard"


def sharded(frame: DataFrame, shards: int, *columns: str) -> DataFrame:
    """Return the rows with a column `shard`, and the rows of each shard in one task.

    Rows with equal values in `columns`, by default in all columns, are in the same shard; name `key` there to keep all
    records of a key in one transaction. Sort with sortWithinPartitions afterwards, if at all.
    """
    from pyspark.sql import functions as F  # noqa: N812

    number = F.pmod(F.xxhash64(*(columns or frame.columns)), F.lit(shards)).cast("int")
    return frame.withColumn(SHARD, number).repartitionById(shards, SHARD)
